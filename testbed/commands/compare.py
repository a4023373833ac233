"""`dally testbed compare`: how far the simulator's prediction of live runs was from what happened."""

import json
from pathlib import Path

import click
from rich.box import SIMPLE_HEAD
from rich.table import Table

from dally.commands.terminal import say
from simulator.comparison import table_console
from testbed.fidelity.comparison import compare
from testbed.fidelity.live_run import find_runs, read_live_run
from testbed.fidelity.report import (
    DATA,
    FIGURE,
    TEXT,
    all_data,
    as_data,
    policy_sections,
    sections,
    write_policies,
    write_report,
)
from testbed.fidelity.report_tables import ComparisonTable

_EPILOG = f"""\b
Example:
  dally testbed compare runs/live
compares all policies in runs/live, a folder that `dally testbed run` wrote. Each run's folder gets {DATA},
{TEXT}, {FIGURE} and the simulated run.
"""


@click.command(epilog=_EPILOG)
@click.argument("folders", metavar="RUN...", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "--contention/--no-contention",
    default=True,
    show_default=True,
    help="Whether jobs that share links slow each other in the simulation.",
)
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
def command(folders: tuple[Path, ...], contention: bool, as_json: bool) -> None:
    """Hold the simulator against real runs: how wrong it was, and where the error comes from.

    RUN is the folder of one live run, or one with the runs of several policies in it. Each run is simulated
    again: the same workload, cluster, profiles and policy.
    """
    found = {folder: [read_live_run(run) for run in find_runs(folder)] for folder in dict.fromkeys(folders)}
    compared = {folder: [compare(run, contention) for run in runs] for folder, runs in found.items()}
    everything = [comparison for comparisons in compared.values() for comparison in comparisons]
    undrawn = {reason for comparison in everything if (reason := write_report(comparison))}
    for folder, comparisons in compared.items():
        if folder != comparisons[0].run.folder:
            write_policies(comparisons, folder)
    single = len(everything) == 1
    if as_json:
        click.echo(json.dumps(as_data(everything[0]) if single else all_data(everything), indent=1))
    else:
        for part in sections(everything[0]) if single else policy_sections(everything):
            if isinstance(part, ComparisonTable):
                _show(part)
            else:
                for line in part.splitlines():
                    say(line)
        written = ", ".join(str(comparison.run.folder / TEXT) for comparison in everything)
        say(f"written: {written}; {DATA}, {FIGURE} and the simulation are beside it")
    for reason in undrawn:
        say(f"no figure: {reason}", err=True)


def _show(table: ComparisonTable) -> None:
    shown = Table(title=table.title, title_justify="left", caption=table.note, caption_justify="left")
    shown.box, shown.pad_edge = SIMPLE_HEAD, False
    for number, heading in enumerate(table.header):
        shown.add_column(heading, justify="left" if number < table.texts else "right", overflow="fold")
    for row in table.rows:
        shown.add_row(*row)
    table_console().print(shown)
