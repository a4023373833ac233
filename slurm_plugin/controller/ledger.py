"""Keeps tickets and the policy's books alike: a job is told to both or to neither."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from math import inf

from dally.cluster.topology import Allocation
from dally.errors import CapacityError, DallyError
from dally.jobs.job import Job, JobKind
from dally.jobs.progress import ProgressReport
from dally.scheduling.scheduler import Scheduler
from dally.state import JobState, Past, Phase
from slurm_plugin.controller.tickets import NEW, ON_GPUS, WITH_POLICY, Standing, Stretch, Ticket

Log = Callable[..., None]
"""Records an event: `log(now, event, **said)`."""


class Ledger:
    """Tickets, and the same jobs in the policy's state.

    Attributes:
        scheduler: State and policy.
        tickets: Our jobs, by number.
        changed: Tickets that differ from the journal's.
        gone: Numbers whose tickets are no longer needed.
    """

    def __init__(self, scheduler: Scheduler, log: Log) -> None:
        self.scheduler = scheduler
        self.tickets: dict[str, Ticket] = {}
        self.changed: set[str] = set()
        self.gone: set[str] = set()
        self._log, self._state = log, scheduler.state
        self._machines = scheduler.state.topology.machine_index

    def take_up(self, ticket: Ticket, now: float) -> str:
        """Tell the policy of a job that waits or runs since before it was built; why not, if it cannot be."""
        try:
            allocation = self._allocation(ticket.gpus)
            self._state.best_level(ticket.job.gang)
        except (CapacityError, KeyError):
            return "the cluster has changed and cannot hold it"
        if ticket.stretch is not None and not self._state.free.holds(allocation):
            return "the cluster has changed; it runs on as it is"
        self.scheduler.submit(ticket.job, now, ticket.past)
        if (run := ticket.stretch) is not None:
            self.scheduler.resume(ticket.job_id, allocation, run.since_s, run.ready_s, now, run.speed)
        return ""

    def queue(self, ticket: Ticket, now: float) -> None:
        """Nothing but a placement is missing: the policy is to know it."""
        if ticket.standing is Standing.WAITING:
            return
        if ticket.until_s == inf and ticket.why != NEW:  # what it waited for was not a placement
            ticket.past = replace(ticket.past, origin_s=now)
        self.scheduler.submit(ticket.job, now, ticket.past)
        self.move(ticket, Standing.WAITING, now, "in the queue")

    def aside_once(self, ticket: Ticket, now: float, why: str) -> None:
        """The policy is not to know it, if it does not wait for that reason already."""
        if ticket.standing is Standing.WAITING or ticket.why != why:
            self.aside(ticket, now, why)

    def aside(self, ticket: Ticket, now: float, why: str, until_s: float = inf) -> None:
        """The policy is not to know it for now."""
        if ticket.standing in (Standing.WAITING, Standing.STARTING):
            ticket.past = past(self.scheduler.withdraw(ticket.job_id, now))
        self.move(ticket, Standing.ASIDE, now, why)
        ticket.until_s = until_s

    def end(self, ticket: Ticket, now: float, how: str) -> None:
        """Forget a job, whatever it was doing."""
        if ticket.standing in ON_GPUS:
            self.scheduler.finish(ticket.job_id, now)
        elif ticket.standing in WITH_POLICY:
            self.scheduler.withdraw(ticket.job_id, now)
        del self.tickets[ticket.job_id]
        self.changed.discard(ticket.job_id)
        self.gone.add(ticket.job_id)
        self._log(now, "end", job=ticket.job_id, status=how)

    def stop(self, ticket: Ticket, now: float) -> None:
        """It lost its GPUs, as it was to or not, and waits again."""
        life = self._state.jobs[ticket.job_id]
        if ticket.standing is Standing.STOPPING and life.job.preemptible:
            self.scheduler.preempt(ticket.job_id, now)
        else:
            self.scheduler.fail(ticket.job_id, now, life.work_s(now))
        ticket.job, ticket.past = life.job, past(life)
        self.move(ticket, Standing.WAITING, now, ticket.why)

    def resize(self, ticket: Ticket, now: float) -> None:
        """It goes on on other GPUs, which are to be told next."""
        if ticket.job.preemptible:
            life = self.scheduler.preempt(ticket.job_id, now, resized=True)
        else:
            life = self.scheduler.fail(ticket.job_id, now, self._state.jobs[ticket.job_id].work_s(now))
        ticket.past = past(life)
        self.move(ticket, Standing.WAITING, now, ticket.why)

    def report_progress(self, ticket: Ticket, report: ProgressReport, now: float) -> None:
        """It runs, and reported how far it is."""
        life = self.scheduler.report_progress(ticket.job_id, report, now)
        assert ticket.stretch is not None, "it runs"
        ticket.stretch.speed, ticket.stretch.ready_s = life.speed, life.ready_s
        ticket.past = replace(ticket.past, progress=life.progress)
        self.changed.add(ticket.job_id)

    def keep_from_stopping(self, ticket: Ticket) -> None:
        """A waiting job is not to be stopped again, once it runs."""
        ticket.job = self.scheduler.protect(ticket.job_id)

    def carry_on(self, ticket: Ticket, now: float, why: str) -> None:
        """It runs on where it is, and is not to be stopped: the policy sees a new stretch."""
        life, start_s = self._state.jobs[ticket.job_id], self.slurm_start_s(ticket)
        allocation, speed, gpus = life.allocation, life.speed, ticket.gpus
        ticket.standing = Standing.RUNNING
        self.stop(ticket, now)
        self.keep_from_stopping(ticket)
        ticket.gpus, ticket.moving, ticket.resizing = gpus, False, False
        self.run(ticket, allocation, now, speed, start_s)
        self.move(ticket, Standing.RUNNING, now, why)

    def slurm_start_s(self, ticket: Ticket) -> float:
        """When a job that runs began to, as Slurm says."""
        assert ticket.stretch is not None, "it runs"
        return ticket.stretch.slurm_start_s

    def fitting(self, ticket: Ticket, gpus: Mapping[str, int], now: float) -> Allocation | None:
        """The GPUs that a job holds, if they can be its own; it is then one that asks for as many."""
        try:
            allocation = self._allocation(gpus)
            asked = _matched(ticket.job, gpus)
            self._state.best_level(asked.gang)
        except (KeyError, DallyError):
            return None
        for machine, _ in allocation:
            self.scheduler.withhold(machine, 0)
        if not self._state.free.holds(allocation):
            return None
        self.become(ticket, asked, now)
        return allocation

    def run(
        self, ticket: Ticket, allocation: Allocation, since_s: float, speed: float, slurm_start_s: float
    ) -> JobState:
        """The policy sees it start."""
        life = self.scheduler.start(ticket.job_id, allocation, since_s, speed)
        ticket.stretch = Stretch(life.since_s, life.ready_s, life.speed, slurm_start_s)
        return life

    def become(self, ticket: Ticket, asked: Job, now: float) -> None:
        """It asks for something else now."""
        if asked != ticket.job:
            if ticket.standing in WITH_POLICY:
                ticket.past = past(self.scheduler.withdraw(ticket.job_id, now))
                self.scheduler.submit(asked, now, ticket.past)
            ticket.job = asked
            self.changed.add(ticket.job_id)

    def move(self, ticket: Ticket, standing: Standing, now: float, why: str) -> None:
        """It stands elsewhere from now on."""
        ticket.standing, ticket.since_s, ticket.why = standing, now, why
        ticket.until_s, ticket.level = inf, ""
        if standing not in ON_GPUS:
            ticket.stretch, ticket.gpus = None, {}
        self.changed.add(ticket.job_id)

    def stands(self, job_id: str) -> Standing | None:
        """Where a job stands; None if it is not ours."""
        return self.tickets[job_id].standing if job_id in self.tickets else None

    def _allocation(self, gpus: Mapping[str, int]) -> Allocation:
        """GPUs by machine index; KeyError if a node is not in the cluster file."""
        return tuple(sorted((self._machines[node], count) for node, count in gpus.items()))


def _matched(job: Job, gpus: Mapping[str, int]) -> Job:
    """The job as one that asks for what Slurm gave it, whatever it seemed to ask for."""
    if job.runs_on([*gpus.values()]):
        return job
    return replace(
        job,
        gpus=sum(gpus.values()),
        gpus_per_machine=None,
        kind=JobKind.RIGID,
        min_gpus=None,
        max_gpus=None,
        max_copies=1,
        gpu_type=None,
    )


def past(life: JobState) -> Past:
    """What happened to a job before the wait it is in."""
    assert life.phase is not Phase.RUNNING, "a running job's past ends with its stretch"
    return Past(
        life.origin_s,
        life.first_start_s,
        life.work_before_s,
        life.run_before_s,
        life.training_before_s,
        life.preemptions,
        life.more_before_s,
        life.progress,
    )
