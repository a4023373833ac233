"""Measures: launches runs one after another, and stores each finding as it comes."""

from collections.abc import Sequence
from contextlib import suppress
from typing import Protocol

from dally.errors import DallyError, InputError
from dally.profiles.schema import Env, Reduced
from profiler.drive.progress import Display, displayed
from profiler.drive.store import Store, StoreError
from profiler.drive.tasks import Task
from profiler.findings import Finding, Finished, Started, parse_line
from profiler.hosts.processes import Command, ProcessError, Running, run_together
from profiler.orders import Run
from profiler.report.raw import read_raw


class MeasureError(DallyError):
    """A run failed or was interrupted; the hint tells what was kept."""


class InterruptedRunError(MeasureError):
    """The user stopped it."""


class Launcher(Protocol):
    """A place where runs can be launched."""

    def commands(self, run: Run) -> Sequence[Command]:
        """What makes up a run; the first one's standard output has the findings."""
        ...

    def start(self, command: Command) -> Running:
        """Start one of these commands."""
        ...

    def shown(self, command: Command) -> str:
        """The line that does the same in a shell."""
        ...


def measure(tasks: Sequence[Task], launcher: Launcher, store: Store, timeout_s: float) -> None:
    """Carry out tasks one after another; whatever happens, the findings so far stay and no rank runs on.

    Args:
        tasks: What to do.
        launcher: Where.
        store: Takes the findings.
        timeout_s: Longest that one run may take.

    Raises:
        MeasureError: A run failed or was interrupted.
        StoreError: Findings cannot be written.
    """
    with displayed(sum(len(task.missing) for task in tasks)) as display:
        for task in tasks:
            try:
                _carry_out(task, launcher, _Intake(task, store, display), timeout_s)
            except KeyboardInterrupt as error:
                raise _told(InterruptedRunError(f"{task.run.name}: interrupted"), task, store) from error
            except DallyError as error:
                _keep_log(error, task, store)
                raise _told(MeasureError(f"{task.run.name}: {error}"), task, store) from error


def _carry_out(task: Task, launcher: Launcher, intake: "_Intake", timeout_s: float) -> None:
    run = task.remaining
    intake.begin()
    try:
        run_together(launcher.commands(run), launcher.start, intake.hear, timeout_s)
    except ProcessError as error:
        if not intake.finished:
            raise
        intake.say(f"all is measured, but the end was not clean: {error}")
    if not intake.finished:
        raise DallyError("all ranks ended, but rank 0 did not say that it finished")


class _Intake:
    """Takes in what rank 0 prints: findings are stored, all else is shown.

    What is kept of an earlier attempt is not stored twice.

    Attributes:
        finished: Rank 0 said that all is measured, and the raw file is complete.
    """

    def __init__(self, task: Task, store: Store, display: Display) -> None:
        self.finished = False
        self._task = task
        self._store = store
        self._display = display
        self._env = next((finding.env for finding in task.kept if isinstance(finding, Started)), None)
        self._sizes = {finding.bytes for finding in task.kept if isinstance(finding, Reduced)}

    def begin(self) -> None:
        """Store what is kept."""
        self._store.begin(self._task.whole, self._task.kept)
        self._display.begin(self._task.remaining)

    def hear(self, line: str) -> None:
        """Take in a line.

        Raises:
            DallyError: It is no finding though it looks like one, or the machine is another than before.
        """
        if not line.startswith("{"):
            self.say(line)
            return
        finding = parse_line(line)
        if isinstance(finding, Run):
            raise DallyError("a rank printed what was ordered instead of what it found")
        if not self._is_kept(finding):
            self._store.add(self._task.run.name, finding)
            self._display.found(self._task.run, finding)
        if isinstance(finding, Finished):
            self._store.finish(self._task.run.name)
            self.finished = True

    def say(self, text: str) -> None:
        """Show something that is no finding."""
        self._display.say(f"{self._task.run.name}: {text}")

    def _is_kept(self, finding: Finding) -> bool:
        if isinstance(finding, Started) and self._env:
            _require_alike_env(self._env, finding.env)
            return True
        return isinstance(finding, Reduced) and finding.bytes in self._sizes


def _require_alike_env(was: Env, now: Env) -> None:
    """What a resumed run goes on with must be what it began with."""
    for name in ("gpu_type", "torch"):
        if getattr(was, name) != getattr(now, name):
            raise InputError(
                f"began with {name} {getattr(was, name)}, cannot go on with {getattr(now, name)}"
            )


def _keep_log(error: DallyError, task: Task, store: Store) -> None:
    """Leave what the ranks last wrote for who wants to know more than the message."""
    if isinstance(error, ProcessError) and error.last_lines:
        with suppress(StoreError):
            store.write(store.log(task.run.name), "".join(f"{line}\n" for line in error.last_lines))


def _told(error: MeasureError, task: Task, store: Store) -> MeasureError:
    """An error whose hint tells what was kept."""
    path = store.partial(task.run.name)
    if path.exists():
        kept = len(read_raw(path).trained)
        error.hint = (
            f"{kept} of {len(task.whole.order.models)} models are kept in {path}; "
            "the same command with --resume continues"
        )
    return error
