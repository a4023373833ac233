"""Rounds: when a policy that decides at multiples of a round is due, and the decisions that carry one out.

A policy of rounds is best built on `dally.policies.common.in_rounds.InRounds`, which uses all of this.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from math import floor, inf
from typing import Any

from dally.cluster.free import FreeGpus, placed
from dally.cluster.topology import Allocation
from dally.errors import InputError
from dally.plan import Decision, Migrate, Preempt, Start
from dally.policies.common.placements import takers
from dally.state import ClusterState, JobState


@dataclass(frozen=True, slots=True)
class RoundTarget:
    """What a job is to have in a round, and why."""

    allocation: Allocation
    reason: str


@dataclass(frozen=True, slots=True)
class RoundTargets:
    """What jobs are to have in a round, by name, and what the policy wants to keep if they get it."""

    by_job: Mapping[str, RoundTarget] = field(default_factory=dict)
    memo: Any = None


class Rounds:
    """The moments at which a policy decides: multiples of a round, and any moment at which nothing runs.

    A round is wanted only if it could change something: while jobs wait and jobs run, after an arrival, an
    end or a change of the machines at hand since the last round, or because the policy needs the next one. So
    a cluster on which all have what they want costs nothing.

    Args:
        round_s: Length of a round, seconds.
    """

    def __init__(self, round_s: float) -> None:
        if not 0 < round_s < inf:
            raise InputError(f"round_s is {round_s:g}, must be a positive number")
        self.round_s = round_s
        self._due_s = inf
        self._seen: list[Any] = []

    def due(self, state: ClusterState, now: float) -> bool:
        """Whether a round is held at `now`; asked again after `applied` it is not, unless nothing runs."""
        return not state.running or now >= self._due_s

    def wakeup_s(self, state: ClusterState, now: float, starts: bool = False) -> float:
        """When the policy is to be asked again if nothing happens; for `decide`.

        Args:
            state: As `decide` sees it.
            now: The moment, seconds.
            starts: Whether the plan, that of a round, starts a job.
        """
        if self.due(state, now):
            wanted = starts or bool(state.running)
        else:
            wanted = self._due_s < inf or self._wanted(state)
        return next_multiple(now, self.round_s) if wanted else inf

    def applied(
        self, state: ClusterState, now: float, needs_next: Callable[[], bool] = lambda: False
    ) -> None:
        """The plan of `now` was carried out; for the policy's `plan_applied`.

        Args:
            state: As it is now.
            now: The moment, seconds.
            needs_next: Asked if this was a round: whether the next one could change something though nothing
                happens until then and no job waits, as where running jobs take turns on the better GPUs.
        """
        wanted = False
        if now >= self._due_s:
            self._due_s, self._seen = inf, fingerprint(state)
            wanted = needs_next()
        if wanted or self._wanted(state):
            self._due_s = min(self._due_s, next_multiple(now, self.round_s))

    def _wanted(self, state: ClusterState) -> bool:
        """Whether a round could change something: without running jobs there are no GPUs to take turns on."""
        return bool(state.running) and (bool(state.waiting) or self._seen != fingerprint(state))

    def snapshot(self) -> dict[str, Any]:
        """When the next round is due, and what the cluster was like at the last one, as plain data."""
        return {"due_s": None if self._due_s == inf else self._due_s, "seen": self._seen}

    def restore(self, learnt: Mapping[str, Any]) -> None:
        """Take back what `snapshot` gave."""
        self._due_s = inf if learnt["due_s"] is None else learnt["due_s"]
        self._seen = learnt["seen"]


def next_multiple(now: float, interval_s: float) -> float:
    """The first multiple of an interval after `now`, seconds, rounding errors notwithstanding."""
    following = (floor(now / interval_s) + 1) * interval_s
    return following if following > now else following + interval_s


def fingerprint(state: ClusterState) -> list[Any]:
    """Another one after each arrival, end, and change of what machines withhold, as plain data.

    It goes by the name of the newest job and not by the number of arrivals, which begins anew with each
    controller.
    """
    newest = next(reversed(state.jobs), "")
    return [newest, len(state.jobs), [list(part) for part in sorted(state.withheld.items())]]


class PendingChanges:
    """Whether something has changed that the policy has not answered yet; kept over a restart.

    After a restart all jobs are submitted again, which is no change unless some are others than before.
    """

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self._pending = True
        self._restored: list[Any] | None = None

    def __bool__(self) -> bool:
        return self._pending

    def note(self) -> None:
        """Something has changed."""
        self._pending = True

    def answer(self, pending: bool = False) -> None:
        """The policy has taken all changes into account; it says if it has made new ones itself."""
        self._pending = pending

    def time_passed(self) -> None:
        """For the policy's hook: all jobs are here again after a restart."""
        if self._restored is not None:
            pending, before = self._restored
            self._pending = pending or before != fingerprint(self._state)
            self._restored = None

    def snapshot(self) -> list[Any]:
        """Whether something has changed, and the jobs and machines there were, as plain data."""
        return self._restored or [self._pending, fingerprint(self._state)]

    def restore(self, learnt: list[Any] | None) -> None:
        """Take back what `snapshot` gave; None, from earlier versions, counts as a change."""
        self._restored = learnt


@contextmanager
def handed_out(state: ClusterState) -> Iterator[FreeGpus]:
    """Free GPUs on trial, as a round hands them out: those of running jobs are free again.

    But not those of jobs that must not be preempted: they keep their GPUs without a target, so a policy
    leaves them out of what it plans with.
    """
    with state.free.trial() as free:
        for job in movable(state):
            free.give(job.allocation)
        yield free


def movable(state: ClusterState) -> Iterator[JobState]:
    """The running jobs whose GPUs a round may hand out, in the order of their starts."""
    running = (state.jobs[job_id] for job_id in state.running)
    return (job for job in running if job.preemptible)


def plan_round(state: ClusterState, targets: Mapping[str, RoundTarget], why_not: str) -> tuple[Decision, ...]:
    """The stops, moves and starts that give each job its target.

    A job that runs on just the GPUs of its target keeps them at no cost, and so does one without a target
    that holds GPUs that no target needs. Call it outside of `handed_out`.

    Args:
        state: The cluster as it is.
        targets: What jobs are to have, by name, in the order of starts; together they fit.
        why_not: Why a job without a target loses its GPUs, in words.
    """
    jobs = state.jobs
    changes = {
        name: replace(target, allocation=placed(jobs[name].job.gang, target.allocation))
        for name, target in targets.items()
        if jobs[name].allocation != target.allocation
    }
    gained: Counter[int] = Counter()

    def gain(allocation: Allocation, sign: int) -> None:
        for machine, gpus in state.free.taken_by(allocation):
            gained[machine] += sign * gpus

    for job in movable(state):
        if job.job_id in changes or job.job_id not in targets:
            gain(job.allocation, 1)
    for target in changes.values():
        gain(target.allocation, -1)
    short = [machine for machine, gpus in gained.items() if state.free.on(machine) + gpus < 0]
    if short:
        raise AssertionError(f"the targets need more GPUs of machines {short} than there are")
    decisions: list[Decision] = []
    for job in movable(state):
        if job.job_id in targets:
            continue
        held = state.free.taken_by(job.allocation)
        if all(state.free.on(machine) + gained[machine] >= gpus for machine, gpus in held):
            gain(job.allocation, -1)  # no target needs its GPUs
            continue
        by = takers(state.free, job, ((job_id, target.allocation) for job_id, target in changes.items()))
        decisions.append(Preempt(job.job_id, by, f"{why_not}; its GPUs go to others"))
    for job_id, target in changes.items():
        kind = Start if job_id in state.waiting else Migrate
        level = state.topology.level_of(target.allocation)
        decisions.append(kind(job_id, target.allocation, level, target.reason))
    return tuple(decisions)
