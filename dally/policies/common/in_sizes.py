"""What Optimus, DRL and elastic scaling share: search how many GPUs each job is to have, now and then."""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from math import inf
from typing import Any, ClassVar

import numpy as np

from dally.cluster.topology import Allocation
from dally.jobs.job import JobKind
from dally.plan import Decision, Plan, Start, Wait
from dally.policies.base import Policy
from dally.policies.common.arrays import Floats
from dally.policies.common.elastic_speeds import Speeds
from dally.policies.common.gpu_pool import Accepted, MachineGpus, Pool, Room, free_by_kind, held_by_kind
from dally.policies.common.ranking import Ranking
from dally.policies.common.rounds import PendingChanges, next_multiple
from dally.policies.common.sizing import SizeTarget, held_gpus, plan_sizes
from dally.state import ClusterState, JobState
from dally.words import plural, span

_DEPTH = 100
"""How many waiting jobs are looked at that find too few free GPUs of their type."""


class InSizes(Policy):
    """A policy that says how many GPUs jobs are to have; which ones is found for it.

    The elastic jobs that run and the waiting ones that it admits are sized together. A running job keeps at
    least its least size, rigid and forked jobs and those not to be preempted keep all they have. Waiting
    jobs are admitted in their order while the least sizes of all fit.

    Args:
        knobs: All are sized anew at multiples of their `interval_s`, seconds; and at once when nothing runs.
        state: The cluster.

    Attributes:
        eager: Whether that is also done as soon as a job arrives or ends, or machines come or go.
        in_turn: Whether jobs behind one that lacks GPUs wait for it; of one that accepts some machines only,
            by name or by GPU type, those behind it leave it these.
    """

    eager: ClassVar[bool]
    in_turn: ClassVar[bool]

    def __init__(self, knobs: Any, state: ClusterState) -> None:
        self.interval_s: float = knobs.interval_s
        self.speeds = Speeds(state.costs)
        self._state = state
        self._queue = Ranking()
        self._elastic: dict[int, JobState] = {}
        self._changed = PendingChanges(state)
        self._changed.answer()
        self._withheld: dict[int, int] = {}
        self._due_s = inf

    def rank(self, job: JobState) -> tuple[float, ...]:
        """The priority of a waiting job, lower first; ties go by arrival, as do all if there is no rank."""
        return ()

    @abstractmethod
    def allocate(self, jobs: Sequence[JobState], pool: Pool, now: float) -> Mapping[str, SizeTarget]:
        """The sizes of jobs that run or are admitted; it must change nothing.

        Args:
            jobs: In the order of their ranks; their least sizes fit.
            pool: The GPUs that are free or theirs.
            now: The moment, seconds.
        """

    def wait_reason(self, job: JobState) -> str:
        """Why a job is not admitted, in words: which jobs go first."""
        return "jobs start in order of arrival"

    def decide(self, state: ClusterState, now: float) -> Plan:
        """If it is time: size the jobs, and start, resize and move them; else nothing but new waits."""
        due = self._is_due(state, now)
        decisions = self._sized(state, now) if due else ()
        starts = [state.jobs[each.job_id] for each in decisions if isinstance(each, Start)]
        waits = []
        for job in state.to_explain(decisions):
            reason = f"waits until sizes are looked at, every {span(self.interval_s)}"
            if due:
                needs, free = plural(job.job.least_gpus, "GPU"), state.free.usable(job.job.gang)
                reason = f"{needs} needed at least, {free} free; {self.wait_reason(job)}"
            waits.append(Wait(job.job_id, state.topology.top, inf, reason))
        return Plan((*decisions, *waits), self._next_s(state, now, any(map(_is_sizable, starts))))

    def _sized(self, state: ClusterState, now: float) -> tuple[Decision, ...]:
        resize_s = self._state.costs.resize_s
        # Not in the middle of a change, nor at its end.
        able = [
            job
            for job in self._elastic.values()
            if job.preemptible and job.ready_s <= now and job.remaining_s(now) > job.speed * resize_s(job.job)
        ]
        if not able and not self._queue:
            return ()
        workers = free_by_kind(state.free)
        for job in able:
            workers += held_by_kind(state.topology, job.allocation)
        pool = Pool.of(state.topology, workers)
        machines = MachineGpus(state.free, able)
        room = Room(pool, machines)
        for job in able:
            room.admits(job.job)
        # The waiting jobs whose least sizes fit beside each other's, in their order.
        jobs, refused, kept = [*able], 0, dict[str, Accepted]()
        for job in self._queue:
            if not room.left or refused == _DEPTH:
                break
            asked = job.job
            accepted = state.free.accepted(asked.gang)
            if room.admits(asked):
                jobs.append(job)
                kept[job.job_id] = room.kept
            elif accepted is not None and accepted <= room.kept:
                continue
            elif asked.least_gpus <= self._at_hand(accepted) and (
                self.in_turn or room.left < asked.least_gpus
            ):
                if accepted is None:
                    break
                room.keep(accepted)  # nobody passes it there
            else:
                refused += 1
        if not jobs:
            return ()
        kept |= {job.job_id: room.kept for job in able}
        out_of_reach = held_by_kind(state.topology, self._out_of_reach(jobs, machines, kept))
        within_reach = Pool.of(state.topology, workers - out_of_reach)
        # A running job may have to leave its machine to one admitted before machines were kept from both.
        pool = within_reach if within_reach.holds(job.job for job in jobs) else pool
        return plan_sizes(state, self.allocate(jobs, pool, now), now, kept)

    def _out_of_reach(
        self, jobs: Sequence[JobState], on: MachineGpus, kept: Mapping[str, Accepted]
    ) -> Allocation:
        """Free GPUs of machines that none of some jobs accepts, or from which all that do are kept."""
        if any(job.job.machines is None and not kept[job.job_id] for job in jobs):
            return ()
        free, machines = self._state.free, self._state.topology.machines
        everywhere = Accepted(machine.name for machine in machines)
        sets = {(on.accepted(job.job), kept[job.job_id]) for job in jobs}
        within = Accepted().union(
            *((everywhere if accepted is None else accepted) - without for accepted, without in sets)
        )
        return tuple(
            (index, free.on(index))
            for index, machine in enumerate(machines)
            if machine.name not in within and free.on(index)
        )

    def _at_hand(self, accepted: Accepted | None) -> int:
        """GPUs that a job could have on such machines if nothing ran; None: on all, of any type."""
        topology, withheld = self._state.topology, self._state.withheld
        if accepted is None:
            return topology.gpus - sum(withheld.values())
        machines = [topology.machine_index[name] for name in accepted if name in topology.machine_index]
        return sum(topology.machines[each].gpus - withheld.get(each, 0) for each in machines)

    def _is_due(self, state: ClusterState, now: float) -> bool:
        return not state.running or now >= self._due_s or (self.eager and self._is_changed(state))

    def _is_changed(self, state: ClusterState) -> bool:
        return bool(self._changed) or self._withheld != state.withheld

    def _next_s(self, state: ClusterState, now: float, growing: bool = False) -> float:
        """When sizes could change though nothing happens until then; for `decide` and `plan_applied`."""
        if self._is_due(state, now):
            return self._multiple_s(now) if growing or self._elastic else inf
        return min(self._due_s, self._multiple_s(now) if self._is_changed(state) else inf)

    def _multiple_s(self, now: float) -> float:
        """The first multiple of the interval after `now`."""
        return next_multiple(now, self.interval_s)

    def plan_applied(self, plan: Plan, state: ClusterState, now: float) -> None:
        """What had changed was answered, if it was time."""
        due, self._due_s = self._is_due(state, now), self._next_s(state, now)
        if due:
            self._changed.answer()
            self._withheld = dict(state.withheld)

    def submitted(self, job: JobState, now: float) -> None:
        self._enqueue(job)

    def started(self, job: JobState, now: float) -> None:
        self._queue.remove(job)
        if _is_sizable(job):
            self._elastic[job.order] = job

    def stopped(self, job: JobState, now: float) -> None:
        self._elastic.pop(job.order, None)
        self._enqueue(job)

    def finished(self, job: JobState, now: float) -> None:
        self._elastic.pop(job.order, None)
        self._changed.note()

    def withdrawn(self, job: JobState, now: float) -> None:
        self._queue.remove(job)
        self._changed.note()

    def time_passed(self, state: ClusterState, now: float) -> None:
        """After a restart, all jobs are here again."""
        self._changed.time_passed()

    def snapshot(self) -> dict[str, Any]:
        return {
            "due_s": None if self._due_s == inf else self._due_s,
            "changed": self._changed.snapshot(),
            "withheld": [list(part) for part in sorted(self._withheld.items())],
        }

    def restore(self, learnt: Mapping[str, Any]) -> None:
        self._due_s = inf if learnt["due_s"] is None else learnt["due_s"]
        self._changed.restore(learnt.get("changed"))
        self._withheld = dict(learnt.get("withheld", ()))

    def _enqueue(self, job: JobState) -> None:
        self._queue.add(job, *self.rank(job))
        self._changed.note()

    def left_s(self, job: JobState, now: float, most: int) -> Floats:
        """(at most most + 1,) seconds until the end of a job on 0, 1, ... GPUs at their best placement.

        inf where it cannot run; a running job pays its resize for any size but its own.
        """
        speeds = self.speeds.row(job, now)[: most + 1]
        left_s = np.full(speeds.size, inf)
        np.divide(remaining_s(job, now), speeds, out=left_s, where=speeds > 0)
        if job.allocation:
            change_s = np.full(speeds.size, self._state.costs.resize_s(job.job))
            change_s[held_gpus(job)] = 0.0
            left_s += change_s
        return left_s


def remaining_s(job: JobState, now: float) -> float:
    """Ideal seconds of work left of a job that has not ended, so at least a little."""
    return max(job.remaining_s(now), 1e-6)


def _is_sizable(job: JobState) -> bool:
    """Whether a job may be resized once it runs."""
    return job.job.kind is JobKind.ELASTIC and job.job.preemptible and job.job.least_gpus < job.job.most_gpus
