"""`dally testbed drill`: break things on purpose, and see that no job is lost."""

import sys
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from dally.errors import InputError
from dally.interruption import INTERRUPTED, interruptible
from testbed.drills.catalogue import DRILLS, Drill, find_drill
from testbed.drills.drill import hold_drill
from testbed.drills.report import DrillResult, write_report

_FILE_WIDTH = 160


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
    if listed:
        for drill in DRILLS:
            click.echo(f"{drill.name:18} {drill.says}")
        return
    drills = _chosen(names)
    if out is None:
        raise click.UsageError("Missing option '--out'.")
    with interruptible() as stop:
        outcomes: list[DrillResult] = []
        for drill in drills:
            outcomes.append(hold_drill(drill, out, seed, stop))
            _say(outcomes[-1])
            write_report(out, outcomes)
            if stop():
                sys.exit(INTERRUPTED)
    _show(outcomes, out)
    if not all(outcome.passed for outcome in outcomes):
        sys.exit(1)


def _chosen(names: tuple[str, ...]) -> list[Drill]:
    found = [(name, find_drill(name)) for name in dict.fromkeys(names)]
    unknown = [name for name, drill in found if drill is None]
    if unknown:
        known = ", ".join(drill.name for drill in DRILLS)
        raise InputError(f"no drill is called {unknown[0]}; there are {known}")
    return [drill for _, drill in found if drill] or list(DRILLS)


def _say(outcome: DrillResult) -> None:
    """Tell of one drill at once: the next takes minutes."""
    click.echo(
        f"{outcome.name}: {'passed' if outcome.passed else 'FAILED'}, {outcome.wall_s:.0f} s", err=True
    )


def _show(outcomes: list[DrillResult], out: Path) -> None:
    shown = Table("drill", "", "check", "seen")
    for outcome in outcomes:
        for number, check in enumerate(outcome.checks):
            name = outcome.name if number == 0 else ""
            shown.add_row(name, "passed" if check.passed else "FAILED", check.name, check.said)
        shown.add_section()
    console = Console() if Console().is_terminal else Console(width=_FILE_WIDTH)
    console.print(shown)
    click.echo(f"report: {out / 'drills.md'}")
