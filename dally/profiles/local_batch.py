"""What an iteration computes with another local batch than the one that was profiled."""

from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass, replace
from math import ceil

from dally.profiles.events import Event
from dally.profiles.schema import BatchTime, Bucket, Compute, Model, Profile, StageCompute


@dataclass(frozen=True, slots=True)
class Pass:
    """The compute of an iteration with some local batch, in as many parts as the GPU's memory asks for.

    Attributes:
        compute: Of the last part, which is the one that communication overlaps.
        buckets: When gradients are ready in it.
        before_s: Of the parts before it, whose gradients are only added up, seconds.
        pace: The last part over an iteration with the profile's batch.
    """

    compute: Compute
    buckets: tuple[Bucket, ...]
    before_s: float
    pace: float

    @property
    def total_s(self) -> float:
        """All parts together, seconds."""
        return self.before_s + self.compute.total_s


def compute_pass(profile: Profile, batch: float = 1.0) -> Pass:
    """The compute of one iteration.

    What stays when the batch changes, and what goes with it, is taken from the other batches measured, else
    from `fixed_s`. All phases of the iteration keep their shares of it.

    Args:
        profile: The model on its GPU type.
        batch: Local batch over that of the profile.
    """
    compute, model = profile.compute, profile.model
    if batch == 1.0:
        return Pass(compute, model.buckets, 0.0, 1.0)
    most = float("inf")  # the largest batch that one GPU holds, over that of the profile
    if profile.learning is not None and model.local_batch is not None:
        most = profile.learning.most_local_batch / model.local_batch
    parts = max(1, ceil(batch / most))
    pace = _total_s(compute, model, batch / parts) / compute.total_s
    part = scaled_compute(compute, pace)
    return Pass(part, scaled_buckets(model.buckets, pace), (parts - 1) * part.total_s, pace)


def batch_factor(profile: Profile, batch: float, reference: int | None) -> float:
    """A local batch over that of a profile, from one over another's, the reference; the same if unknown."""
    own = profile.model.local_batch
    return batch if own == reference or not own or not reference else batch * reference / own


def _total_s(compute: Compute, model: Model, batch: float) -> float:
    """The time with `batch` times the profile's batch: linear between two measured batches and beyond."""
    if not compute.other_batches or not model.local_batch:
        return compute.fixed_s + batch * (compute.total_s - compute.fixed_s)
    own = BatchTime(model.local_batch, compute.total_s)
    known = sorted((own, *compute.other_batches), key=lambda each: each.local_batch)
    samples = batch * model.local_batch
    place = bisect_left([each.local_batch for each in known], samples)
    low, high = known[max(0, min(place, len(known) - 1) - 1) :][:2]
    slope = (high.total_s - low.total_s) / (high.local_batch - low.local_batch)
    line_s = low.total_s + slope * (samples - low.local_batch)
    # Below the least batch a steep line would reach 0: no iteration is shorter than in proportion to it.
    return max(line_s, known[0].total_s * min(1.0, samples / known[0].local_batch))


def scaled_compute(compute: Compute, pace: float) -> Compute:
    """The same iteration, each phase so many times as long."""

    def times(value_s: float | None) -> float | None:
        return None if value_s is None else value_s * pace

    return replace(
        compute,
        fwd_s=times(compute.fwd_s),
        bwd_s=compute.bwd_s * pace,
        step_s=times(compute.step_s),
        window_s=times(compute.window_s),
        fixed_s=compute.fixed_s * pace,
        other_batches=tuple(
            BatchTime(each.local_batch, each.total_s * pace) for each in compute.other_batches
        ),
        stages=tuple(StageCompute(each.bwd_s * pace, each.step_s * pace) for each in compute.stages),
    )


def scaled_events(events: Iterable[Event], pace: float) -> tuple[Event, ...]:
    """The same events, ready and needed so many times as late."""
    return tuple(
        replace(
            event,
            ready_s=event.ready_s * pace,
            needed_s=None if event.needed_s is None else event.needed_s * pace,
            sent_s=None if event.sent_s is None else event.sent_s * pace,
        )
        for event in events
    )


def scaled_buckets(buckets: Iterable[Bucket], pace: float) -> tuple[Bucket, ...]:
    """The same buckets, ready so many times as late."""
    return tuple(Bucket(bucket.bytes, bucket.ready_s * pace) for bucket in buckets)
