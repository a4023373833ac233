"""One placement of all jobs online: who is admitted, what each is to have, and whether moving pays."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from dally.jobs.job import JobKind
from dally.policies.common.worker_kinds import Room, free_by_kind, held_by_kind
from dally.policies.jps.hands import PlacementTrial, Share
from dally.policies.jps.instance import Floats, Instance, Ints
from dally.policies.jps.worker_demands import WorkerDemands
from dally.state import ClusterState, JobState

Solve = Callable[[Instance], Ints]
"""The search for the workers of each kind that each job gets, (jobs, kinds)."""


@dataclass(frozen=True, slots=True)
class MarketResult:
    """What a market gave: to waiting jobs that it admitted, and to running ones that were in it."""

    admitted: list[Share]
    moving: list[Share]


class Rerun:
    """One plan in the making; to be called outside of a trial.

    Args:
        state: The cluster.
        claims: What jobs ask of the workers.
        solve: The search.
        now: The moment, seconds.
        next_end_s: Seconds until the next job ends.
        depth: How many waiting jobs that do not fit are looked at.
    """

    def __init__(
        self,
        state: ClusterState,
        claims: WorkerDemands,
        solve: Solve,
        now: float,
        next_end_s: float,
        depth: int,
    ) -> None:
        self._state, self._claims, self._solve, self._now = state, claims, solve, now
        self._next_end_s, self._depth = next_end_s, depth

    def best(self, waiting: Iterable[JobState], movers: Sequence[JobState]) -> tuple[PlacementTrial, float]:
        """Starts on free GPUs; or starts, moves and resizes of all if all concerned end sooner for it in sum.

        Returns:
            What to do, and by how many seconds in sum that is sooner than starts alone.
        """
        still = self._still(waiting)
        whole = self._whole(waiting, movers) if movers else None
        if whole is None:
            return still, 0.0
        gain_s = self._later_s(still, whole) - self._later_s(whole, still)
        return (whole, gain_s) if gain_s > 0 else (still, 0.0)

    def _still(self, waiting: Iterable[JobState]) -> PlacementTrial:
        """The waiting jobs on the free GPUs; who runs stays as it is."""
        with PlacementTrial.on_trial(self._state, self._now) as hands:
            hands.start(self._market(waiting, []).admitted)
        return hands

    def _whole(self, waiting: Iterable[JobState], movers: Sequence[JobState]) -> PlacementTrial | None:
        """The waiting jobs and those that may move; None if nobody who runs changes, or one finds no GPUs.

        Who would change by less than that costs keeps its GPUs, and the market is held without it; unless it
        could have as many of the same type closer together.
        """
        market = self._market(waiting, movers)
        stay = {
            share.job.order for share in market.moving if abs(share.saved_s) <= self._least_change_s(share)
        }
        if stay:
            market = self._market(waiting, [job for job in movers if job.order not in stay])
        changes = [share for share in market.moving if self._is_change(share)]
        changes += [self._same(job) for job in movers if job.order in stay and self._is_scattered(job)]
        if not changes:
            return None
        with PlacementTrial.on_trial(self._state, self._now) as hands:
            return hands if hands.change(changes, market.admitted) else None

    def _market(self, waiting: Iterable[JobState], movers: Sequence[JobState]) -> MarketResult:
        """The market of the free GPUs and those of the movers."""
        topology = self._state.topology
        held = [held_by_kind(topology, job.allocation) for job in movers]
        workers = sum(held, start=free_by_kind(self._state.free))
        room = Room(topology, workers)
        for job in movers:
            room.admits(job.job)
        admitted = self._admitted(waiting, room)
        jobs = [*movers, *admitted]
        if not jobs:
            return MarketResult([], [])
        if len(workers) == 1 and all(job.job.least_gpus == job.job.most_gpus for job in jobs):
            given, saved_s = np.array([[job.job.gpus] for job in jobs]), np.zeros(len(jobs))  # no choice
        else:
            instance = self._claims.instance(jobs, workers, self._now)
            given = self._solve(instance)
            saved_s = _saved_s(instance, given, held)
        shares = [
            self._share(job, row, saved)
            for job, row, saved in zip(jobs, given.tolist(), saved_s.tolist(), strict=True)
        ]
        return MarketResult(shares[len(movers) :], shares[: len(movers)])

    def _admitted(self, waiting: Iterable[JobState], room: Room) -> list[JobState]:
        """The waiting jobs that fit, in their order, until too many did not or nothing is left."""
        admitted: list[JobState] = []
        refused = 0
        for job in waiting:
            if not room.left or refused == self._depth:
                break
            if room.admits(job.job):
                admitted.append(job)
            else:
                refused += 1
        return admitted

    def _same(self, job: JobState) -> Share:
        """What a running job has."""
        return Share(job, self._state.topology.by_type(job.allocation), 0.0)

    def _share(self, job: JobState, row: Sequence[int], saved_s: float) -> Share:
        """A job's row of a match, in whole units of what it takes of a machine."""
        each = job.job.gang.per_machine or 1
        types = self._state.topology.gpu_types
        counts = {name: gpus // each * each for name, gpus in zip(types, row, strict=True) if gpus >= each}
        return Share(job, counts, saved_s)

    def _is_change(self, share: Share) -> bool:
        """Whether a running job is to have other GPUs."""
        enough = sum(share.counts.values()) >= share.job.job.least_gpus
        return enough and share.counts != self._state.topology.by_type(share.job.allocation)

    def _is_scattered(self, job: JobState) -> bool:
        """Whether a running job could have as many GPUs of its one type closer together."""
        counts = self._state.topology.by_type(job.allocation) if job.level else {}
        if len(counts) != 1:
            return False
        [(gpu_type, gpus)] = counts.items()
        return job.level > self._state.best_level(job.job.gang._replace(gpus=gpus, gpu_type=gpu_type))

    def _later_s(self, option: PlacementTrial, other: PlacementTrial) -> float:
        """Seconds until the end of all whom either option concerns, in sum, under one of them."""
        concerned = [self._state.jobs[name] for name in {**option.left_s, **other.left_s}]
        return sum(
            option.left_s[job.job_id] if job.job_id in option.left_s else self._else_s(job, other)
            for job in concerned
        )

    def _else_s(self, job: JobState, other: PlacementTrial) -> float:
        """Seconds until the end of a job that only the other option concerns.

        It goes on as it is; who waits starts as in the other option, but when the next running job ends.
        """
        if job.allocation:
            return job.remaining_s(self._now) * self._state.costs.cost(job.job, job.allocation).slowdown
        return self._next_end_s + other.left_s[job.job_id]

    def _least_change_s(self, share: Share) -> float:
        """What a change costs a running job at least: a resize if it is elastic, else a restart."""
        job, costs = share.job.job, self._state.costs
        return costs.resize_s(job) if job.kind is JobKind.ELASTIC else costs.restart_s(job)


def _saved_s(instance: Instance, given: Ints, held: Sequence[Ints]) -> Floats:
    """How much sooner each running job ends by the model than on what it holds, seconds; 0 for others."""
    before = given.copy()
    if held:
        before[: len(held)] = np.array(held)
    return instance.times_s(before) - instance.times_s(given)
