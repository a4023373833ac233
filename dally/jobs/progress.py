"""What jobs report of their trainings, and what follows from it: how far they are, how fast on which GPUs."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from dally.errors import InputError

MOST_BYTES = 16_384
"""The longest report, bytes."""

KEPT_S = 600.0
"""Seconds of training on which a throughput rests at most: what was long ago counts less."""

MOST_THROUGHPUTS = 16
_LEAST, _MOST = 1e-9, 1e18
"""Numbers nearer to 0, or larger, are of no training, and could not be divided by each other."""


@dataclass(frozen=True, slots=True)
class ProgressReport:
    """What a job says of its training; 0 for what it does not say.

    Attributes:
        t: When, seconds since 1970.
        samples: Trained on since its beginning.
        total: After how many it is done.
        batch: Samples of a step, all ranks together.
        epoch: Samples of one pass over its data.
        most_batch: The largest batch with which it reaches its target.
        loss: The last; None if not said.
        noise: Gradient noise scale, samples.
        step_s: Of a step, the median of the last ones, seconds. A report may say this and no samples.
    """

    t: float
    samples: float
    total: float = 0.0
    batch: float = 0.0
    epoch: float = 0.0
    most_batch: float = 0.0
    loss: float | None = None
    noise: float = 0.0
    step_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Throughput:
    """How fast it went on some GPUs.

    Attributes:
        gpu_types: Their types, joined by `+`.
        gpus: How many.
        batch: Samples of a step; 0 if it does not say.
        samples: Done there, of late.
        seconds: That they took.
    """

    gpu_types: str
    gpus: int
    batch: float
    samples: float
    seconds: float

    @property
    def rate(self) -> float:
        """Samples a second."""
        return self.samples / self.seconds

    def with_more(self, samples: float, seconds: float) -> "Throughput":
        """The throughput after some more training."""
        samples, seconds = self.samples + samples, self.seconds + seconds
        part = min(1.0, KEPT_S / seconds)
        return replace(self, samples=samples * part, seconds=seconds * part)


@dataclass(frozen=True, slots=True)
class ReportedProgress:
    """What a job has reported so far.

    Attributes:
        last: Its last report.
        heard_s: When that was heard, on the scheduler's clock.
        since_s: Start of the run interval in which it was.
        throughputs: By GPUs and batch; the last is the present one, if it ran long enough to have one.
        rate: Samples in an ideal second; 0 until that is known.
        batch: On the GPUs that it asked for; 0 if it does not say.
    """

    last: ProgressReport
    heard_s: float
    since_s: float
    throughputs: tuple[Throughput, ...] = ()
    rate: float = 0.0
    batch: float = 0.0

    @property
    def work_s(self) -> float | None:
        """Ideal seconds of work done; None until that is known."""
        return self.last.samples / self.rate if self.rate else None

    @property
    def whole_s(self) -> float | None:
        """Ideal seconds of its whole work; None if it does not say how much that is."""
        return self.last.total / self.rate if self.rate and self.last.total else None

    def throughput(self, gpu_types: str, gpus: int) -> Throughput | None:
        """The last throughput on so many such GPUs; None if it has none there."""
        found = (
            each for each in reversed(self.throughputs) if (each.gpu_types, each.gpus) == (gpu_types, gpus)
        )
        return next(found, None)


def with_report(
    before: ReportedProgress | None,
    report: ProgressReport,
    now: float,
    since_s: float,
    gpu_types: str,
    gpus: int,
    asked: float = 1.0,
) -> ReportedProgress:
    """Add a report to what is known of a job; the rate of samples stays as it was.

    Args:
        before: What was known; None if nothing was.
        report: The new one.
        now: When it was heard.
        since_s: Start of the run interval in which it was.
        gpu_types: Types of the GPUs that the job has there, joined by `+`.
        gpus: How many.
        asked: Times as large as there its batch would be on the GPUs that it asked for, but for its limit.
    """
    if before is None:
        grows = report.most_batch > report.batch
        batch = min(report.batch * asked, report.most_batch) if grows else report.batch
        return ReportedProgress(report, now, since_s, batch=batch)
    throughputs, last = before.throughputs, before.last
    samples, seconds = report.samples - last.samples, report.t - last.t
    if before.since_s == since_s and samples > 0 < seconds and report.batch == last.batch:
        own = (gpu_types, gpus, report.batch)
        others = [each for each in throughputs if (each.gpu_types, each.gpus, each.batch) != own]
        known = next((each for each in throughputs if each not in others), None)
        throughput = known.with_more(samples, seconds) if known else Throughput(*own, samples, seconds)
        throughputs = (*others, throughput)[-MOST_THROUGHPUTS:]
    return replace(before, last=report, heard_s=now, since_s=since_s, throughputs=throughputs)


def to_progress(data: Mapping[str, Any]) -> ReportedProgress:
    """Rebuild reported progress from plain data, as `dataclasses.asdict` gives it.

    Raises:
        KeyError, TypeError, ValueError: It is something else.
    """
    throughputs = tuple(Throughput(**each) for each in data["throughputs"])
    for throughput in throughputs:
        if not (
            isinstance(throughput.gpu_types, str)
            and throughput.gpus >= 1
            and throughput.samples > 0 < throughput.seconds
        ):
            raise ValueError(f"{throughput} is no throughput")
    return ReportedProgress(**{**data, "last": ProgressReport(**data["last"]), "throughputs": throughputs})


def parse_report(data: bytes, written_s: float, job_id: str = "") -> ProgressReport:
    """Understand the file that a job writes.

    Args:
        data: What is in it.
        written_s: When it was last changed: the time of a report that says none, seconds since 1970.
        job_id: The job's number, which must stand in it; empty: it need not.

    Raises:
        InputError: It is no report; nothing of it is told, as it may be somebody else's file.
    """
    if len(data) > MOST_BYTES:
        raise InputError(f"a report has {MOST_BYTES} bytes at most")
    try:
        said = json.loads(data)
    except (ValueError, RecursionError):
        raise InputError("it is no JSON object") from None
    if not isinstance(said, dict):
        raise InputError("it is no JSON object")
    if job_id and said.get("job") != job_id:
        raise InputError("it is of another job")
    found = {"t": written_s}
    for name in _NAMES:
        value = said.get(name)
        if value is None:
            continue
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        least = -_MOST if name == "loss" else _LEAST
        if not is_number or not (value == 0 or least <= value <= _MOST):
            raise InputError(f"{name} is no number of 0 or more")
        number = float(value)
        found["t" if name == "time" else name] = number
    if "samples" not in found and "step_s" not in found:
        raise InputError("it has no samples")
    return ProgressReport(**{"samples": 0.0, **found})


_NAMES = ("time", *(each.name for each in fields(ProgressReport) if each.name != "t"))
