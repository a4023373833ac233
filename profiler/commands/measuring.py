"""What all measuring commands do once they know their runs: print the commands, or measure and show."""

import json
import shlex
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime

import click

from dally import __version__
from dally.commands.terminal import say
from dally.errors import InputError
from profiler.commands.options import MeasurementSettings
from profiler.driver.measure import InterruptedRunError, MeasureError, measure
from profiler.driver.publish import publish, show
from profiler.driver.store import MeasurementStore
from profiler.driver.tasks import plan_tasks
from profiler.launch.rank_commands import Launcher
from profiler.messages import format_line
from profiler.spec import MeasurementRun

INTERRUPTED = 130
"""Exit status after a signal, as shells have it for SIGINT."""


def measure_and_show(
    runs: Sequence[MeasurementRun], launcher: Launcher[MeasurementRun], settings: MeasurementSettings
) -> None:
    """Measure the runs and show the profiles, or print the commands; exits with 130 when interrupted.

    Args:
        runs: What to measure.
        launcher: Where.
        settings: What the user asked for.

    Raises:
        DallyError: The folder cannot be written or holds something else; or a run failed or got no hosts,
            or a model did not fit, after what could be measured is shown.
    """
    store = MeasurementStore(settings.out)
    if settings.dry_run:
        _print_commands(runs, launcher, store)
        return
    with interruptible(), store.locked():
        tasks = plan_tasks(runs, store, settings.resume)
        facts = {
            "command": sys.argv,
            "version": __version__,
            "utc_time": datetime.now(UTC).isoformat(timespec="seconds"),
            "settings": asdict(settings),
            "runs": [run.name for run in runs],
        }
        store.write(store.raw / "run.json", json.dumps(facts, indent=2, default=str) + "\n")
        try:
            problems = measure(tasks, launcher, store, settings.timeout_s)
        except InterruptedRunError as error:
            say(f"profile-models: {error}" + (f" ({error.hint})" if error.hint else ""), err=True)
            sys.exit(INTERRUPTED)
        try:
            show(publish(store), settings.out)
        except InputError:
            if not problems:  # else they say why there is nothing to publish
                raise
        if problems:
            left = MeasureError(f"not all was measured: {'; '.join(problems)}")
            left.hint = "the same command with --resume adds what is missing"
            raise left


def _print_commands(
    runs: Sequence[MeasurementRun], launcher: Launcher[MeasurementRun], store: MeasurementStore
) -> None:
    """Print what would be run, as lines for a shell that leave the same raw files."""
    click.echo(f"mkdir -p {shlex.quote(str(store.raw))}")
    for run in runs:
        first, *others = launcher.commands(run)
        raw = shlex.quote(str(store.complete(run.name)))
        click.echo(f"\n# {run.name}, on {', '.join(run.hosts)}")
        click.echo(f"echo {shlex.quote(format_line(run))} > {raw}")
        for command in others:
            click.echo(f"{launcher.shown(command)} &")
        click.echo(f"{launcher.shown(first)} >> {raw}")


@contextmanager
def interruptible() -> Iterator[None]:
    """Let SIGTERM and SIGHUP end a measurement as Ctrl-C does, unless they are ignored, as under nohup."""
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
    for number, handler in before.items():
        if handler is not signal.SIG_IGN:
            signal.signal(number, signal.default_int_handler)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
