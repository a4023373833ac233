"""What a person sees of runs: a bar or lines while they go on, a table of the policies at the end."""

import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import click
from rich.progress import TaskID

from dally.commands.terminal import say
from dally.runs.summary import quantile
from dally.words import plural, share
from simulator.comparison import as_data, progress_bars, table, table_console
from simulator.scenario import Run
from testbed.running.driver import RunProgress
from testbed.running.json_lines import read_lines
from testbed.running.samples import MACHINE

COMPARISON = "comparison.json"
_LINE_EVERY_S = 15.0


@contextmanager
def displayed() -> Iterator[Callable[[str, RunProgress], None]]:
    """What shows how far a run is, on standard error: a bar on a terminal, else a line now and then."""
    tasks: dict[str, TaskID] = {}
    shown: dict[str, tuple[float, RunProgress]] = {}
    with progress_bars() as progress:

        def show(policy: str, run: RunProgress) -> None:
            if progress.disable:
                shown_s, before = shown.get(policy, (float("-inf"), None))
                if run != before and time.monotonic() - shown_s >= _LINE_EVERY_S:
                    shown[policy] = time.monotonic(), run
                    submitted = f"{policy}: {run.submitted} of {plural(run.jobs, 'job')} submitted"
                    say(f"{submitted}, {run.running} running, {run.ended} ended", err=True)
                return
            if policy not in tasks:
                tasks[policy] = progress.add_task(policy, total=run.jobs)
            words = f"{policy}: {run.submitted} submitted, {run.running} running"
            progress.update(tasks[policy], completed=run.ended, description=words)

        yield show


def show_runs(runs: Sequence[Run], levels: Sequence[str], out: Path, as_json: bool) -> None:
    """Print the policies side by side, from at least one run, and what they are to be judged by.

    The comparison is also written as comparison.json into the folder of the runs' folders.
    """
    text = json.dumps(as_data(runs), indent=2)
    (out / COMPARISON).write_text(text + "\n", encoding="utf-8")
    if as_json:
        click.echo(text)
        return
    console = table_console()
    say("mean over jobs where nothing else is said; differences are from the first policy")
    console.print(table(runs, levels, console.width, runs[0].summary.jobs))
    for run in runs:
        if (busy := busy_p95(out / run.folder)) is not None:
            say(f"{run.spec}: CPUs of the head node busy {share(busy)} at the 95th percentile")
        if failed := run.summary.jobs - run.summary.completed:
            say(f"{run.spec}: {failed} of {plural(run.summary.jobs, 'job')} did not complete", err=True)
        if not run.complete:
            say(f"{run.spec} is incomplete: {run.note}", err=True)
    say(f"runs: {out}/")


def busy_p95(folder: Path) -> float | None:
    """95th percentile of the share of the head node's CPUs that was busy; None if it was not sampled."""
    shares = sorted(line["cpu_busy"] for line in read_lines(folder / MACHINE) if "cpu_busy" in line)
    return quantile(shares, 0.95) if shares else None
