"""`dally testbed drill`: break things on purpose, and see that no job is lost."""

import sys
from pathlib import Path

import click
from rich.table import Table

from dally.errors import InputError
from dally.interruption import INTERRUPTED, interruptible
from simulator.comparison import table_console
from testbed.drills.catalogue import DRILLS
from testbed.drills.drill import hold_drill
from testbed.drills.report import DrillResult, verdict, write_report


@click.command(
    epilog="""\b
Examples:
  dally testbed drill --list
  dally testbed drill controller-kill disk-full --out drills/today"""
)
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option("--out", type=click.Path(path_type=Path), help="Folder of the report and the run folders.")
@click.option("--seed", type=int, default=0, show_default=True, help="Of what is left to chance.")
@click.option("--list", "listed", is_flag=True, help="Tell what there is, and do nothing.")
def command(names: tuple[str, ...], out: Path | None, seed: int, listed: bool) -> None:
    """Break something while real jobs run, and see that no job is lost, NAME by NAME; all without a NAME.

    Each drill brings a small cluster of its own up on this machine, and takes one to two minutes. Exits with
    0 if all passed, else with 1. Needs root, Slurm's and munge's packages.
    """
    by_name = {drill.name: drill for drill in DRILLS}
    if listed:
        for drill in DRILLS:
            click.echo(f"{drill.name:18} {drill.says}")
        return
    if unknown := [name for name in names if name not in by_name]:
        raise InputError(f"no drill is called {unknown[0]}; there are {', '.join(by_name)}")
    if out is None:
        raise click.UsageError("Missing option '--out'.")
    with interruptible() as stop:
        results: list[DrillResult] = []
        for name in dict.fromkeys(names or by_name):
            result = hold_drill(by_name[name], out, seed, stop)
            results.append(result)
            click.echo(f"{name}: {verdict(result.passed)}, {result.wall_s:.0f} s", err=True)
            write_report(out, results)
            if stop():
                sys.exit(INTERRUPTED)
    shown = Table("drill", "", "check", "seen")
    for result in results:
        for number, check in enumerate(result.checks):
            name = result.name if number == 0 else ""
            shown.add_row(name, verdict(check.passed), check.name, check.said)
        shown.add_section()
    table_console().print(shown)
    click.echo(f"report: {out / 'drills.md'}")
    if not all(result.passed for result in results):
        sys.exit(1)
