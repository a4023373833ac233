"""What is left to do of planned runs, given what an earlier attempt has stored."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path

from dally.errors import InputError
from dally.profiles.schema import Reduced
from profiler.driver.store import MeasurementStore
from profiler.messages import Message, Started, Trained
from profiler.report.raw import RawRun
from profiler.spec import MeasurementRun, MeasurementSpec

_MAY_CHANGE = ("models", "join_timeout_s", "stall_s", "allow_busy")
"""What of a specification may be another when a run is resumed."""


@dataclass(frozen=True, slots=True)
class MeasurementTask:
    """A run to do, and what an earlier attempt left of it.

    Attributes:
        run: As planned.
        missing: Models still to measure.
        kept: Findings on the others.
    """

    run: MeasurementRun
    missing: tuple[str, ...]
    kept: tuple[Message, ...] = ()

    @property
    def whole(self) -> MeasurementRun:
        """The run with all models that its raw file will hold."""
        measured = (message.model.name for message in self.kept if isinstance(message, Trained))
        models = tuple(dict.fromkeys((*measured, *self.run.spec.models)))
        return replace(self.run, spec=replace(self.run.spec, models=models))

    @property
    def remaining(self) -> MeasurementRun:
        """The run with the models and sizes that are still to measure."""
        known = {message.bytes for message in self.kept if isinstance(message, Reduced)}
        sizes = tuple(size for size in self.run.spec.sweep_bytes if size not in known)
        return replace(self.run, spec=replace(self.run.spec, models=self.missing, sweep_bytes=sizes))

    def without(self, models: Collection[str]) -> "MeasurementTask":
        """The task without measuring these models."""
        return replace(self, missing=tuple(model for model in self.missing if model not in models))

    def without_failed(self, raw: RawRun) -> "MeasurementTask":
        """What is left after an attempt that ended as models did not fit into memory.

        Args:
            raw: What this attempt and those before have found.
        """
        done = {item.model.name for item in raw.trained}
        started = (Started(raw.env),) if raw.env else ()
        kept = (*started, *raw.reduced, *raw.trained, *raw.failed)
        return replace(self, kept=kept).without(done | {item.model for item in raw.failed})


def plan_tasks(
    runs: Sequence[MeasurementRun], store: MeasurementStore, resume: bool
) -> tuple[MeasurementTask, ...]:
    """What is left to do of runs, given what is stored already.

    Raises:
        InputError: Something is stored, and this is not to go on from it or has another specification.
    """
    tasks = []
    for run in runs:
        stored = store.find(run.name)
        if stored is None:
            tasks.append(MeasurementTask(run, run.spec.models))
            continue
        path, raw = stored
        if not resume:
            raise InputError(f"{path} exists; go on from it with --resume, or name another --out")
        _require_alike(run, raw.run, path)
        names = {item.model.name for item in raw.trained}
        missing = tuple(model for model in run.spec.models if model not in names)
        if not missing and not raw.finished:
            missing = run.spec.models[-1:]  # what was to come after the last model is not there
        started = (Started(raw.env),) if raw.env else ()
        done = (item for item in raw.trained if item.model.name not in missing)
        if missing:
            tasks.append(MeasurementTask(run, missing, (*started, *raw.reduced, *done)))
    return tuple(tasks)


def _require_alike(run: MeasurementRun, stored: MeasurementRun, path: Path) -> None:
    """Models and hosts may be others when a run is resumed, nothing else."""
    pairs = [("tier", stored.tier, run.tier), ("shape", stored.shape, run.shape)]
    pairs += [("link", stored.link, run.link)]
    pairs += [
        (field.name, getattr(stored.spec, field.name), getattr(run.spec, field.name))
        for field in fields(MeasurementSpec)
        if field.name not in _MAY_CHANGE
    ]
    for name, was, now in pairs:
        if was != now:
            raise InputError(f"{path} was measured with {name} {was}, not {now}; name another --out")
