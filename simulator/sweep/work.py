"""Runs a sweep: tasks go to workers, each finished result to disk at once; failures are listed at the end."""

import json
import time
import traceback
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Future, wait
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from dally import __version__
from dally.atomic_file import write_atomically
from dally.errors import DallyError, InputError
from dally.policies.registry import parse_policy
from simulator.inputs import Inputs, load_scenario
from simulator.scenario import folder_name, simulate
from simulator.sweep.identity import task_key
from simulator.sweep.plan import SweepTask

_POLL_S = 0.2
Result = Mapping[str, Any]
"""What a task came to: whether it is complete, a note, CPU seconds, its summary, lost jobs and blocks."""

_scenario = lru_cache(maxsize=1)(load_scenario)
"""The policies of one setting and seed follow each other, so one is kept."""


def run_task(policy: str, inputs: Inputs) -> Result:
    """Simulate one task, in any process; nothing is written there."""
    began_s = time.process_time()
    run = simulate(_scenario(inputs), parse_policy(policy), folder=None)
    return {
        "complete": run.complete,
        "note": run.note,
        "cpu_s": round(time.process_time() - began_s, 3),
        "summary": asdict(run.summary),
        "lost": sorted(run.figures.lost),
        "blocks": [{"jct_mean_s": mean_s} for mean_s in run.blocks_s],
    }


class Store:
    """The folder of a sweep: a file for each result, and the error of each task that failed."""

    def __init__(self, folder: Path, make: bool) -> None:
        self.folder = folder
        self._runs = folder / "runs"
        try:
            if make:
                self._runs.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(f"cannot write --out {folder}: {error.strerror}") from error

    def _path(self, task: SweepTask, suffix: str) -> Path:
        name = f"{folder_name(task.policy)[:80]}.seed{task.inputs.seed}.{task_key(task)}{suffix}"
        return self._runs / name

    def find(self, task: SweepTask) -> Result | None:
        """The result of a task if it is there."""
        path = self._path(task, ".json")
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        except ValueError as error:
            raise InputError(f"{path}: damaged, remove it: {error}") from error
        assert isinstance(found, dict)
        return found

    def found(self, tasks: Iterable[SweepTask]) -> list[tuple[SweepTask, Result]]:
        """The tasks whose results are there, with them."""
        return [(task, result) for task in tasks if (result := self.find(task)) is not None]

    def keep(self, task: SweepTask, result: Result) -> None:
        """Put a result on disk; whole or not at all."""
        said = {"version": __version__, **task.columns, "seed": task.inputs.seed}
        text = json.dumps({"task": said, **result}, indent=2, default=str)
        write_atomically(self._path(task, ".json"), text + "\n")
        self._path(task, ".error.txt").unlink(missing_ok=True)

    def fail(self, task: SweepTask, error: BaseException) -> Path:
        """Write why a task failed to a file, and return that."""
        path = self._path(task, ".error.txt")
        write_atomically(path, "".join(traceback.format_exception(error)))
        return path


@dataclass(frozen=True, slots=True)
class Failure:
    """A task that raised an error: what it said, and the file with where it came from."""

    task: SweepTask
    reason: str
    path: Path


def collect(
    pending: dict[Future[Result], SweepTask],
    store: Store,
    stop: Callable[[], bool],
    tell: Callable[[SweepTask, Result | Failure], None],
) -> list[Failure]:
    """Keep the results of tasks as they come; those that fail do not hold up the others.

    Args:
        pending: What was submitted, each with its task.
        store: Keeps each result as soon as it is there.
        stop: True ends the sweep; what has not finished by then is dropped.
        tell: Told of each task that ended.

    Raises:
        DallyError: A worker died, so that nothing more can run.
    """
    failures: list[Failure] = []
    while pending and not stop():
        for future in wait(pending, _POLL_S, FIRST_COMPLETED).done:
            task = pending.pop(future)
            error = future.exception()
            if error is None:
                store.keep(task, future.result())
                tell(task, future.result())
                continue
            if isinstance(error, BrokenExecutor):
                raise DallyError(
                    "a worker was killed, perhaps because memory ran out; "
                    f"what finished is kept ({task} did not)"
                ) from error
            reason = str(error) if isinstance(error, DallyError) else f"{type(error).__name__}: {error}"
            failures.append(Failure(task, reason, store.fail(task, error)))
            tell(task, failures[-1])
    return failures
