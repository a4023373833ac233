"""`profile-models learn`: what a recorded job sends, and by which parallel plan it trains."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import click
from rich.table import Table

from dally.cluster import load_cluster
from dally.commands.terminal import TextConsole, say
from dally.words import plural, share
from profiler.recorded.plan_recognition import RecognisedPlan, recognise
from profiler.recorded.predicted_steps import PredictedStep, predict_steps
from profiler.recorded.record import RankRecord, RecordedRun, read_run


@click.command()
@click.argument("folder", type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.option(
    "--cluster",
    help="Tell what a step would take elsewhere: cluster file, folder of Slurm's files, or a shipped one.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the figures as JSON.")
def command(folder: Path, cluster: str | None, as_json: bool) -> None:
    """Tell what a job sends, from the records that `dally-sbatch --learn=FOLDER` left in FOLDER/USER/JOB.

    Records are your own; root reads anybody's.

    Example: profile-models learn records/$USER/1234
    """
    run = read_run(folder)
    recognised = recognise(run.records)
    predicted = predict_steps(run, load_cluster(cluster)) if cluster else []
    if as_json:
        steps = [asdict(each) for each in predicted]
        click.echo(json.dumps({**_as_data(run, recognised), "predicted_steps": steps}, indent=2))
        return
    _show(run, recognised)
    if predicted:
        _show_predicted(predicted, run.records[0].world)


def _as_data(run: RecordedRun, recognised: RecognisedPlan) -> dict[str, object]:
    records = run.records
    first = records[0]
    return {
        "user": run.owner,
        "plan": str(recognised.plan),
        "run": run.folder.name,
        "notes": list(run.notes),
        "doubts": list(recognised.doubts),
        "ranks": first.world,
        "hosts": sorted({record.host for record in records}),
        "step_s": first.step_s,
        "steps": first.steps,
        "groups": [
            {
                "axis": each.axis,
                "ranks": list(each.ranks),
                "calls": each.calls,
                "sent_bytes": each.sent_bytes,
                "lasted_s": each.lasted_s,
                "hosts": _hosts(records, each.ranks),
            }
            for each in recognised.traffic
        ],
    }


def _show(run: RecordedRun, recognised: RecognisedPlan) -> None:
    records = run.records
    first, hosts = records[0], {record.host for record in records}
    say(f"User     {run.owner}")
    say(f"Plan     {recognised.plan}")
    say(f"Ranks    {first.world} on {plural(len(hosts), 'host')}")
    say(f"Step     {first.step_s:.3g} s, the median of {first.steps}")
    timed = any(each.lasted_s is not None for each in recognised.traffic)
    headings = ("axis", "ranks", "on hosts", "calls a step", "MB sent a step")
    table = Table(*headings, *(("ms a step",) if timed else ()))
    for column in table.columns[1:]:
        column.justify = "right"
    for each in recognised.traffic:
        hosts_of_group = _hosts(records, each.ranks)
        table.add_row(
            each.axis,
            str(len(each.ranks)),
            str(hosts_of_group) if hosts_of_group else "?",
            f"{each.calls:,}",
            f"{each.sent_bytes / 1e6:,.3f}",
            *([f"{1e3 * each.lasted_s:,.2f}" if each.lasted_s is not None else "?"] if timed else ()),
        )
    _print(table)
    for note in run.notes:
        say(f"Note: {note}.")
    for doubt in recognised.doubts:
        say(f"Unsure: {doubt}.")


def _show_predicted(steps: Sequence[PredictedStep], ranks: int) -> None:
    table = Table("place", "machines", "step, s", "waiting", "on the network, s", "")
    for column in table.columns[1:5]:
        column.justify = "right"
    for each in steps:
        table.add_row(
            f"one {each.level}",
            f"{each.machines}x{ranks // each.machines}",
            f"{each.step_s:.3g}",
            share(each.waiting_s / each.step_s),
            f"{each.network_s:.3g}",
            "recorded" if each.recorded else "",
        )
    _print(table)


def _print(table: Table) -> None:
    (TextConsole() if TextConsole().is_terminal else TextConsole(width=100)).print(table)


def _hosts(records: Sequence[RankRecord], ranks: tuple[int, ...]) -> int:
    """On how many hosts a group lies; 0 if a rank left no record."""
    by_rank = {record.rank: record.host for record in records}
    return len({by_rank[rank] for rank in ranks}) if all(rank in by_rank for rank in ranks) else 0
