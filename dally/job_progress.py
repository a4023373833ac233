"""What jobs report of their trainings, and what follows from it: how far they are, how fast on each size."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from math import fsum, isfinite
from typing import Any

from dally.errors import InputError
from dally.profiles.schema import Learning

MOST_BYTES = 16_384
"""A report is no longer."""

KEPT_S = 600.0
"""Seconds of training on which a pace rests at most: what was long ago counts less."""

MOST_PACES = 16
_MOST = 1e18
_DIGITS = 3


@dataclass(frozen=True, slots=True)
class Report:
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
    """

    t: float
    samples: float
    total: float = 0.0
    batch: float = 0.0
    epoch: float = 0.0
    most_batch: float = 0.0
    loss: float | None = None
    noise: float = 0.0


@dataclass(frozen=True, slots=True)
class Pace:
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

    def with_more(self, samples: float, seconds: float) -> "Pace":
        """After some more training."""
        samples, seconds = self.samples + samples, self.seconds + seconds
        part = min(1.0, KEPT_S / seconds)
        return replace(self, samples=samples * part, seconds=seconds * part)


@dataclass(frozen=True, slots=True)
class Progress:
    """What a job has reported so far.

    Attributes:
        last: Its last report.
        heard_s: When that was heard, on the scheduler's clock.
        since_s: Start of the stretch of running in which it was.
        paces: By GPUs and batch; the last is the present one, if it ran long enough to have one.
        rate: Samples in an ideal second; 0 until that is known.
        batch: On the GPUs that it asked for; 0 if it does not say.
    """

    last: Report
    heard_s: float
    since_s: float
    paces: tuple[Pace, ...] = ()
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

    def pace(self, gpu_types: str, gpus: int) -> Pace | None:
        """The last pace on so many such GPUs; None if it has none there."""
        found = (each for each in reversed(self.paces) if (each.gpu_types, each.gpus) == (gpu_types, gpus))
        return next(found, None)


def heard(
    before: Progress | None,
    report: Report,
    now: float,
    since_s: float,
    gpu_types: str,
    gpus: int,
    asked: float = 1.0,
) -> Progress:
    """What is known with one more report; the rate is still that of before.

    Args:
        before: What was known; None if nothing was.
        report: The new one.
        now: When it was heard.
        since_s: Start of the stretch of running in which it was.
        gpu_types: Types of the GPUs that the job has there, joined by `+`.
        gpus: How many.
        asked: Times as large as there its batch would be on the GPUs that it asked for, but for its limit.
    """
    if before is None:
        grows = report.most_batch > report.batch
        batch = min(report.batch * asked, report.most_batch) if grows else report.batch
        return Progress(report, now, since_s, batch=batch)
    paces, last = before.paces, before.last
    samples, seconds = report.samples - last.samples, report.t - last.t
    if before.since_s == since_s and samples > 0 < seconds and report.batch == last.batch:
        own = (gpu_types, gpus, report.batch)
        others = [each for each in paces if (each.gpu_types, each.gpus, each.batch) != own]
        known = next((each for each in paces if each not in others), None)
        pace = known.with_more(samples, seconds) if known else Pace(*own, samples, seconds)
        paces = (*others, pace)[-MOST_PACES:]
    return replace(before, last=report, heard_s=now, since_s=since_s, paces=paces)


def to_progress(data: Mapping[str, Any]) -> Progress:
    """Take it back out of plain data, as `dataclasses.asdict` gives it.

    Raises:
        KeyError, TypeError, ValueError: It is something else.
    """
    paces = tuple(Pace(**each) for each in data["paces"])
    for pace in paces:
        if not (isinstance(pace.gpu_types, str) and pace.gpus >= 1 and pace.samples > 0 < pace.seconds):
            raise ValueError(f"{pace} is no pace")
    return Progress(**{**data, "last": Report(**data["last"]), "paces": paces})


def parse_report(data: bytes, written_s: float) -> Report:
    """Understand the file that a job writes.

    Args:
        data: What is in it.
        written_s: When it was last changed: the time of a report that says none, seconds since 1970.

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
    found = {"t": written_s} | {
        name: _number(name, said[name]) for name in _NAMES if said.get(name) is not None
    }
    found["t"] = found.pop("time", found["t"])
    if "samples" not in found:
        raise InputError("it has no samples")
    return Report(**found)


def _number(name: str, value: object) -> float:
    number = float(value) if isinstance(value, int | float) and not isinstance(value, bool) else -1.0
    if not isfinite(number) or abs(number) > _MOST or (number < 0 and name != "loss"):
        raise InputError(f"{name} is no number of 0 or more")
    return number


_NAMES = ("time", *(each.name for each in fields(Report) if each.name != "t"))


@dataclass(frozen=True, slots=True)
class Curve:
    """Seconds of a step on GPUs of a kind: `per_sample_s` for each sample of one GPU, and `per_step_s`."""

    gpu_types: str
    per_sample_s: float
    per_step_s: float

    def step_s(self, gpus: int, batch: float) -> float:
        """Of a batch on so many GPUs."""
        return self.per_sample_s * batch / gpus + self.per_step_s


@dataclass(frozen=True, slots=True)
class Told:
    """What a job's reports say of its speed and of what batches are worth to it.

    All numbers have three digits, so that it is the same as long as hardly anything changes.

    Attributes:
        curves: By kind of GPUs; empty as long as nothing was measured.
        batch: On the GPUs that it asked for; 1 if it does not say, and then it stays.
        learning: How its training gets on with other batches; None if it does not say, or has only one.
    """

    curves: tuple[Curve, ...]
    batch: float
    learning: Learning | None

    def step_s(self, gpu_types: Sequence[str], gpus: int, batch: float) -> float:
        """Seconds of a step; on kinds of GPUs that it never had, as long as on those that it had."""
        name = "+".join(gpu_types)
        exact = [curve for curve in self.curves if curve.gpu_types == name]
        parts = [curve for curve in self.curves if curve.gpu_types in gpu_types]
        if exact or len(parts) == len(gpu_types):
            return max(curve.step_s(gpus, batch) for curve in exact or parts)
        return fsum(curve.step_s(gpus, batch) for curve in self.curves) / len(self.curves)


def told(progress: Progress) -> Told | None:
    """What can be said by so many reports; None if nothing."""
    kinds = sorted({each.gpu_types for each in progress.paces})
    curves = tuple(_curve(kind, progress.paces) for kind in kinds)
    learning = _learning(progress.last, progress.batch)
    return Told(curves, progress.batch or 1.0, learning) if curves or learning else None


def _curve(gpu_types: str, paces: Iterable[Pace]) -> Curve:
    """A line through the seconds of a step by samples of one GPU: least relative error, nothing below 0."""
    own = [each for each in paces if each.gpu_types == gpu_types]
    points = []
    for pace in own:
        batch = pace.batch or 1.0
        step_s = batch / pace.rate
        points.append((batch / pace.gpus, step_s, pace.seconds / step_s**2))
    weight = fsum(w for _, _, w in points)
    mean_x = fsum(w * x for x, _, w in points) / weight
    mean_y = fsum(w * y for _, y, w in points) / weight
    spread = fsum(w * (x - mean_x) ** 2 for x, _, w in points)
    through_0 = fsum(w * x * y for x, y, w in points) / fsum(w * x * x for x, _, w in points)
    if spread <= (1e-6 * mean_x) ** 2 * weight:
        return Curve(gpu_types, _rounded(through_0), 0.0)
    slope = fsum(w * (x - mean_x) * (y - mean_y) for x, y, w in points) / spread
    start = mean_y - slope * mean_x
    if start < 0:
        return Curve(gpu_types, _rounded(through_0), 0.0)
    if slope < 0:
        return Curve(gpu_types, 0.0, _rounded(mean_y))
    return Curve(gpu_types, _rounded(slope), _rounded(start))


def _learning(last: Report, batch: float) -> Learning | None:
    """As a model's profile would say it, with one phase: the noise as it was last."""
    most = last.most_batch
    if not (last.total and last.noise and 1 <= batch < most):
        return None
    return Learning(
        batch=int(batch),
        most_batch=int(most),
        most_local_batch=int(most),
        epochs=max(1, round(last.total / last.epoch)) if last.epoch else 1,
        samples=last.total,
        done=(1.0,),
        noise=(_rounded(last.noise),),
        metric=(0.0,),
    )


def _rounded(number: float) -> float:
    return float(f"{number:.{_DIGITS}g}")
