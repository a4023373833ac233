"""Decides which waiting jobs the policy sees: those that Slurm would start if it had the GPUs."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import inf

from dally.errors import DallyError
from slurm_plugin.client.slurm import HOLDS_GPUS, Hold, SlurmJob, State
from slurm_plugin.config import Config
from slurm_plugin.controller import failed_starts
from slurm_plugin.controller.eligibility import SeenJobs, array_slots, ineligible_reason
from slurm_plugin.controller.job_requests import RequestReader, asked_size
from slurm_plugin.controller.limit_use import QueuedJobs
from slurm_plugin.controller.managed_job import WAITS, IneligiblePhase, ManagedJob, PendingPhase, Refusals
from slurm_plugin.controller.node_room import NodeResources
from slurm_plugin.controller.node_sets import with_nodes_of_now
from slurm_plugin.controller.pending_starts import PendingStarts
from slurm_plugin.controller.requeues import ForeignRequeues
from slurm_plugin.controller.start_conditions import StartConditions
from slurm_plugin.controller.taken_back import TakenBack
from slurm_plugin.controller.transitions import JobTransitions, Log


@dataclass(frozen=True, slots=True)
class _Obstacle:
    """What keeps a waiting job out of the policy's queue; the fields are those of `IneligiblePhase`."""

    why: str
    until_s: float = inf
    held: bool = False
    accrues: bool = False

    def tell(self, transitions: JobTransitions, managed: ManagedJob, now: float) -> None:
        """Take the job out of the queue, or say what is new."""
        queued = isinstance(managed.phase, PendingPhase)
        if queued or managed.reason != self.why or managed.phase.until_s <= now:
            transitions.set_ineligible(managed, now, self.why, self.until_s, self.held, self.accrues)


class Admission:
    """Puts waiting jobs into the policy's queue, and leaves those out that could not start.

    Args:
        transitions: The only writer of managed jobs.
        reader: What jobs ask for.
        conditions: What Slurm would hold against a start beside GPUs.
        pending_starts: Starts that wait for others to leave.
        requeues: Jobs that others requeue again and again.
        config: Settings.
        log: Where events go.

    Attributes:
        limit_use: What is taken of limits and licences, pending starts included.
        taken_back: Starts that users take back.
    """

    def __init__(
        self,
        transitions: JobTransitions,
        reader: RequestReader,
        conditions: StartConditions,
        pending_starts: PendingStarts,
        requeues: ForeignRequeues,
        config: Config,
        log: Log,
    ) -> None:
        self._transitions, self._managed_jobs = transitions, transitions.managed_jobs
        self._reader, self._conditions, self._pending_starts = reader, conditions, pending_starts
        self._requeues, self._config, self._log = requeues, config, log
        self.limit_use = conditions.limit_use(-inf)
        self.taken_back = TakenBack(config.backoff_s)
        self._seen: Mapping[str, SlurmJob] = {}
        self._before: Mapping[str, SlurmJob] = {}

    def observe(self, jobs: Mapping[str, SlurmJob]) -> None:
        """Take in a look at Slurm."""
        self._before, self._seen = self._seen, jobs

    def cannot_place(self, managed: ManagedJob, job: SlurmJob, now: float) -> str:
        """Take in what a waiting job asks for now; why Dally cannot place it, or nothing if it can."""
        request = self._reader.request(job) or managed.request
        try:
            request = with_nodes_of_now(managed, job, request)
            self._transitions.note_request(managed, request, asked_size(managed, job))
            asked = self._reader.asked(managed, job, request)
        except DallyError as error:
            return str(error)
        if job.time_limit_s != managed.limit_s:
            self._transitions.note_own_limit(managed)
        self._transitions.become(managed, asked, now)
        if managed.refusals.reason and failed_starts.asked_for(managed, job) != managed.refusals.asked:
            self._transitions.note_refusals(managed, Refusals())
            if isinstance(managed.phase, IneligiblePhase):
                self._transitions.retry(managed, now)
        return ""

    def retry_refused(self, now: float) -> None:
        """Examine refused jobs again when a job has left that may have been in their way."""
        before, seen = self._before, self._seen
        left = [
            job
            for job in before.values()
            if job.state in HOLDS_GPUS and not (job.job_id in seen and seen[job.job_id].state in HOLDS_GPUS)
        ]
        for managed in self._managed_jobs.values():
            phase, refusals = managed.phase, managed.refusals
            if isinstance(phase, PendingPhase) and refusals.nodes:
                pause_s = failed_starts.longer(self._config.backoff_s, refusals.count)
                if now >= phase.since_s + pause_s:
                    self._transitions.note_refusals(managed, replace(refusals, nodes=()))
            if not isinstance(phase, IneligiblePhase) or phase.until_s == inf:
                continue
            if now >= phase.until_s:
                self._transitions.note_refusals(managed, replace(refusals, nodes=()))
            elif left and (
                phase.reason == refusals.declined
                or any(failed_starts.may_help(refusals.reason, seen[managed.job_id], job) for job in left)
            ):
                freed = {node for job in left for node in job.nodes}
                nodes = tuple(node for node in refusals.nodes if node not in freed)
                self._transitions.note_refusals(managed, replace(refusals, nodes=nodes))
                self._transitions.retry(managed, now)

    def admit(self, now: float) -> list[tuple[ManagedJob, str]]:
        """Put the jobs that may start now into the policy's queue, and take the others out.

        Jobs for which others leave have their share of limits and licences first. All others that fit into
        what is left are queued: an older one may wait for GPUs that a younger one does not need. Of jobs that
        are alike only as many are queued as fit together.

        Returns:
            Jobs that have come to ask for what Dally cannot place, and why.
        """
        slots, seen = array_slots(self._seen.values(), self._managed_jobs), SeenJobs(self._seen)
        self.limit_use = self._conditions.limit_use(now)
        queued, refusals = QueuedJobs(self.limit_use), dict[tuple[int, int], str]()
        misfits = list[tuple[ManagedJob, str]]()
        waiting = [managed for managed in self._managed_jobs.values() if isinstance(managed.phase, WAITS)]
        waiting.sort(key=lambda each: (each.job_id not in self._pending_starts, each.arrival))
        for managed in waiting:
            job = self._seen[managed.job_id]
            unchanged = job.state is not State.PENDING or job is self._before.get(managed.job_id)
            if unfit := "" if unchanged else self.cannot_place(managed, job, now):
                misfits.append((managed, unfit))
                continue
            pending_gpus = self._pending_starts.gpus(managed.job_id)
            obstacle = self._ineligible(managed, job, slots, seen, now)
            if obstacle := obstacle or self._refused(managed, job, pending_gpus, queued, refusals, now):
                obstacle.tell(self._transitions, managed, now)
                if job.array_throttle and obstacle.until_s < inf:
                    slots[job.array_id] += 1  # it is left out for a while, and takes no slot of its array
                continue
            if pending_gpus:
                self.limit_use.promise(job, pending_gpus)
                refusals.clear()
            queued.add(managed, job, pending_gpus or managed.job.least_gpus)
            if isinstance(managed.phase, IneligiblePhase):
                self._transitions.queue(managed, now)
        return misfits

    def _ineligible(
        self, managed: ManagedJob, job: SlurmJob, slots: Counter[str], seen: SeenJobs, now: float
    ) -> _Obstacle | None:
        """What keeps a waiting job from starting whatever is free."""
        if job.state is not State.PENDING:
            held = isinstance(managed.phase, IneligiblePhase) and managed.phase.held
            return _Obstacle(f"Slurm shows it as {job.state_name}", held=held)
        if why := ineligible_reason(managed, job, slots, now, seen):
            return _Obstacle(why, held=job.hold is Hold.ADMIN or managed.held_by_its_user)
        for why, until_s in (
            self._requeues.pause(managed.job_id, now),
            self.taken_back.pause(managed.job.user, now),
        ):
            if why:
                return _Obstacle(why, until_s)
        return None

    def _refused(
        self,
        managed: ManagedJob,
        job: SlurmJob,
        pending_gpus: int,
        queued: QueuedJobs,
        refusals: dict[tuple[int, int], str],
        now: float,
    ) -> _Obstacle | None:
        """What keeps an eligible job from starting beside GPUs: limits, licences, nodes, or a job like it.

        Args:
            managed: The job.
            job: As Slurm shows it.
            pending_gpus: The GPUs for which others leave for it; 0 for none.
            queued: The jobs that are queued so far.
            refusals: Why jobs of a demand, with so many GPUs, may not start, as far as is known.
            now: The time, seconds.
        """
        gpus = pending_gpus or managed.job.least_gpus
        demand = self._conditions.equal_demands.number(managed, job)
        same = demand, gpus
        if same not in refusals:
            refusals[same] = self._conditions.refusal(managed, self.limit_use, gpus)
        if why := refusals[same]:
            return _Obstacle(why, accrues=True)
        if why := self._narrow(managed, demand, now):
            return _Obstacle(
                why, now + self._config.backoff_s if managed.refusals.nodes else inf, accrues=True
            )
        has_one_like = not pending_gpus and queued.has_one_like(managed, job)
        if has_one_like and self._conditions.refusal(managed, queued.use, gpus):
            return _Obstacle(
                "a job like it goes first, and a limit or licence is not enough for both", accrues=True
            )
        return None

    def _narrow(self, managed: ManagedJob, demand: int, now: float) -> str:
        """Tell the policy on which nodes a waiting job may start now; why it may not, if on too few.

        Args:
            managed: The job.
            demand: The number of what it asks for.
            now: The time, seconds.
        """
        self._transitions.begin_switch_wait(managed, now)
        narrowed, why = self._conditions.narrowed(managed, demand, now)
        self._transitions.become(managed, narrowed, now)
        return why

    # What became of decisions, told by those who carry them out.

    def start_failed(self, managed: ManagedJob, now: float, reason: str) -> None:
        """Slurm would not start it there: it is held again, and tries other nodes or is left out a while."""
        refusals = failed_starts.refused(managed, self._seen[managed.job_id], reason)
        self._transitions.note_refusals(managed, refusals)
        pause_s = failed_starts.pause_s(refusals, self._config.backoff_s)
        why = f"could not start on {', '.join(managed.gpus)}: {reason}"
        if pause_s:
            self._transitions.back_off(managed, now, why, until_s=now + pause_s)
        else:
            self._transitions.try_elsewhere(managed, now, why)
        self._log(now, "start_failed", job=managed.job_id, reason=why, again_in_s=pause_s)

    def start_declined(self, managed: ManagedJob, now: float, why: str) -> None:
        """What the policy decided for it is not carried out: it is left out until a job leaves."""
        if managed.refusals.declined != why:
            self._log(now, "start_declined", job=managed.job_id, reason=why)
        self._transitions.note_refusals(managed, replace(managed.refusals, declined=why))
        self._transitions.set_ineligible(managed, now, why, until_s=now + self._config.backoff_s)

    def start_beyond_limit(self, managed: ManagedJob, now: float, why: str) -> None:
        """It was to start beside others that take what is left of a limit or licence."""
        self._transitions.set_ineligible(managed, now, why, accrues=True)

    def nodes_full(self, managed: ManagedJob, lacking: Mapping[str, NodeResources], now: float) -> None:
        """A start was decided on nodes without the CPUs or memory for it: they are kept from the job."""
        self._conditions.exclude(managed, lacking)
        demand = self._conditions.equal_demands.number(managed, self._seen[managed.job_id])
        if why := self._narrow(managed, demand, now):
            self.start_declined(managed, now, why)
