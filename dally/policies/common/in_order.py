"""What FIFO, SJF, SRTF and Slurm share: serve the jobs in one order, then backfill behind the head."""

from collections.abc import Iterator
from dataclasses import dataclass
from heapq import merge
from itertools import islice
from math import inf

from dally.plan import Decision, Plan, Start, Wait
from dally.policies.base import Policy
from dally.policies.common.backfill import PromisedGpus, Release, reserve
from dally.policies.common.estimates import remaining_s, stretch_s
from dally.policies.common.evictions import Evictions
from dally.policies.common.kept_machines import KeptMachines, UnclaimedMachines
from dally.policies.common.knobs import knob
from dally.policies.common.placements import Placement, accepted, closest
from dally.policies.common.ranking import Ranking
from dally.state import ClusterState, JobState
from dally.words import are, plural, span

DEPTH = 100
"""Jobs looked at behind the head."""


@dataclass(frozen=True, slots=True)
class BackfillKnobs:
    """Settings of what happens behind the first job."""

    backfill: str = knob(
        "none", "whether later jobs may start if that does not delay the first one", ("none", "easy")
    )


@dataclass(frozen=True, slots=True)
class OrderKnobs(BackfillKnobs):
    """Settings of the policies that serve jobs in order."""

    placement: str = knob(
        "no-wait",
        "take the closest that is free, or only the closest that the idle cluster could give",
        ("no-wait", "consolidated"),
    )


class InOrder(Policy):
    """A policy that starts waiting jobs in the order of a key and stops at the first that cannot start.

    Jobs behind one that accepts some machines only start on others.
    """

    def __init__(self, knobs: OrderKnobs, state: ClusterState) -> None:
        self.backfill = knobs.backfill == "easy"
        self.depth = DEPTH
        self.consolidated = knobs.placement == "consolidated"
        self.queue = Ranking()
        self.ends = Ranking()
        self._state = state

    def key(self, job: JobState) -> tuple[float, ...]:
        """What waiting jobs are ordered by, ascending; ties go by arrival, as do all if there is no key.

        A job that lost its GPUs to a failure keeps its place.
        """
        return ()

    def accepts(self, state: ClusterState, job: JobState, now: float) -> int:
        """The highest level that a waiting job accepts at `now`."""
        return self.best_level(job) if self.consolidated else state.topology.top

    def best_level(self, job: JobState) -> int:
        """The lowest level of the idle cluster that could hold the job's gang."""
        return self._state.best_level(job.job.gang)

    def place(self, job: JobState, highest: int, plan: "OrderRound") -> Placement | None:
        """Free GPUs for a waiting job within one domain of a level up to `highest`."""
        return closest(plan.state.free, job.job, self.best_level(job), highest)

    def end_s(self, job: JobState) -> float:
        """When a running job is taken to end."""
        return job.end_s()

    def make_room(self, job: JobState, plan: "OrderRound") -> Placement | None:
        """Stop running jobs for the head of the queue, if the policy preempts; None if that is no use."""
        return None

    def backfills(self, now: float) -> bool:
        """Whether the jobs behind the head are looked at now."""
        return self.backfill

    def fill(self, plan: "OrderRound") -> None:
        """Look at the jobs behind the head."""
        plan.fill_behind_reservation()

    def submitted(self, job: JobState, now: float) -> None:
        self.queue.add(job, *self.key(job))

    def started(self, job: JobState, now: float) -> None:
        self.queue.remove(job)
        self.ends.add(job, self.end_s(job))

    def repaced(self, job: JobState, now: float) -> None:
        self.ends.move(job, self.end_s(job))

    def revised(self, job: JobState, now: float) -> None:
        super().revised(job, now)
        if not job.allocation:
            self.queue.move(job, *self.key(job))

    def stopped(self, job: JobState, now: float) -> None:
        self.ends.remove(job)
        self.queue.add(job, *self.key(job))

    def finished(self, job: JobState, now: float) -> None:
        self.ends.remove(job)

    def withdrawn(self, job: JobState, now: float) -> None:
        self.queue.remove(job)

    def decide(self, state: ClusterState, now: float) -> Plan:
        """Start jobs in order until one cannot; then those behind it that do not delay it."""
        if not self.queue:
            return Plan()
        with state.free.trial():
            plan = OrderRound(self, state, now)
            plan.run()
            waits = self.new_waits(plan)
        return Plan((*plan.decisions(), *waits), self.wakeup_s(plan))

    def new_waits(self, plan: "OrderRound") -> list[Decision]:
        """The waits to be explained, but of jobs that the plan starts."""
        return [self.wait(job, plan) for job in plan.state.to_explain(plan.decisions())]

    def wait(self, job: JobState, plan: "OrderRound") -> Wait:
        """The decision that a job waits."""
        level = self.accepts(plan.state, job, plan.now)
        return Wait(job.job_id, level, inf, plan.lacks(job, level))

    def wakeup_s(self, plan: "OrderRound") -> float:
        """When to ask again if nothing happens."""
        return inf


class OrderRound:
    """One plan in the making, on trial: which jobs start and which stop.

    Attributes:
        started: Orders of arrival of the jobs it starts.
        evictions: The running jobs it stops.
        head: The first job that cannot start; None if all can.
        kept: Machines that jobs wait for which come first.
    """

    def __init__(self, policy: InOrder, state: ClusterState, now: float) -> None:
        self.policy, self.state, self.now = policy, state, now
        self.started: set[int] = set()
        self.head: JobState | None = None
        self.evictions = Evictions(state.free)
        self.kept = KeptMachines(state.free)
        self._starts: list[Decision] = []
        self._ends: list[Release] = []

    def run(self) -> None:
        """Serve the queue."""
        for job in self.policy.queue:
            if self.kept.keeps_all_of(job):
                continue
            placement = self.fit(job) or self.policy.make_room(job, self)
            if placement is None:
                self.head = self.head or job
                self.kept.keep(job)
                if self.kept.all or self.policy.backfill:
                    break
                continue
            why = f"first of {len(self.policy.queue) - len(self.started)} in the queue"
            if self.head is not None:
                why = f"job {self.head.job_id}, which goes first, waits for other machines"
            self.start(job, placement, why)
        self.kept.give_back()
        if self.head is None:
            self.evictions.move_stopped(self.fit)
        elif self.policy.backfills(self.now):
            self.policy.fill(self)

    def decisions(self) -> tuple[Decision, ...]:
        """Stops, then starts."""
        return (*self.evictions.decisions(), *self._starts)

    def releases(self) -> Iterator[Release]:
        """When GPUs come free, soonest first: those of running jobs and of those that this plan starts."""
        ends = self.policy.ends
        running = ((ends.rank(job)[0], job.allocation) for job in ends if job not in self.evictions)
        return merge(running, sorted(self._ends), key=lambda release: release[0])

    def fit(self, job: JobState) -> Placement | None:
        """A placement on free GPUs that the job accepts."""
        if job.job.gpus > self.state.free.usable(job.job.gang):
            return None
        highest = self.policy.accepts(self.state, job, self.now)
        return self.policy.place(job, highest, self)

    def lacks(self, job: JobState, level: int) -> str:
        """Why a job cannot start, in words."""
        domain, request = self.state.topology.levels[level], job.job
        free, of_type = self.state.free, f" {request.gpu_type}" if request.gpu_type else ""
        have = f"{are(free.usable(request.gang))} free {accepted(request.gang)}"
        lowest = free.lowest_level(request.gang)
        if lowest is None or lowest > level:
            if level == self.state.topology.top:
                return f"{plural(request.gpus, f'{of_type} GPU'.strip())} asked for; {have}"
            return f"no {domain} has {plural(request.gpus, f'free{of_type} GPU')}; {have}"
        first = self.kept.waits_before(request.gang)
        ahead = "" if first is None else f" for job {first.job_id} of {plural(first.job.gpus, 'GPU')}"
        return f"{plural(request.gpus, f'{of_type} GPU'.strip())} could be had but must wait{ahead}"

    def start(self, job: JobState, placement: Placement, why: str) -> None:
        """Start a job on free GPUs; the reason goes on with `why`."""
        self.state.free.take(placement.allocation)
        self.started.add(job.order)
        end_s = self.now + stretch_s(job, self.state.costs, placement.allocation)
        self._ends.append((end_s, placement.allocation))
        reason = (
            f"{self.state.topology.levels[placement.level]} has {plural(job.job.gpus, 'free GPU')}; {why}, "
            f"waited {span(self.now - job.origin_s)}"
        )
        self._starts.append(Start(job.job_id, placement.allocation, placement.level, reason))

    def fill_behind_reservation(self) -> None:
        """Start jobs behind the head that delay neither it nor the first job of other machines."""
        assert self.head is not None, "backfill has a head"
        free, head = self.state.free, self.head
        promised: list[PromisedGpus] = []  # made when a job could break it
        elsewhere = UnclaimedMachines(free, [head])
        behind = len(self.started) + 1
        for job in islice(self.policy.queue, behind, behind + self.policy.depth):
            request = job.job
            if request.gpus > free.usable(request.gang):
                elsewhere.wants(job)
                continue
            if not promised:
                promised.append(self._promise(head))
            if promised[0].refuses(free, request.gpus, self.now + remaining_s(job)):
                continue
            placement = self.fit(job)
            if placement is None:
                elsewhere.wants(job)
                continue
            promised += map(self._promise, elsewhere.take_first())
            end_s = self.now + stretch_s(job, self.state.costs, placement.allocation)
            left = [each.after(free, placement.allocation, end_s) for each in promised]
            still = [each for each in left if each is not None]
            if len(still) < len(promised):
                continue
            self.start(job, placement, f"backfilled: {self._why_now(head, promised[0], end_s)}")
            promised = still

    def _promise(self, job: JobState) -> PromisedGpus:
        """The GPUs that a waiting job can have first, as running jobs are predicted to end."""
        level = self.policy.accepts(self.state, job, self.now)
        return reserve(self.state.free, job.job, level, self.releases())

    def _why_now(self, head: JobState, promised: PromisedGpus, end_s: float) -> str:
        """Why a job that ends then may start before the head."""
        shadow_s, ends = promised.shadow_s - self.now, f"ends in {span(end_s - self.now)}"
        if promised.shadow_s == inf:
            return f"{ends}, and nobody can say when job {head.job_id} can start"
        if end_s > promised.shadow_s:
            return f"job {head.job_id} starts in {span(shadow_s)} and leaves {plural(promised.extra, 'GPU')}"
        return f"{ends}, before job {head.job_id} can start in {span(shadow_s)}"
