"""What ranks report while they measure: JSON lines, from rank 0's standard output into the raw file of a run.

A raw file's first line is its `MeasurementRun`; then come the messages of the ranks as they were sent. A file
without `Finished` at its end is partial.
"""

import json
from dataclasses import asdict, dataclass

from dally.errors import InputError
from dally.profiles.decoding import decode
from dally.profiles.schema import Compute, Env, Model, Quality, Reduced, Telemetry, Timing
from profiler.spec import MeasurementRun


@dataclass(frozen=True, slots=True)
class Started:
    """The ranks have met and fit together; what they run on."""

    env: Env


@dataclass(frozen=True, slots=True)
class Trained:
    """One model, measured.

    Attributes:
        model: The model with its gradient buckets.
        compute: One iteration without communication; `contention_factor` is backward with communication over
            backward without, where there is more than one rank.
        iteration: Full iterations with communication.
        quality: How far to trust it.
        telemetry: Counters of GPUs while it ran; None without GPUs.
    """

    model: Model
    compute: Compute
    iteration: Timing
    quality: Quality
    telemetry: Telemetry | None = None


@dataclass(frozen=True, slots=True)
class Failed:
    """One model that could not be measured here, as it does not fit into memory; the others can."""

    model: str
    reason: str


@dataclass(frozen=True, slots=True)
class Finished:
    """All of the specification is measured."""

    wall_s: float


Message = Started | Reduced | Trained | Failed | Finished
Line = MeasurementRun | Message

_KINDS: dict[str, type[Line]] = {
    "run": MeasurementRun,
    "started": Started,
    "allreduce": Reduced,
    "trained": Trained,
    "failed": Failed,
    "finished": Finished,
}
_NAMES = {kind: name for name, kind in _KINDS.items()}


def format_line(line: Line) -> str:
    """One line of a raw file, without its end."""
    fields = asdict(line)
    if isinstance(line, MeasurementRun):
        fields["order"] = fields.pop("spec")  # as raw files of all versions call it
    return json.dumps({"kind": _NAMES[type(line)], **fields}, allow_nan=False)


def parse_line(text: str) -> Line:
    """Read what `format_line` wrote.

    Raises:
        InputError: It is no such line.
    """
    try:
        data = json.loads(text)
    except ValueError as error:
        raise InputError(f"not a JSON line: {error}") from error
    kind = data.pop("kind", None) if isinstance(data, dict) else None
    if kind not in _KINDS:
        raise InputError(f"unknown kind of line {kind!r}; valid: {', '.join(_KINDS)}")
    if kind == "run" and isinstance(data.get("order"), dict):
        data["spec"] = data.pop("order")
        data["spec"].pop("warmup", None)  # a number of repetitions, in older files
    return decode(_KINDS[kind], data)
