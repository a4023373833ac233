"""What a person sees while runs go on: a line for every finding, and on a terminal a bar below them."""

from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from profiler.messages import Failed, Finished, Message, Started, Trained
from profiler.spec import MeasurementRun


class MeasurementDisplay:
    """Lines on standard error; the bar counts models measured over all runs."""

    def __init__(self, progress: Progress, task: TaskID) -> None:
        self._progress = progress
        self._task = task

    def say(self, text: str) -> None:
        """Print a line above the bar."""
        self._progress.console.print(text, markup=False, highlight=False, soft_wrap=True)

    def begin(self, run: MeasurementRun) -> None:
        """A run is launched."""
        self._progress.update(self._task, description=run.name)
        ranks = "1 rank" if run.shape.gpus == 1 else f"{run.shape.gpus} ranks"
        flows = f", {run.spec.background_flows} foreign flows" if run.spec.background_flows else ""
        self.say(f"{run.name}: {ranks} on {', '.join(run.hosts)}{flows}")

    def found(self, run: MeasurementRun, message: Message) -> None:
        """A rank reported; all-reduces are too many to tell."""
        if isinstance(message, Trained):
            self._progress.advance(self._task)
            text = f"{message.model.name} {_milliseconds(message.iteration.median_s)} an iteration"
            flags = "".join(f"; {flag}" for flag in message.quality.flags)
            self.say(f"{run.name}: {text}{flags}")
        elif isinstance(message, Failed):
            self._progress.advance(self._task)
            self.say(f"{run.name}: {message.model} is not measured: {message.reason}")
        elif isinstance(message, Started) and message.env.gpu_type:
            self.say(f"{run.name}: on {message.env.gpu_type}")
        elif isinstance(message, Finished):
            self.say(f"{run.name}: finished after {message.wall_s:.0f} s")


@contextmanager
def displayed(models: int) -> Iterator[MeasurementDisplay]:
    """A display for so many models over all runs; the bar only where a person looks at it."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        yield MeasurementDisplay(progress, progress.add_task("", total=models))


def _milliseconds(seconds: float) -> str:
    return f"{seconds * 1e3:.4g} ms"
