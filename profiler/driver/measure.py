"""Measures: launches runs one after another, and stores each finding as it comes."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from dally.errors import DallyError, InputError
from dally.hosts.processes import Command, ProcessError, Running, run_together
from dally.profiles.schema import Env, Reduced
from profiler.driver.plan import NoRoomError
from profiler.driver.progress import MeasurementDisplay, displayed
from profiler.driver.store import MeasurementStore, StoreError
from profiler.driver.tasks import MeasurementTask
from profiler.messages import Failed, Finished, Message, Started, parse_line
from profiler.report.raw import read_raw
from profiler.spec import MeasurementRun


class MeasureError(DallyError):
    """A run failed or was interrupted; the hint tells what was kept."""


class InterruptedRunError(MeasureError):
    """The user stopped it."""


class Launcher(Protocol):
    """A place where runs can be launched."""

    def commands(self, run: MeasurementRun) -> Sequence[Command]:
        """What makes up a run; the first one's standard output has the findings."""
        ...

    def start(self, command: Command) -> Running:
        """Start one of these commands."""
        ...

    def shown(self, command: Command) -> str:
        """The line that does the same in a shell."""
        ...


Hold = Callable[
    [MeasurementRun, Callable[[str], None]], AbstractContextManager[tuple[MeasurementRun, Launcher]]
]
"""Gets the hosts of a run and holds them while it runs, and tells what it waits for.

It gives the run on the hosts that it got, and what launches it there; NoRoomError if it gets none.
"""


def measure(
    tasks: Sequence[MeasurementTask],
    launcher: Launcher,
    store: MeasurementStore,
    timeout_s: float,
    hold: Hold | None = None,
) -> tuple[str, ...]:
    """Carry out tasks one after another; whatever happens, the findings so far stay and no rank runs on.

    A run that fails once its ranks have met ends alone, and the next one begins. A model that does not fit
    into memory is left out of its run; where it did not fit for one rank alone, of all later ones too.

    Args:
        tasks: What to do.
        launcher: Where.
        store: Takes the findings.
        timeout_s: Longest that one run may take.
        hold: Gets the hosts of a run; None where they are there.

    Returns:
        What was not measured and why, a line each; nothing if all was.

    Raises:
        MeasureError: The ranks of a run never met, or the user interrupted it.
        StoreError: Findings cannot be written.
    """
    problems: list[str] = []
    too_large: set[str] = set()
    hold = hold or (lambda run, _: nullcontext((run, launcher)))
    with displayed(sum(len(task.missing) for task in tasks)) as display:
        for task in (task.without(too_large) for task in tasks):
            intake = _Intake(task, store, display)
            try:
                _carry_out(task, hold, intake, display, timeout_s)
            except NoRoomError as error:
                display.say(f"{task.run.name}: {error}")
                problems.append(f"{task.run.name}: {error}")
            except KeyboardInterrupt as error:
                raise _told(InterruptedRunError(f"{task.run.name}: interrupted"), task, store) from error
            except DallyError as error:
                _keep_log(error, task, store)
                told = _told(MeasureError(f"{task.run.name}: {error}"), task, store)
                if isinstance(error, StoreError) or not intake.met:
                    raise told from error
                display.say(str(told))
                problems.append(f"{told} ({told.hint})")
            problems += [f"{task.run.name}: {item.model}: {item.reason}" for item in intake.failed]
            if task.run.shape.gpus == 1:
                too_large |= {item.model for item in intake.failed}
    return tuple(problems)


def _carry_out(
    task: MeasurementTask, hold: Hold, intake: "_Intake", display: MeasurementDisplay, timeout_s: float
) -> None:
    """Get the hosts of a run and launch it there; if models are left to measure."""
    if not task.missing:
        return
    with hold(task.run, lambda text: display.say(f"{task.run.name}: {text}")) as (run, launcher):
        _launch(replace(task, run=run), launcher, intake, timeout_s)


def _launch(task: MeasurementTask, launcher: Launcher, intake: "_Intake", timeout_s: float) -> None:
    """Launch a run, and again without each model that turned out not to fit into memory."""
    while task.missing:
        intake.begin(task)
        failed = len(intake.failed)
        try:
            run_together(launcher.commands(task.remaining), launcher.start, intake.hear, timeout_s)
        except ProcessError as error:
            if intake.finished:
                intake.say(f"all is measured, but the end was not clean: {error}")
            elif len(intake.failed) == failed:
                raise
        if intake.finished:
            return
        if len(intake.failed) == failed:
            raise DallyError("all ranks ended, but rank 0 did not say that it finished")
        task = task.going_on(read_raw(intake.path))


class _Intake:
    """Takes in what ranks print: findings are stored, all else is shown.

    What is kept of an earlier attempt is not stored twice.

    Attributes:
        met: The ranks have met.
        failed: Models that do not fit into memory.
        finished: Rank 0 said that all is measured, and the raw file is complete.
    """

    def __init__(self, task: MeasurementTask, store: MeasurementStore, display: MeasurementDisplay) -> None:
        self.met = self.finished = False
        self.failed: list[Failed] = []
        self._run = task.run
        self._store = store
        self._display = display

    @property
    def path(self) -> Path:
        """Where the findings lie until the run has finished."""
        return self._store.partial(self._run.name)

    def begin(self, task: MeasurementTask) -> None:
        """Store what is kept."""
        self._env = next((message.env for message in task.kept if isinstance(message, Started)), None)
        self._sizes = {message.bytes for message in task.kept if isinstance(message, Reduced)}
        self._store.begin(task.whole, task.kept)
        self._display.begin(task.remaining)

    def hear(self, line: str) -> None:
        """Take in a line.

        Raises:
            DallyError: It is no finding though it looks like one, or the machine is another than before.
        """
        if not line.startswith("{"):
            self.say(line)
            return
        message = parse_line(line)
        if isinstance(message, MeasurementRun):
            raise DallyError("a rank printed what was ordered instead of what it found")
        if not self._is_kept(message):
            self._store.add(self._run.name, message)
            self._display.found(self._run, message)
        if isinstance(message, Started):
            self.met = True
        elif isinstance(message, Failed) and message.model not in {item.model for item in self.failed}:
            self.failed.append(message)
        elif isinstance(message, Finished):
            self._store.finish(self._run.name)
            self.finished = True

    def say(self, text: str) -> None:
        """Show something that is no finding."""
        self._display.say(f"{self._run.name}: {text}")

    def _is_kept(self, message: Message) -> bool:
        if isinstance(message, Started) and self._env:
            _require_alike_env(self._env, message.env)
            return True
        if isinstance(message, Failed):
            return message.model in {item.model for item in self.failed}
        return isinstance(message, Reduced) and message.bytes in self._sizes


def _require_alike_env(was: Env, now: Env) -> None:
    """What a resumed run goes on with must be what it began with."""
    for name in ("gpu_type", "device_name", "torch"):
        if getattr(was, name) != getattr(now, name):
            raise InputError(
                f"began with {name} {getattr(was, name)}, cannot go on with {getattr(now, name)}"
            )


def _keep_log(error: DallyError, task: MeasurementTask, store: MeasurementStore) -> None:
    """Leave what the ranks last wrote for who wants to know more than the message."""
    if isinstance(error, ProcessError) and error.last_lines:
        with suppress(StoreError):
            store.write(store.log(task.run.name), "".join(f"{line}\n" for line in error.last_lines))


def _told(error: MeasureError, task: MeasurementTask, store: MeasurementStore) -> MeasureError:
    """An error whose hint tells what was kept."""
    path = store.partial(task.run.name)
    if path.exists():
        kept = len(read_raw(path).trained)
        error.hint = (
            f"{kept} of {len(task.whole.spec.models)} models are kept in {path}; "
            "the same command with --resume continues"
        )
    return error
