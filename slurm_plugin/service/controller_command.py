"""`dally controller`: the daemon that decides where and when jobs start."""

from pathlib import Path

import click

from dally.optional import import_optional
from slurm_plugin.service.cli import config_option
from slurm_plugin.service.signals import Signals


@click.command
@config_option
@click.option("--shadow", is_flag=True, help="Only decide and tell; never order anything of Slurm.")
@click.option("--drain", is_flag=True, help="Start and stop no jobs; look after those that run.")
@click.option("--once", is_flag=True, help="End after one cycle; serves no pages.")
def command(config: Path | None, shadow: bool, drain: bool, once: bool) -> None:
    """Run the controller in the foreground, as a service would.

    It tells each event as one line of JSON. SIGTERM and SIGINT end it between two steps, SIGHUP makes it read
    its configuration again. However it ends, the next one goes on where it was.
    """
    with Signals() as signals:  # before numpy begins threads: a signal to one of them would end all
        daemon = import_optional("slurm_plugin.service.daemon")
        mode = daemon.ControllerMode(shadow=shadow, drain=drain)
        daemon.Daemon(config, mode, signals, serve=not once).run(once)
