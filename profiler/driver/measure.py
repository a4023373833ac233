"""Measures: launches runs one after another, and stores each finding as it comes."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from dally.commands.terminal import TextConsole
from dally.errors import DallyError, InputError
from dally.hosts.processes import ProcessError, run_together
from dally.profiles.schema import Reduced
from dally.words import plural
from profiler.driver.plan import NoRoomError
from profiler.driver.store import MeasurementStore, StoreError
from profiler.driver.tasks import MeasurementTask
from profiler.launch.rank_commands import Launcher
from profiler.messages import Failed, Finished, Message, Started, Trained, parse_line
from profiler.report.raw import read_raw
from profiler.spec import MeasurementRun


class MeasureError(DallyError):
    """A run failed or was interrupted; the hint tells what was kept."""


class InterruptedRunError(MeasureError):
    """The user stopped it."""


def measure(
    tasks: Sequence[MeasurementTask],
    launcher: Launcher[MeasurementRun],
    store: MeasurementStore,
    timeout_s: float,
) -> tuple[str, ...]:
    """Carry out tasks one after another; whatever happens, the messages so far stay and no rank runs on.

    A run that fails once its ranks have met ends alone, and the next one begins. A model that does not fit
    into memory is left out of its run; where it did not fit for one rank alone, of all later ones too.

    Args:
        tasks: What to do.
        launcher: Where.
        store: Takes the messages.
        timeout_s: Longest that one run may take.

    Returns:
        What was not measured and why, a line each; nothing if all was.

    Raises:
        MeasureError: The ranks of a run never met, or the user interrupted it.
        StoreError: Findings cannot be written.
    """
    problems: list[str] = []
    too_large: set[str] = set()
    console = TextConsole(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    # The bar counts models measured over all runs; it is shown only where a person looks at it.
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        progress.add_task("", total=sum(len(task.missing) for task in tasks))
        for task in (task.without(too_large) for task in tasks):
            name = task.run.name
            log = _RunLog(task.run, store, progress)
            try:
                if task.missing:
                    with launcher.hold(task.run, log.say) as (run, there):
                        _launch(replace(task, run=run), there, log, timeout_s)
            except NoRoomError as error:
                log.say(str(error))
                problems.append(f"{name}: {error}")
            except KeyboardInterrupt as error:
                raise _with_hint(InterruptedRunError(f"{name}: interrupted"), task, store) from error
            except DallyError as error:
                if isinstance(error, ProcessError) and error.last_lines:
                    with suppress(StoreError):  # for who wants to know more than the message
                        store.write(store.log(name), "".join(f"{line}\n" for line in error.last_lines))
                failure = _with_hint(MeasureError(f"{name}: {error}"), task, store)
                if isinstance(error, StoreError) or not log.met:
                    raise failure from error
                log.say(str(error))
                problems.append(f"{failure} ({failure.hint})")
            problems += [f"{name}: {item.model}: {item.reason}" for item in log.failed]
            if task.run.shape.gpus == 1:
                too_large |= {item.model for item in log.failed}
    return tuple(problems)


def _launch(
    task: MeasurementTask, launcher: Launcher[MeasurementRun], log: "_RunLog", timeout_s: float
) -> None:
    """Launch a run, and again without each model that turned out not to fit into memory."""
    while task.missing:
        log.begin(task)
        failed = len(log.failed)
        try:
            run_together(launcher.commands(task.remaining), launcher.start, log.receive, timeout_s)
        except ProcessError as error:
            if log.finished:
                log.say(f"all is measured, but the end was not clean: {error}")
            elif len(log.failed) == failed:
                raise
        if log.finished:
            return
        if len(log.failed) == failed:
            raise DallyError("all ranks ended, but rank 0 did not say that it finished")
        task = task.without_failed(read_raw(log.path))


class _RunLog:
    """Receives what the ranks of a run print: messages are stored and told, all else is shown.

    Lines go to standard error. What is kept of an earlier attempt is not stored twice.

    Attributes:
        met: The ranks have met.
        failed: Models that do not fit into memory.
        finished: Rank 0 said that all is measured, and the raw file is complete.
        path: Where the messages lie until the run has finished.
    """

    def __init__(self, run: MeasurementRun, store: MeasurementStore, progress: Progress) -> None:
        self.met = self.finished = False
        self.failed: list[Failed] = []
        self.path = store.partial(run.name)
        self._run, self._store, self._progress = run, store, progress
        (self._bar,) = progress.task_ids

    def begin(self, task: MeasurementTask) -> None:
        """Store what is kept, and say what is launched."""
        self._env = next((message.env for message in task.kept if isinstance(message, Started)), None)
        self._sizes = {message.bytes for message in task.kept if isinstance(message, Reduced)}
        self._store.begin(task.whole, task.kept)
        run = task.remaining
        self._progress.update(self._bar, description=run.name)
        flows = f", {run.spec.background_flows} foreign flows" if run.spec.background_flows else ""
        self.say(f"{plural(run.shape.gpus, 'rank')} on {', '.join(run.hosts)}{flows}")

    def receive(self, line: str) -> None:
        """Take in a line; all-reduces are too many to tell.

        Raises:
            DallyError: It is no message though it looks like one, or the machine is another than before.
        """
        if not line.startswith("{"):
            self.say(line)
            return
        message = parse_line(line)
        if isinstance(message, MeasurementRun):
            raise DallyError("a rank printed the run itself instead of what it measured")
        if self._is_known(message):
            return
        self._store.add(self._run.name, message)
        match message:
            case Started(env) if env.gpu_type:
                self.say(f"on {env.gpu_type}")
            case Trained(model):
                self._progress.advance(self._bar)
                flags = "".join(f"; {flag}" for flag in message.quality.flags)
                self.say(f"{model.name} {message.iteration.median_s * 1e3:.4g} ms an iteration{flags}")
            case Failed():
                self._progress.advance(self._bar)
                self.failed.append(message)
                self.say(f"{message.model} is not measured: {message.reason}")
            case Finished(wall_s):
                self.say(f"finished after {wall_s:.0f} s")
                self._store.finish(self._run.name)
                self.finished = True

    def _is_known(self, message: Message) -> bool:
        """Whether a message says what is stored already; notes that the ranks have met."""
        if isinstance(message, Started):
            for name in ("gpu_type", "device_name", "torch") if self._env else ():
                was, now = getattr(self._env, name), getattr(message.env, name)
                if was != now:
                    raise InputError(f"began with {name} {was}, cannot go on with {now}")
            self.met = True
            return self._env is not None
        if isinstance(message, Failed):  # all ranks may say so
            return message.model in {item.model for item in self.failed}
        return isinstance(message, Reduced) and message.bytes in self._sizes

    def say(self, text: str) -> None:
        """Print a line above the bar."""
        console = self._progress.console
        console.print(f"{self._run.name}: {text}", markup=False, highlight=False, soft_wrap=True)


def _with_hint(error: MeasureError, task: MeasurementTask, store: MeasurementStore) -> MeasureError:
    """An error whose hint tells what was kept."""
    path = store.partial(task.run.name)
    if path.exists():
        kept = len(read_raw(path).trained)
        error.hint = (
            f"{kept} of {plural(len(task.whole.spec.models), 'model')} kept in {path}; "
            "the same command with --resume continues"
        )
    return error
