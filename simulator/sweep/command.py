"""`dally sweep`: many simulations from one file, side by side, resumed where they were left."""

import sys
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from contextlib import AbstractContextManager
from pathlib import Path

import click

from dally.atomic_file import write_atomically
from dally.commands.terminal import say
from dally.interruption import INTERRUPTED, interruptible
from dally.words import duration, plural
from simulator.comparison import progress_bars, table_console
from simulator.sweep.groups import grouped
from simulator.sweep.identity import task_key
from simulator.sweep.plan import SweepPlan, SweepTask, read_plan
from simulator.sweep.tables import lost_lines, overview, result_rows, summary_rows, to_csv
from simulator.sweep.work import Failure, Result, Store, collect, run_task
from simulator.sweep.workers import LOCAL
from simulator.sweep.workers import workers as start_workers

RESULTS, SUMMARY = "results.csv", "summary.csv"

_EPILOG = """\b
A file (docs/sweeps.md):
  policies = ["dally", "dally:horizon=12|48", "tiresias"]
  seeds = [1, 2, 3, 4, 5]
  trace = ["dally-batch", "dally-poisson"]
  cluster = ["dally-128", "dally-256"]
  profiles = "dally"
"""


@click.command(epilog=_EPILOG)
@click.argument("file", type=click.Path(path_type=Path))
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    help="Folder of results, old ones too; without, FILE less its ending.",
)
@click.option("--policy", "policies", multiple=True, help="This policy instead of the file's; repeat it.")
@click.option("--setting", "settings", multiple=True, help="Only the setting of this name; repeat it.")
@click.option("--workers", type=click.IntRange(min=1), default=2, show_default=True, help="Runs at a time.")
@click.option(
    "--on",
    default=LOCAL,
    show_default=True,
    help="Where: local processes, dask here, slurm (jobs, by Dask), or the address of a Dask scheduler.",
)
@click.option("--dry-run", is_flag=True, help="List the runs and what is left to do, and run nothing.")
def command(
    file: Path,
    out: Path | None,
    policies: tuple[str, ...],
    settings: tuple[str, ...],
    workers: int,
    on: str,
    dry_run: bool,
) -> None:
    """Run all simulations that a TOML FILE asks for: every setting, value, seed and policy in it.

    Writes OUT/results.csv (a row a run), OUT/summary.csv (means and 95 % confidence intervals over seeds) and
    a file a run in OUT/runs. Runs whose result is there already, of the same inputs and code, are not run
    again: call it again after a kill, or with more policies or seeds. Exits with 1 if runs failed.
    """
    plan = read_plan(file, policies, settings)
    store = Store(out or file.with_suffix(""), make=not dry_run)
    if dry_run:
        for task in _to_do(plan, store):
            say(str(task))
        return
    status = carry_out(plan, store, on, workers)
    _report(plan.tasks, store)
    sys.exit(status)


def carry_out(plan: SweepPlan, store: Store, on: str, workers: int) -> int:
    """Run what has no result yet; 0, or the status to exit with: 1 if runs failed, 130 if interrupted."""
    tasks = _to_do(plan, store)
    with interruptible() as stop:
        failures = _run(tasks, start_workers(on, workers, plan.slurm), store, stop) if tasks else []
        interrupted = stop()
    for failure in failures:
        say(f"failed: {failure.task}: {failure.reason} ({failure.path})", err=True)
    return INTERRUPTED if interrupted else 1 if failures else 0


def _to_do(plan: SweepPlan, store: Store) -> list[SweepTask]:
    """The runs without a result; how many they are goes to standard error."""
    left = {task_key(task): task for task in plan.tasks if store.find(task) is None}
    for line in plan.left_out:
        say(line, err=True)
    say(f"{plural(len(plan.tasks), 'run')}, {len(left):,} to do", err=True)
    return list(left.values())


def _run(
    tasks: Sequence[SweepTask],
    workers: AbstractContextManager[Executor],
    store: Store,
    stop: Callable[[], bool],
) -> list[Failure]:
    with workers as executor:
        # Processes are forked here, before the bars have a thread.
        pending = {executor.submit(run_task, task.policy, task.inputs): task for task in tasks}
        with progress_bars() as progress:
            bar = progress.add_task("runs", total=len(tasks))

            def tell(task: SweepTask, ended: Result | Failure) -> None:
                progress.advance(bar)
                if progress.console.is_terminal:
                    return
                if isinstance(ended, Failure):
                    say(f"{task}: failed: {ended.reason}", err=True)
                else:
                    jct, cpu = duration(ended["summary"]["jct_s"]["mean"]), duration(ended["cpu_s"])
                    say(f"{task}: mean JCT {jct}, took {cpu}", err=True)

            return collect(pending, store, stop, tell)


def _report(tasks: Sequence[SweepTask], store: Store) -> None:
    """Write and show what is there so far."""
    found = store.found(tasks)
    if not found:
        say("no run has finished", err=True)
        return
    cases = grouped(found)
    write_atomically(store.folder / RESULTS, to_csv(result_rows(found), "complete"))
    write_atomically(store.folder / SUMMARY, to_csv(summary_rows(cases), "figure"))
    console = table_console()
    say(
        "means over seeds, and differences from the first policy by pairs of runs with the same jobs; "
        "both ± half a 95 % interval"
    )
    classes = list(dict.fromkeys(str(task.inputs.knows) for task, _ in found))
    apart = "; each table compares runs that knew the same" if len(classes) > 1 else ""
    say(f"running times known: {' / '.join(classes)}{apart}")
    for table in overview(cases):
        console.print(table)
    for line in lost_lines(cases):
        say(line, err=True)
    incomplete = sum(not result["complete"] for _, result in found)
    if incomplete:
        left = f"{plural(incomplete, 'run')} left jobs that could not end"
        say(f"{left}; see `complete` in {RESULTS}", err=True)
    say(f"results: {store.folder / RESULTS}, {store.folder / SUMMARY}")
