"""One placement of all jobs online: which are admitted, what each is to have, and whether moving pays."""

from collections.abc import Callable, Iterable, Sequence
from itertools import compress

import numpy as np

from dally.jobs.job import JobKind
from dally.policies.common.arrays import Ints
from dally.policies.common.gpu_pool import MachineGpus, Pool, Room, free_by_kind, held_by_kind
from dally.policies.jps.instance import Instance, WorkerDemands
from dally.policies.jps.placement_trial import PlacementTrial, Share
from dally.state import ClusterState, JobState

DEPTH = 100
"""Waiting jobs looked at that do not fit."""

Solve = Callable[[Instance], Ints]
"""The search for the workers of each kind that each job gets, (jobs, kinds)."""


class Rerun:
    """One plan in the making; to be called outside of a trial.

    Args:
        state: The cluster.
        demands: What jobs ask of the workers.
        solve: The search.
        now: The moment, seconds.
        next_end_s: Seconds until the next job ends.
    """

    def __init__(
        self,
        state: ClusterState,
        demands: WorkerDemands,
        solve: Solve,
        now: float,
        next_end_s: float,
    ) -> None:
        self._state, self._demands, self._solve, self._now = state, demands, solve, now
        self._next_end_s = next_end_s

    def best(self, waiting: Iterable[JobState], movers: Sequence[JobState]) -> tuple[PlacementTrial, float]:
        """Starts on free GPUs; or starts, moves and resizes of all if all concerned end sooner for it in sum.

        Returns:
            What to do, and by how many seconds in sum that is sooner than starts alone.
        """
        with self._state.free.trial():
            starts = PlacementTrial(self._state, self._now)
            starts.start(self._market(waiting, [])[0])
        whole = self._whole(waiting, movers) if movers else None
        if whole is None:
            return starts, 0.0
        gain_s = self._sum_left_s(starts, whole) - self._sum_left_s(whole, starts)
        return (whole, gain_s) if gain_s > 0 else (starts, 0.0)

    def _whole(self, waiting: Iterable[JobState], movers: Sequence[JobState]) -> PlacementTrial | None:
        """The waiting jobs and those that may move; None if no running job changes, or one finds no GPUs.

        A job that would gain less than its change costs keeps its GPUs, and the market is held without it;
        unless it could have as many of the same type closer together.
        """
        costs, by_type = self._state.costs, self._state.topology.by_type
        admitted, moving = self._market(waiting, movers)
        stay = set()
        for share in moving:
            request = share.job.job
            elastic = request.kind is JobKind.ELASTIC
            cost_s = costs.resize_s(request) if elastic else costs.restart_s(request)
            if abs(share.saved_s) <= cost_s:
                stay.add(share.job.order)
        if stay:
            admitted, moving = self._market(waiting, [job for job in movers if job.order not in stay])
        changes = [
            share
            for share in moving
            if sum(share.counts.values()) >= share.job.job.least_gpus
            and share.counts != by_type(share.job.allocation)
        ]
        for job in movers:
            held = by_type(job.allocation)
            if job.order in stay and job.level and len(held) == 1:
                [(gpu_type, gpus)] = held.items()
                gang = job.job.gang._replace(gpus=gpus, gpu_type=gpu_type)
                if job.level > self._state.best_level(gang):
                    changes.append(Share(job, held, 0.0))
        if not changes:
            return None
        with self._state.free.trial():
            trial = PlacementTrial(self._state, self._now)
            return trial if trial.change(changes, admitted) else None

    def _market(
        self, waiting: Iterable[JobState], movers: Sequence[JobState]
    ) -> tuple[list[Share], list[Share]]:
        """The market of the free GPUs and those of the movers.

        Returns:
            What it gives to the waiting jobs that it admits, and to the movers.
        """
        topology = self._state.topology
        held = [held_by_kind(topology, job.allocation) for job in movers]
        workers = sum(held, start=free_by_kind(self._state.free))
        room = Room(Pool.of(topology, workers), MachineGpus(self._state.free, movers))
        for job in movers:
            room.admits(job.job)
        jobs, refused = [*movers], 0
        for job in waiting:
            if not room.left or refused == DEPTH:
                break
            if room.admits(job.job):
                jobs.append(job)
            else:
                refused += 1
        if not jobs:
            return [], []
        served = [True] * len(jobs)
        if len(workers) == 1 and all(job.job.least_gpus == job.job.most_gpus for job in jobs):
            given, saved_s = np.array([[job.job.gpus] for job in jobs]), np.zeros(len(jobs))  # no choice
        else:
            instance = self._demands.instance(jobs, workers, self._now)
            given = self._solve(instance)
            before = given.copy()  # waiting jobs have nothing to compare with: they save 0 s
            if held:
                before[: len(held)] = np.array(held)
            # A match may leave a job with GPUs that it does not accept only: it would take for ever there.
            finite = np.isfinite(instance.times_s(given))
            given = np.where(finite[:, None], given, before)
            times_s = instance.times_s(before), instance.times_s(given)
            saved_s = np.subtract(*times_s, out=np.zeros(len(jobs)), where=finite)
            served = finite.tolist()
        shares: list[Share] = []
        for job, row, saved in zip(jobs, given.tolist(), saved_s.tolist(), strict=True):
            each = job.job.gang.step  # whole units of what it takes of a machine, or of a rack
            counts = {
                name: gpus // each * each
                for name, gpus in zip(topology.gpu_types, row, strict=True)
                if gpus >= each
            }
            shares.append(Share(job, counts, saved))
        return [*compress(shares[len(movers) :], served[len(movers) :])], shares[: len(movers)]

    def _sum_left_s(self, option: PlacementTrial, other: PlacementTrial) -> float:
        """Seconds until the end of all jobs that either option concerns, in sum, under one of them.

        A running job that only the other option concerns goes on as it is; one that waits starts as in the
        other option, but when the next running job ends.
        """
        sum_s = 0.0
        for name in {**option.left_s, **other.left_s}:
            job = self._state.jobs[name]
            if name in option.left_s:
                sum_s += option.left_s[name]
            elif job.allocation:
                slowdown = self._state.costs.cost(job.job, job.allocation).slowdown
                sum_s += job.remaining_s(self._now) * slowdown
            else:
                sum_s += self._next_end_s + other.left_s[name]
        return sum_s
