"""The controller: observe, decide, apply, again and again; what it means to do is on disk before it acts."""

import gc
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from math import inf
from pathlib import Path

from dally.cluster.topology import Topology
from dally.jobs.knowledge import Knowledge, Known
from dally.plan import Migrate, Plan, Preempt, Start
from dally.policies.base import Policy
from dally.policies.registry import PolicySpec, parse_policy
from dally.profiles.costs import CostModel
from dally.profiles.files import ProfileSet
from dally.profiles.gang_iteration import Split
from dally.scheduling.beliefs import Beliefs
from dally.scheduling.learnt_beliefs import Learnt
from dally.scheduling.recording.recorder import MOST_BYTES, RecordedScheduler, Recording
from dally.scheduling.scheduler import Scheduler, beliefs_of
from dally.state import ClusterState
from dally.words import span
from slurm_plugin.client.slurm import Slurm, SlurmNode, SlurmUnavailableError, State
from slurm_plugin.config import Config
from slurm_plugin.controller.actuator import Actuator, next_due_s
from slurm_plugin.controller.annotations import Annotations
from slurm_plugin.controller.ended_jobs import EndedJobs
from slurm_plugin.controller.job_priorities import JobPriorities
from slurm_plugin.controller.journal import Journal, JournalContents
from slurm_plugin.controller.managed_job import ON_GPUS, StartingPhase, StoppingPhase
from slurm_plugin.controller.partition_rules import groups_of
from slurm_plugin.controller.plan_checker import PlanChecker
from slurm_plugin.controller.progress_reports import ProgressFiles, ProgressReports
from slurm_plugin.controller.reconciler import Reconciler
from slurm_plugin.controller.spent_minutes import SpentMinutes
from slurm_plugin.controller.time_limits import TimeLimits
from slurm_plugin.controller.vanished_jobs import GONE_S, VanishedJobs
from slurm_plugin.controller.wall_clock import JUMP_S, WallClock, moved

CONFIRM_S = (0.0, 0.3, 0.5, 0.8, 1.2)
"""Pauses before each look at jobs just released or requeued, seconds; later looks belong to later cycles."""

TAUGHT_DAYS = 30
"""At its first start a controller learns from the jobs that ended in so many days."""

MOST_TAUGHT = 20_000
"""And from so many of them, the last ones: that takes some seconds."""

RULES_S = 300.0
"""Limits of QOS and associations are read anew so often: sacctmgr takes a third of a second."""

_BELIEFS_EVERY_S = 60.0
"""What was learnt of running times is written so often: it may be 3 MB, and changes in most cycles."""

_MEMORY_ERRORS = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
"""What a memory of another version, or one that makes no sense, raises as it is taken back."""

JOURNAL_LOST = "journal_lost"
"""The event of a journal that was deleted or damaged, and begun anew."""


@contextmanager
def collecting_no_garbage() -> Iterator[None]:
    """Let Python look for unreachable objects afterwards, while the daemon rests.

    A look at thousands of jobs makes many objects and no garbage that only a collection finds, and each full
    one walks through all jobs: a fifth of the time of a cycle.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


@dataclass(slots=True)
class ControllerMode:
    """How far the controller may go: shadow touches nothing, drain starts and stops nothing new."""

    shadow: bool = False
    drain: bool = False


@dataclass(slots=True)
class CycleStats:
    """What the last cycle saw and did, for those who ask.

    Attributes:
        now_s: When it was.
        observe_s: Seconds it took to look at Slurm.
        cycle_s: Seconds it took altogether.
        wakeup_s: When the policy wants to be asked again.
        decisions: How many of each kind were decided so far.
    """

    now_s: float = 0.0
    observe_s: float = 0.0
    cycle_s: float = 0.0
    wakeup_s: float = inf
    decisions: dict[str, int] = field(default_factory=dict)


class Controller:
    """One policy over one Slurm cluster.

    Args:
        slurm: Access to Slurm.
        config: Settings.
        topology: The cluster.
        profiles: Profiles of the models; None if no model is sensitive to the network.
        journal: Its memory, opened for it.
        mode: Shadow or drain.
        clock: Gives the time, seconds; None: the machine's, never going back.
        sleep: Waits some seconds.
        at: Told of each step, by name; for tests that stop there.
        progress_files: Reads what jobs report; None: on a thread.
        moved_s: By how much its clock was set since the journal was written, seconds; None: as far as the
            journal is ahead of it.
    """

    def __init__(
        self,
        slurm: Slurm,
        config: Config,
        topology: Topology,
        profiles: ProfileSet | None,
        journal: Journal,
        mode: ControllerMode | None = None,
        clock: Callable[[], float] | None = None,
        sleep: Callable[[float], None] = time.sleep,
        at: Callable[[str], None] = lambda step: None,
        progress_files: ProgressFiles | None = None,
        moved_s: float | None = None,
    ) -> None:
        memory = journal.load()
        self._slurm, self._config, self._journal = slurm, config, journal
        self._mode = mode or ControllerMode()
        self._clock = clock or WallClock(memory.now_s)
        self._sleep, self._at = sleep, at
        self.stats = CycleStats()
        self._nodes: tuple[SlurmNode, ...] = ()
        self._shown: dict[str, str] = {}
        self._vanished, self._is_first = VanishedJobs(), True
        self._beliefs_written_s = -inf
        self._rules_due_s, self._unread = -inf, dict[str, str]()
        now = self._clock()
        moved_s = min(0.0, now - memory.now_s) if moved_s is None else moved_s
        if abs(moved_s) >= JUMP_S:
            memory = self._moved(memory, moved_s, now)
        self._recording = self._new_recording()
        self.scheduler = self._scheduler(topology, profiles, memory, now)
        self.reconciler = Reconciler(
            self.scheduler, config, journal.write, self._mode.shadow, EndedJobs(journal, slurm).ended_as
        )
        self._priorities = JobPriorities(slurm, self.scheduler, journal.write)
        self._spent = SpentMinutes(slurm, self.reconciler.conditions)
        conditions = self.reconciler.conditions
        self._limits = TimeLimits(conditions.longest_s, conditions.reserved_at_s, self.scheduler.state)
        self._plan_checker = PlanChecker(self.reconciler, self._limits)
        self._reports = ProgressReports(self.reconciler, journal.write, progress_files)
        self._actuator = Actuator(
            slurm, self.reconciler, config, self._limits, journal.write, self._commit, at
        )
        self._annotations = Annotations(journal.write)
        if memory.lost:
            journal.write(now, JOURNAL_LOST, reason=memory.lost)
        self.reconciler.recall(memory.managed_jobs, now)
        if moved_s:
            self.reconciler.changed.update(self.reconciler.managed_jobs)

    def _moved(self, memory: JournalContents, by_s: float, now: float) -> JournalContents:
        """What is remembered, by a clock that was set: times of jobs are moved, the policy begins anew."""
        side = "ahead" if by_s > 0 else "back"
        reason = f"the clock was set {side} by {span(abs(by_s))}: times of jobs go with it"
        self._journal.write(now, "clock_followed", by_s=round(by_s, 3), reason=reason)
        jobs = {job_id: moved(managed, by_s) for job_id, managed in memory.managed_jobs.items()}
        return replace(memory, managed_jobs=jobs, policy="")

    def _scheduler(
        self, topology: Topology, profiles: ProfileSet | None, memory: JournalContents, now: float
    ) -> Scheduler:
        """State and policy, with what an earlier one has learnt if that can be read."""
        spec = parse_policy(self._config.policy)
        if profiles:  # on Slurm a resize is a checkpoint and a start
            requeues = (
                replace(each, restart=replace(each.restart, resize_s=each.restart.cost_s(1)))
                for each in profiles.profiles
            )
            profiles = replace(profiles, profiles=tuple(requeues))
        costs = CostModel(
            topology,
            profiles,
            Split(self._config.batch_split),
            spec.policy.batching,
            assumed_slowdown=self._config.assumed_slowdown,
            averaging=spec.policy.averaging(spec.knobs),
            learns=self._config.step_times == "learn",
        )
        self._recall_costs(costs, memory, now)
        known = Known(Knowledge(self._config.knowledge), learns_costs=costs.learnt is not None)
        state = ClusterState(topology, costs, known, self._config.priority_ratio)
        policy = self._policy(spec, state, memory, now)
        beliefs = self._beliefs(lambda: beliefs_of(state.knows, policy.learns_limits), memory, now)
        if self._recording is None:
            return Scheduler(state, policy, beliefs)
        return RecordedScheduler(state, policy, self._config.policy, self._recording, beliefs)

    def _recall_costs(self, costs: CostModel, memory: JournalContents, now: float) -> None:
        """Take back what step times have taught of costs."""
        if costs.learnt is None or not memory.costs:
            return
        try:
            costs.learnt.restore(memory.costs)
        except _MEMORY_ERRORS as error:
            self._journal.write(now, "learnt_costs_lost", reason=str(error))

    def _policy(self, spec: PolicySpec, state: ClusterState, memory: JournalContents, now: float) -> Policy:
        policy = spec.build(state)
        if not memory.policy:
            return policy
        try:
            if memory.policy != self._config.policy:
                raise ValueError(f"it was {memory.policy}")
            policy.restore(memory.learnt)
        except _MEMORY_ERRORS as error:
            self._journal.write(now, "policy_memory_lost", policy=self._config.policy, reason=repr(error))
            return spec.build(state)
        return policy

    def _beliefs(self, new: Callable[[], Beliefs], memory: JournalContents, now: float) -> Beliefs:
        """What was learnt of running times; of a new site, what its accounting can teach."""
        beliefs = new()
        if memory.believed:
            try:
                beliefs.restore(memory.believed)
            except _MEMORY_ERRORS as error:
                self._journal.write(now, "history_lost", reason=repr(error))
                return new()
        elif isinstance(beliefs, Learnt):
            try:
                jobs = self._slurm.ended_jobs(self._config.partitions, TAUGHT_DAYS)[-MOST_TAUGHT:]
            except SlurmUnavailableError as error:
                self._journal.write(now, "history_unread", reason=str(error))
                return beliefs
            for job in jobs:
                beliefs.teach(job, job.duration_s, now)
            if jobs:
                self._journal.write(now, "history_read", jobs=len(jobs), days=TAUGHT_DAYS)
            taught, beliefs = beliefs, new()
            beliefs.restore(taught.snapshot())  # as one that is rebuilt would be: a recording begins here
        return beliefs

    def _new_recording(self) -> Recording | None:
        """Where facts and plans go; what a shadow decides must not be taken for the real one's."""
        if not self._config.record:
            return None
        path = Path(self._config.record)
        if self._mode.shadow:
            path = path.with_name(f"shadow-{path.name}")

        def ended(reason: str) -> None:
            self._journal.write(self._clock(), "recording_ended", reason=reason)

        return Recording(path, ended, MOST_BYTES)

    @property
    def knowledge(self) -> str:
        """What the configuration says of what is known of running times."""
        return self._config.knowledge

    @property
    def drains(self) -> bool:
        """Whether it starts and stops nothing."""
        return self._mode.drain

    def cycle(self) -> float:
        """Observe, decide and apply once.

        Returns:
            When it wants to be called again, at the latest; seconds on its clock.

        Raises:
            SlurmUnavailableError: Slurm does not answer; nothing is lost, try again later.
            JournalError: The journal cannot be written; nothing was ordered after that, try again later.
            FencedError: Another controller has taken over; stop.
        """
        try:
            with collecting_no_garbage():
                return self._cycle()
        finally:
            if self._recording is not None:
                self._recording.flush()

    def _cycle(self) -> float:
        if self._is_first:
            self._await_known_jobs()
        began_s = time.perf_counter()
        now = self._clock()
        self._at("cycle")
        self._read_rules(now)
        self._priorities.refresh(now)
        self._observe(now)
        self._reports.take_reports(now)
        if self._mode.shadow:
            self.reconciler.corrections.clear()
            wakeup_s = self._decide_in_shadow(now)
        else:
            self._actuator.apply_corrections(now)
            self._actuator.checkpoint_in_time(now)
            if self._actuator.requeue_due(now):
                self._confirm(StoppingPhase)
            wakeup_s = inf if self._mode.drain else self._act(now)
            self._actuator.keep_for_oldest(now, starts_jobs=not self._mode.drain)
        self._commit(now)
        if not self._mode.shadow:
            self._annotate(now)
        self._at("cycle done")
        self.stats.now_s, self.stats.wakeup_s = now, wakeup_s
        self.stats.cycle_s = time.perf_counter() - began_s
        due_s = next_due_s(self.reconciler.managed_jobs.values(), now, self._config.restart_gap_s)
        return min(wakeup_s, due_s)

    def _await_known_jobs(self) -> None:
        """Leave Slurm a while before the first look if it lacks jobs of the journal."""
        if self.reconciler.managed_jobs.keys() - {job.job_id for job in self._slurm.jobs()}:
            self._sleep(GONE_S)
        self._is_first = False

    def _read_rules(self, now: float) -> None:
        """Read limits and blocks now and then; those read last hold while they cannot be read."""
        if now < self._rules_due_s:
            return
        self._rules_due_s = now + RULES_S
        groups_of.cache_clear()
        conditions, unread = self.reconciler.conditions, dict[str, str]()
        try:
            conditions.limits = self._slurm.limits()
        except SlurmUnavailableError as error:
            unread["limits_unread"] = str(error)
        try:
            self.reconciler.know_blocks(self._slurm.blocks(self._config.partitions))
        except SlurmUnavailableError as error:
            unread["blocks_unread"] = str(error)
        for event, reason in unread.items():
            if self._unread.get(event) != reason:
                self._journal.write(now, event, reason=reason)
        self._unread = unread

    def _observe(self, now: float) -> None:
        began_s = time.perf_counter()
        shown, self._nodes, reservations, partitions = self._slurm.look()
        jobs = self._vanished.restored(shown, now)
        self.reconciler.know_partitions(partitions)
        self._spent.refresh(jobs, now)
        if any(job.licenses and job.state is State.PENDING for job in jobs):
            self.reconciler.conditions.licenses = self._slurm.licenses()
        self.stats.observe_s = time.perf_counter() - began_s
        self.reconciler.reconcile(jobs, self._nodes, reservations, now)
        self._priorities.assign(self.reconciler.all_seen, self._nodes, now)
        self._at("observed")

    def _act(self, now: float) -> float:
        """Carry out what could not be until now, then decide and carry that out."""
        if self._actuator.start_pending(self._nodes, now):
            self._confirm(StartingPhase)
        plan = self._plan_checker.decide(now)
        self._count(plan)
        self._at("decided")
        # Jobs stop before others start: on the GPUs that they leave.
        if self._actuator.stop(plan, now):
            self._confirm(StoppingPhase)
        if self._actuator.start(plan, self._nodes, now):
            self._confirm(StartingPhase)
        self._actuator.record_waits(plan, self._clock())  # what was seen meanwhile is on record before
        self.scheduler.plan_applied(now)
        return max(plan.wakeup_s, now + self._config.poll_s) if self._awaits_stops(plan) else plan.wakeup_s

    def _awaits_stops(self, plan: Plan) -> bool:
        """Whether jobs that a plan stops are still there: what that brings shows once they have left.

        Policies want to be asked again at once where they stop jobs, as in a simulation those leave at once.
        They do not know that others leave already for a job, and stop more for it, which are left alone.
        """
        known = self.reconciler.managed_jobs
        return any(
            isinstance(known[each.job_id].phase, ON_GPUS if isinstance(each, Preempt) else StoppingPhase)
            for each in plan.decisions
            if isinstance(each, Preempt | Migrate) and each.job_id in known
        )

    def _confirm(self, phase: type[StartingPhase | StoppingPhase]) -> None:
        """Look until the jobs that should have started or come back have, or it is left to the next cycle.

        Stopping jobs in their grace are not due.
        """
        for pause_s in CONFIRM_S:
            if pause_s:
                self._sleep(pause_s)
            self._observe(self._clock())
            now = self._clock()
            under_way = any(
                isinstance(managed.phase, phase) and (phase is StartingPhase or now >= managed.phase.until_s)
                for managed in self.reconciler.managed_jobs.values()
            )
            if not under_way and not self.reconciler.companions.starting:
                break
        self._actuator.apply_corrections(self._clock())

    def _annotate(self, now: float) -> None:
        """Tell users why their jobs wait; what does not reach Slurm is told again."""
        orders = self._annotations.due(self.reconciler.managed_jobs, self.reconciler.seen, now)
        if orders:
            with suppress(SlurmUnavailableError):
                self._annotations.answered(orders, self._slurm.run(orders), now)

    def _decide_in_shadow(self, now: float) -> float:
        """Decide and say so, once for each new decision; the facts come from Slurm."""
        plan = self.scheduler.decide(now)
        self._count(plan)
        acts: dict[str, Start | Preempt | Migrate] = {
            each.job_id: each for each in plan.decisions if isinstance(each, Start | Preempt | Migrate)
        }
        shown = {job_id: f"would_{type(act).__name__.lower()}" for job_id, act in acts.items()}
        for job_id, act in acts.items():
            if self._shown.get(job_id) != shown[job_id]:
                named = self.scheduler.state.topology.named
                gpus = {} if isinstance(act, Preempt) else named(act.allocation)
                self._journal.write(now, shown[job_id], job=job_id, gpus=gpus, reason=act.reason)
        self._shown = shown
        self._actuator.record_waits(plan, now)
        self.scheduler.plan_applied(now)
        return plan.wakeup_s

    def _count(self, plan: Plan) -> None:
        for decision in plan.decisions:
            kind = type(decision).__name__.lower()
            self.stats.decisions[kind] = self.stats.decisions.get(kind, 0) + 1

    def write_beliefs(self) -> None:
        """Write what was learnt in the last minute, before another controller goes on from the journal.

        Raises:
            FencedError: Another controller has opened the journal.
            JournalError: It cannot be written.
        """
        self._journal.commit(self._clock(), believed=self.scheduler.beliefs.snapshot())

    def _commit(self, now: float) -> None:
        reconciler, known = self.reconciler, self.reconciler.managed_jobs
        if lost := self._journal.renew_if_lost():
            reconciler.changed.update(known)
            self._journal.write(now, JOURNAL_LOST, reason=lost)
        changed = [known[job_id] for job_id in sorted(reconciler.changed) if job_id in known]
        gone = reconciler.gone - known.keys()
        policy, beliefs = self.scheduler.policy, self.scheduler.beliefs
        is_due = not 0 <= now - self._beliefs_written_s < _BELIEFS_EVERY_S
        believed = beliefs.snapshot() if lost or (is_due and not beliefs.is_saved) else None
        learnt = self.scheduler.state.costs.learnt
        costs = None if learnt is None or (learnt.is_saved and not lost) else learnt.snapshot()
        self._journal.commit(now, changed, gone, self._config.policy, policy.snapshot(), believed, costs)
        reconciler.changed.clear()
        reconciler.gone.clear()
        if believed is not None:
            beliefs.is_saved, self._beliefs_written_s = True, now
        if learnt is not None:
            learnt.is_saved = True
