"""Options that all commands on hosts over SSH have."""

from pathlib import Path

import click

from testbed.remote.log import default_logs

hosts_option = click.option(
    "--hosts",
    "hosts_file",
    type=click.Path(path_type=Path),
    required=True,
    help="TOML file of the hosts, their racks and how to log in.",
)

logs_option = click.option(
    "--logs",
    type=click.Path(path_type=Path),
    default=default_logs,
    show_default="~/.local/state/dally/hosts",
    help="Folder of the logs of what was run on each host.",
)
