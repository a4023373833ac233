"""`dally testbed check`: say whether hosts can be a testbed, changing nothing on them."""

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import click
from rich.table import Table
from rich.text import Text

from dally.commands.terminal import TextConsole
from dally.errors import DallyError
from dally.hosts.hosts_file import read_hosts_file
from slurm_plugin.admin.checks.site import Finding, Level, problem
from testbed.commands.options import hosts_option, logs_option
from testbed.remote.existing_slurm import find_slurm
from testbed.remote.fitness import FitnessRow, host_findings, is_fit
from testbed.remote.hosts import CommandLog, Hosts
from testbed.remote.rights import all_findings, find_rights
from testbed.remote.survey import survey

_MARKS = {Level.OK: ("ok", "green"), Level.WARNING: ("?", "yellow"), Level.PROBLEM: ("NO", "red")}
_NOT_MADE = ("-", "")


@click.command(
    epilog="""\b
Examples:
  dally testbed check --hosts hosts.toml
  dally testbed check --hosts hosts.toml --partition gpu --work /nfs/me
Marks: ok; ? it works, but see below; NO it does not, see below how to mend it; - it could not be seen."""
)
@hosts_option
@click.option("--partition", help="Also say what you may do in this partition of the Slurm that is there.")
@click.option("--work", type=click.Path(path_type=Path), help="With --partition: the folder for its jobs.")
@click.option("--reservation", default="", help="With --partition: a reservation to use there.")
@click.option("--slurm-conf", "conf", type=click.Path(path_type=Path), help="With --partition: as for `run`.")
@logs_option
@click.option("--json", "as_json", is_flag=True, help="Print the findings as JSON.")
def command(
    hosts_file: Path,
    partition: str | None,
    work: Path | None,
    reservation: str,
    conf: Path | None,
    logs: Path,
    as_json: bool,
) -> None:
    """Say whether the hosts can be a testbed: SSH, clocks, versions, GPUs, network, Slurm. Changes nothing.

    With --partition, also whether `run --existing` can use that partition as the user who logs in. The exit
    code is 1 if there is a problem.
    """
    if bool(partition) != bool(work) or (partition is None and (reservation or conf)):
        raise click.UsageError("--partition needs --work; --reservation and --slurm-conf go with both")
    file = read_hosts_file(hosts_file)
    hosts = Hosts(file, CommandLog(logs))
    try:
        seen = survey(hosts)
        rows = host_findings(file, seen)
        head = file.hosts[0].name
        if partition and work and not seen.hosts[head].error:
            try:
                found = all_findings(find_rights(find_slurm(hosts, partition, work, reservation, conf)))
            except DallyError as error:
                found = {"jobs": problem(str(error), "so `run --existing` would be refused")}
            rows += tuple(FitnessRow(head, check, finding) for check, finding in found.items())
    finally:
        hosts.close()
    if as_json:
        data = [{"host": row.host, "check": row.check, **asdict(row.finding)} for row in rows]
        click.echo(json.dumps(data, indent=2))
    else:
        _show(rows, logs)
    if not is_fit(rows):
        sys.exit(1)


def _show(rows: Sequence[FitnessRow], logs: Path) -> None:
    """Print a table of all hosts and checks, then what to do about each finding that is not ok."""
    console = TextConsole(highlight=False, soft_wrap=True)
    by_host: dict[str, dict[str, Finding]] = {}
    for row in rows:
        by_host.setdefault(row.host, {})[row.check] = row.finding
    checks = dict.fromkeys(row.check for row in rows)
    table = Table("host", *checks, box=None, padding=(0, 1))
    for host, found in by_host.items():
        marks = (_MARKS[found[check].level] if check in found else _NOT_MADE for check in checks)
        table.add_row(Text(host), *(Text(mark, style) for mark, style in marks))
    console.print(table)
    for row in rows:
        if row.finding.level is not Level.OK:
            mark, style = _MARKS[row.finding.level]
            said = f"{row.host}, {row.check}: {row.finding.found} -> {row.finding.advice}"
            console.print(Text.assemble((f"{mark:3}", style), said))
    console.print(Text(f"what was run there: {logs}/HOST.log"))
