"""How fast jobs without a profile are, by what they report: on sizes and batches they had, and on others."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import fsum

from dally.jobs.job import Job
from dally.jobs.progress import ProgressReport, ReportedProgress, Throughput
from dally.profiles.goodput import Batching, batches, efficiency, mean_efficiency
from dally.profiles.schema import Learning

_DIGITS = 3


@dataclass(frozen=True, slots=True)
class Curve:
    """Seconds of a step on GPUs of a kind: `per_sample_s` for each sample of one GPU, and `per_step_s`."""

    gpu_types: str
    per_sample_s: float
    per_step_s: float

    def step_s(self, gpus: int, batch: float) -> float:
        """Seconds of a step with a batch on so many GPUs."""
        return self.per_sample_s * batch / gpus + self.per_step_s


@dataclass(frozen=True, slots=True)
class ReportedSpeeds:
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

    def slowdown(self, job: Job, accepted: Sequence[str], gpu_types: Sequence[str], gpus: int) -> float:
        """How many times longer the job takes on some GPUs than on those that it asked for, batch unchanged.

        Args:
            job: The job.
            accepted: The types that it may have; the fastest counts.
            gpu_types: The types that it has.
            gpus: How many.
        """
        return self.step_s(gpu_types, gpus, self.batch) / self._best_s(job, accepted)

    def learning_slowdown(
        self,
        job: Job,
        accepted: Sequence[str],
        gpu_types: Sequence[str],
        gpus: int,
        learning: Learning,
        batching: Batching,
    ) -> float:
        """The same with the best of the batches that it may have there; more samples are worth less each."""
        worth = self.batch * mean_efficiency(learning, self.batch)
        return min(
            self.step_s(gpu_types, gpus, batch) * worth / batch / efficiency(learning, batch, 0)
            for batch in batches(learning, batching, self.batch, job.gpus, gpus)
        ) / self._best_s(job, accepted)

    def _best_s(self, job: Job, accepted: Sequence[str]) -> float:
        return min(self.step_s((each,), job.gpus, self.batch) for each in accepted)


def reported_speeds(progress: ReportedProgress) -> ReportedSpeeds | None:
    """What can be said by so many reports; None if nothing."""
    kinds = sorted({each.gpu_types for each in progress.throughputs})
    curves = tuple(fit_curve(kind, progress.throughputs) for kind in kinds)
    learning = _learning(progress.last, progress.batch)
    return ReportedSpeeds(curves, progress.batch or 1.0, learning) if curves or learning else None


def fit_curve(gpu_types: str, throughputs: Iterable[Throughput]) -> Curve:
    """A line through the seconds of a step by samples of one GPU: least relative error, nothing below 0.

    Args:
        gpu_types: The kind of GPUs whose throughputs count.
        throughputs: At least one on such GPUs.
    """
    own = [each for each in throughputs if each.gpu_types == gpu_types]
    points = []
    for throughput in own:
        batch = throughput.batch or 1.0
        step_s = batch / throughput.rate
        points.append((batch / throughput.gpus, step_s, throughput.seconds / step_s**2))
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


def _learning(last: ProgressReport, batch: float) -> Learning | None:
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
