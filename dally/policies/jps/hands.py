"""Hands out real GPUs for the shares of a market, on trial."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Self

from dally.cluster.topology import Allocation
from dally.policies.common.estimates import stretch_s
from dally.policies.common.sizing import change_s
from dally.policies.jps.gangs import find_gang, grow_part, keep_part
from dally.state import ClusterState, JobState


@dataclass(frozen=True, slots=True)
class Share:
    """GPUs of each type that a job is to have, and how much sooner than with what it has it should end."""

    job: JobState
    counts: Mapping[str, int]
    saved_s: float


@dataclass(slots=True)
class PlacementTrial:
    """Who starts or changes where.

    Attributes:
        state: The cluster, its free GPUs on trial.
        now: The moment, seconds.
        places: Allocations by job, in the order of the decisions.
        left_s: Seconds until the end of each of these jobs, its start, resize or restart counted.
    """

    state: ClusterState
    now: float
    places: dict[str, Allocation] = field(default_factory=dict, init=False)
    left_s: dict[str, float] = field(default_factory=dict, init=False)

    @classmethod
    @contextmanager
    def on_trial(cls, state: ClusterState, now: float) -> Iterator[Self]:
        """Hands over a trial of the cluster's free GPUs."""
        with state.free.trial():
            yield cls(state, now)

    def start(self, shares: Sequence[Share]) -> None:
        """The waiting jobs, as far as they find GPUs."""
        for share in shares:
            place = self._find(share)
            if place is not None:
                self._take(share, place, stretch_s(share.job, self.state.costs, place))

    def change(self, changes: Sequence[Share], starting: Sequence[Share]) -> bool:
        """First who gives up a part, then who waits, then who gains, most first; whether all found GPUs."""
        giving = [share for share in changes if self._is_within(share.counts, share.job)]
        others = sorted(
            (share for share in changes if not self._is_within(share.counts, share.job)),
            key=lambda share: (-share.saved_s, share.job.order),
        )
        leaving = {share.job.order for share in others if not self._holds_less(share)}
        for share in giving:
            self._give_part(share)
        for share in others:
            if share.job.order in leaving:
                self.state.free.give(share.job.allocation)
        self.start(starting)
        return all(self._move(share, share.job.order in leaving) for share in others)

    def _give_part(self, share: Share) -> None:
        job = share.job
        place = keep_part(self.state.topology, job.job, job.allocation, share.counts)
        if place != job.allocation and sum(gpus for _, gpus in place) >= job.job.least_gpus:
            self.state.free.give(job.allocation)
            self._take(share, place, self._moved_s(job, place))

    def _move(self, share: Share, left: bool) -> bool:
        """Change a job's GPUs if that pays for itself; whether it has GPUs then, new ones or its own."""
        job, free = share.job, self.state.free
        grown = None if left else grow_part(free, job.job, job.allocation, share.counts)
        if not left:
            free.give(job.allocation)
        place = self._find(share)
        if grown is not None and (place is None or self._moved_s(job, grown) <= self._moved_s(job, place)):
            place = grown
        if free.holds(job.allocation) and (place is None or not self._pays(job, place)):
            free.take(job.allocation)
            return True
        if place is None:
            return False
        self._take(share, place, self._moved_s(job, place))
        return True

    def _pays(self, job: JobState, place: Allocation) -> bool:
        held_s = job.remaining_s(self.now) * self.state.costs.cost(job.job, job.allocation).slowdown
        return self._moved_s(job, place) < held_s

    def _moved_s(self, job: JobState, place: Allocation) -> float:
        """Seconds until the end of a running job that goes on elsewhere, after a resize or restart."""
        slowdown = self.state.costs.cost(job.job, place).slowdown
        return change_s(self.state, job, place) + job.remaining_s(self.now) * slowdown

    def _find(self, share: Share) -> Allocation | None:
        return find_gang(self.state.free, self.state.costs, share.job.job, share.counts)

    def _take(self, share: Share, place: Allocation, left_s: float) -> None:
        self.state.free.take(place)
        self.places[share.job.job_id] = place
        self.left_s[share.job.job_id] = left_s

    def _is_within(self, counts: Mapping[str, int], job: JobState) -> bool:
        """Whether a job is to have less of what it holds, and nothing else."""
        held = self.state.topology.by_type(job.allocation)
        return counts != held and all(gpus <= held.get(name, 0) for name, gpus in counts.items())

    def _holds_less(self, share: Share) -> bool:
        """Whether a job is to keep all that it holds and get more, or the same closer together."""
        held = self.state.topology.by_type(share.job.allocation)
        return all(gpus <= share.counts.get(name, 0) for name, gpus in held.items())
