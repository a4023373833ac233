"""`dally testbed compare`: how far the simulator's prediction of live runs was from what happened."""

import json
from collections.abc import Sequence
from pathlib import Path

import click
from rich.box import SIMPLE_HEAD
from rich.table import Table

from simulator.comparison import table_console
from testbed.fidelity import policy_ranking, report_tables, sentences
from testbed.fidelity.comparison import Comparison, compare
from testbed.fidelity.live_run import find_runs, read_live_run
from testbed.fidelity.report import (
    DATA,
    FIGURE,
    TEXT,
    all_data,
    as_data,
    left_out,
    write_policies,
    write_report,
)
from testbed.fidelity.report_tables import ComparisonTable

_WORST = 10
"""This many jobs are described on a terminal; compare.md has all."""

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
    elif single:
        _print_one(everything[0])
    else:
        _print_several(everything)
    for reason in undrawn:
        click.echo(f"no figure: {reason}", err=True)


def _print_several(comparisons: Sequence[Comparison]) -> None:
    for comparison in comparisons:
        click.echo(sentences.headline(comparison))
    _show(policy_ranking.side_by_side(comparisons))
    for sentence in policy_ranking.ranking_sentences(comparisons):
        click.echo(sentence)
    for comparison in comparisons:
        for line in left_out(comparison):
            click.echo(f"left out of {comparison.run.policy}: {line}")
    click.echo(f"each run: {', '.join(str(item.run.folder / TEXT) for item in comparisons)}")


def _print_one(comparison: Comparison) -> None:
    click.echo(sentences.headline(comparison))
    click.echo(sentences.chance_alone(comparison))
    for part in (report_tables.aggregate, report_tables.causes, report_tables.startup_and_steps):
        _show(part(comparison))
    click.echo(sentences.model_alone(comparison))
    click.echo(sentences.main_causes(comparison))
    click.echo(sentences.decisions(comparison))
    _show(report_tables.jobs(comparison))
    click.echo("What made the worst ones longer or shorter than simulated:")
    for job in comparison.jobs[:_WORST]:
        click.echo(f"  {job.real.job_id} ({job.error:+.1%}): {sentences.cause(job)}")
    for line in left_out(comparison):
        click.echo(f"left out: {line}")
    folder = comparison.run.folder
    click.echo(f"written: {folder / TEXT}, {DATA}, {FIGURE}; the simulation: {folder / 'simulated'}")


def _show(table: ComparisonTable) -> None:
    shown = Table(title=table.title, title_justify="left", caption=table.note, caption_justify="left")
    shown.box, shown.pad_edge = SIMPLE_HEAD, False
    for number, heading in enumerate(table.header):
        shown.add_column(heading, justify="left" if number < table.texts else "right", overflow="fold")
    for row in table.rows:
        shown.add_row(*row)
    table_console().print(shown)
