"""Keeps tickets, cluster state and policy in step with what Slurm shows, and says what must be mended."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from math import inf

from dally.errors import DallyError
from dally.jobs.job import Job
from dally.jobs.progress import ProgressReport
from dally.scheduling.scheduler import Scheduler, start_facts
from dally.state import Past
from slurm_plugin.client.slurm import (
    HOLDS_GPUS,
    Hold,
    HoldBack,
    Order,
    Requeue,
    Reservation,
    SlurmJob,
    SlurmNode,
    State,
    Unfence,
    arrival,
)
from slurm_plugin.config import Config
from slurm_plugin.controller import refusals
from slurm_plugin.controller.claims import PendingStarts
from slurm_plugin.controller.companions import Companions
from slurm_plugin.controller.intake import Intake, asked_size, hand_back_order, shown_size
from slurm_plugin.controller.ledger import Ledger, Log
from slurm_plugin.controller.limits import save_at_s
from slurm_plugin.controller.obstacles import array_slots, obstacle
from slurm_plugin.controller.tickets import (
    NEW,
    ON_GPUS,
    WITH_POLICY,
    Standing,
    Ticket,
    checkpointed,
    wants_back,
)
from slurm_plugin.controller.withheld import FENCE, closed_nodes, idle_fences, still_left, withhold

_TOO_LONG = "PartitionTimeLimit"
"""What Slurm says of a job that asks for more time than its partition allows; it starts nowhere."""

_FORGOTTEN_GAPS = 2
"""For how many restart gaps a run may go on that slurmctld forgot, as it was killed just after the start.

It asks the nodes 3 s after it is up again, and they end the run. Before, the same job there drains a node for
a duplicate number; just after, its credential counts as revoked and it fails (docs/slurm-versions.md).
"""

_RUNS = (State.RUNNING, State.SUSPENDED)

_NOT_BY_DALLY = "was put back, and not by Dally: by itself, by hand, or as a machine failed"


class Mirror:
    """Slurm's jobs and nodes as tickets and as the state that the policy decides on.

    It tells the policy facts only: a job is started when Slurm shows it running, stopped when it is back in
    the queue. Folding the same view twice changes nothing.

    Attributes:
        tickets: Our jobs, by number.
        scheduler: State and policy.
        orders: What Slurm must be told so that it agrees with the tickets, as of the last view.
        changed: Tickets that differ from the journal's.
        gone: Numbers whose tickets are no longer needed.
        decided: Numbers of jobs that are stopping or starting, in the order in which that was decided.
        claims: Starts that wait for others to leave.
        companions: Of elastic jobs.
        most_memory_mb: Memory of the node that has most; 0 if unknown.
    """

    def __init__(self, scheduler: Scheduler, config: Config, log: Log, shadow: bool = False) -> None:
        self._ledger = ledger = Ledger(scheduler, log)
        self.scheduler, self.state = scheduler, scheduler.state
        self.tickets, self.changed, self.gone = ledger.tickets, ledger.changed, ledger.gone
        self.orders: list[Order] = []
        self.decided: list[str] = []
        self.claims = PendingStarts(ledger.tickets, self.state.topology, config.restart_gap_s)
        self._config, self._log, self._shadow = config, log, shadow
        self._intake = Intake(config, self.state.best_level, shadow)
        self.companions = Companions(self._intake.request, config.restart_gap_s)
        self.most_memory_mb = 0.0
        self._seen: dict[str, SlurmJob] = {}
        self._before: dict[str, SlurmJob] = {}
        self._last_s = -inf

    def recall(self, tickets: Mapping[str, Ticket], now: float) -> None:
        """Take up the tickets of a controller that is no more; its policy must have been restored."""
        for ticket in sorted(tickets.values(), key=_arrival):
            self.tickets[ticket.job_id] = ticket
            if ticket.standing in WITH_POLICY and (why := self._ledger.take_up(ticket, now)):
                self._leave(ticket, now, why, hand_back=ticket.stretch is None)

    def fold(
        self,
        jobs: Sequence[SlurmJob],
        nodes: Sequence[SlurmNode],
        reservations: Iterable[Reservation],
        now: float,
    ) -> None:
        """Take in one view of Slurm: what left or came back, then what started, then what is new."""
        jobs = jobs if self._shadow else self.companions.fold(jobs, now)
        self._before, self._seen = self._seen, {job.job_id: job for job in jobs}
        self.orders = []
        self.most_memory_mb = max((node.memory_mb for node in nodes), default=0.0)
        for job_id in self._in_order():
            self._follow(self.tickets[job_id], now)
        running = [job_id for job_id in self._in_order() if self._seen[job_id].state in _RUNS]
        for job_id in running:
            self._fold_size(self.tickets[job_id], self._seen[job_id], now)
        for job_id in running:
            self._fold_running(self.tickets[job_id], self._seen[job_id], now)
        under_way = (Standing.STARTING, Standing.STOPPING)
        self.decided = [job_id for job_id in self.decided if self._ledger.stands(job_id) in under_way]
        new = [job for job in jobs if job.job_id not in self.tickets and job.state in (State.PENDING, *_RUNS)]
        for job in sorted(new, key=lambda each: arrival(each.submit_s, each.job_id)):
            self._meet(job, now)
        self._call_back(jobs)
        self._wake(now)
        self._admit(now)
        closed = closed_nodes(nodes, reservations, now) | still_left(self.tickets.values(), now)
        withhold(self.scheduler, self.tickets, self.claims.kept(now), jobs, nodes, closed)
        self.orders += self.companions.mend(self.tickets)
        self.orders += map(Unfence, idle_fences(reservations, self.tickets, now))
        self._last_s = now

    def _in_order(self) -> list[str]:
        """Our jobs: those with a decision under way first, so that facts come in the order of decisions."""
        decided = [job_id for job_id in self.decided if job_id in self.tickets]
        return [*dict.fromkeys([*decided, *self.tickets])]

    def seen(self, job_id: str) -> SlurmJob:
        """A job as Slurm last showed it."""
        return self._seen[job_id]

    def report_progress(self, ticket: Ticket, report: ProgressReport, now: float) -> None:
        """A running job reported how far it is."""
        self._ledger.report_progress(ticket, report, now)

    def _follow(self, ticket: Ticket, now: float) -> None:
        """A job that we know: has it gone, ended, or come back?"""
        job = self._seen.get(ticket.job_id)
        if job is None or not ticket.same_as(job, self._intake.tag(job)):
            self._ledger.end(ticket, now, "GONE")
            return
        put_back = job.restarts > ticket.restarts
        if job.restarts < ticket.restarts and ticket.standing in (Standing.WAITING, Standing.ASIDE):
            ticket.hold_back = True  # slurmctld crashed and forgot that it was put back
        if (ticket.submit_s, ticket.restarts) != (job.submit_s, job.restarts):
            ticket.submit_s, ticket.restarts = job.submit_s, job.restarts
            self.changed.add(ticket.job_id)
        if job.state is State.ENDED:
            self._fold_ended(ticket, job, now)
        elif job.state is State.PENDING:
            self._fold_pending(ticket, job, now, put_back)

    def _fold_ended(self, ticket: Ticket, job: SlurmJob, now: float) -> None:
        if checkpointed(ticket, job):
            return  # it will be put back
        if ticket.standing is Standing.STARTING and job.start_s is not None and job.nodes:
            self._start(ticket, job, now)
        self._ledger.end(ticket, now, job.state_name)

    def _fold_pending(self, ticket: Ticket, job: SlurmJob, now: float, put_back: bool = False) -> None:
        if ticket.standing in ON_GPUS:
            self._come_back(ticket, job, now, put_back)
        elif ticket.standing is Standing.STARTING:
            self._fold_starting(ticket, job, now, put_back)
        if ticket.standing is Standing.LEFT:
            self._fold_left(ticket, job, now)
        elif ticket.standing is not Standing.STARTING and not self._shadow:
            self._keep_held(ticket, job, now)

    def _keep_held(self, ticket: Ticket, job: SlurmJob, now: float) -> None:
        """A job that waits for us is held, and tied to no nodes that we chose before."""
        if job.hold is Hold.NONE:
            if ticket.person_held:
                ticket.person_held, ticket.unheld, ticket.hold_back = False, True, True
                self.changed.add(ticket.job_id)
            if ticket.hold_back:
                self.orders.append(HoldBack(ticket.job_id))
            else:
                self._leave(ticket, now, "somebody released it; Slurm schedules it")
            return
        if ticket.hold_back:
            ticket.hold_back = False
            self.changed.add(ticket.job_id)
        if job.hold is Hold.USER and ticket.released and (job.required_nodes or job.reservation):
            self.orders.append(HoldBack(ticket.job_id))

    def _come_back(self, ticket: Ticket, job: SlurmJob, now: float, put_back: bool = True) -> None:
        """It lost its GPUs and waits again: by us, by an administrator, as a node or slurmctld failed."""
        wanted = ticket.standing is Standing.STOPPING
        self._leave_nodes(ticket, now, forgotten=not put_back)
        self._ledger.stop(ticket, now)
        if max(job.restarts, ticket.past.preemptions) >= self._config.max_requeues:
            self._ledger.keep_from_stopping(ticket)
        ticket.hold_back = True
        if wanted and not ticket.moving:
            self._log(now, "preempt", job=ticket.job_id, by=list(ticket.by), reason=ticket.why)
        elif not wanted:
            self._log(now, "fail", job=ticket.job_id, lost_s=0.0, reason=_NOT_BY_DALLY)

    def _leave_nodes(self, ticket: Ticket, now: float, forgotten: bool) -> None:
        """It is gone from its nodes; a run that Slurm forgot will be, in a while."""
        ticket.left_nodes = tuple(ticket.gpus)
        ticket.left_s = now + (_FORGOTTEN_GAPS * self._config.restart_gap_s if forgotten else 0.0)

    def _fold_starting(self, ticket: Ticket, job: SlurmJob, now: float, put_back: bool) -> None:
        if job.reason == _TOO_LONG and job.hold is Hold.NONE:
            why = (
                f"asks for more time than partition {job.partition} allows ({_TOO_LONG}); Slurm schedules it"
            )
            self._leave(ticket, now, why, hand_back=True)
            return
        if put_back:
            self.refuse(ticket, now, job.reason or "Slurm put it back")
        elif job.hold is not Hold.NONE:  # it was not released, or slurmctld forgot that it was
            self._leave_nodes(ticket, now, forgotten=True)
            self._ledger.move(ticket, Standing.WAITING, now, "its start was interrupted")
        elif now >= ticket.until_s or refusals.is_hopeless(job.reason):
            self.refuse(ticket, now, job.reason or refusals.LATE)

    def refuse(self, ticket: Ticket, now: float, reason: str) -> None:
        """Slurm would not start it there: it is held again, and tries other nodes or is left out a while."""
        refusals.remember(ticket, self._seen[ticket.job_id], reason)
        pause_s = refusals.pause_s(ticket, self._config.backoff_s)
        why = f"could not start on {', '.join(ticket.gpus)}: {reason}"
        if pause_s:
            self._ledger.aside(ticket, now, why, until_s=now + pause_s)
        else:
            self._ledger.move(ticket, Standing.WAITING, now, why)
        ticket.hold_back = True
        self._log(now, "refuse", job=ticket.job_id, reason=why, again_in_s=pause_s)

    def decline(self, ticket: Ticket, now: float, why: str) -> None:
        """What the policy decided for a waiting job is not carried out: it is left out until a job leaves."""
        if ticket.declined != why:
            self._log(now, "decline", job=ticket.job_id, reason=why)
        self._ledger.aside(ticket, now, why, until_s=now + self._config.backoff_s)
        ticket.declined = why

    def _wake(self, now: float) -> None:
        """Refused jobs are looked at again when a job has left that may have been in their way."""
        before, seen = self._before, self._seen
        left = [
            job
            for job in before.values()
            if job.state in HOLDS_GPUS and not (job.job_id in seen and seen[job.job_id].state in HOLDS_GPUS)
        ]
        for ticket in self.tickets.values():
            if ticket.standing is not Standing.ASIDE or ticket.until_s == inf:
                continue
            if now >= ticket.until_s:
                ticket.refused_nodes = ()
            elif left and (
                ticket.why == ticket.declined
                or any(refusals.may_help(ticket, seen[ticket.job_id], job) for job in left)
            ):
                freed = {node for job in left for node in job.nodes}
                ticket.refused_nodes = tuple(node for node in ticket.refused_nodes if node not in freed)
                ticket.until_s = now

    def keep(self, ticket: Ticket, now: float, why: str) -> None:
        """Slurm will not put it back: it goes on as it is, not to be asked again, or has ended for good."""
        if self._seen[ticket.job_id].state is State.ENDED:
            self._ledger.end(ticket, now, self._seen[ticket.job_id].state_name)
            return
        self._ledger.carry_on(ticket, now, f"it cannot be put back: {why}")
        self._log(now, "keep", job=ticket.job_id, reason=ticket.why)

    def _fold_left(self, ticket: Ticket, job: SlurmJob, now: float) -> None:
        """A job of Slurm's: released if that is still to be done; ours again if somebody holds it again."""
        if job.hold is not Hold.USER:
            if ticket.handed_back and ticket.released and job.required_nodes:
                self.orders.append(hand_back_order(job, ticket.request, ticket))
            elif ticket.handed_back and job.hold is Hold.NONE:
                ticket.handed_back = False
                self.changed.add(ticket.job_id)
        elif self._shadow:
            pass
        elif ticket.handed_back:
            self.orders.append(hand_back_order(job, ticket.request, ticket))
        elif self._before.get(ticket.job_id) != job and self._asks(ticket, job, now) is None:
            self._ledger.move(ticket, Standing.ASIDE, now, "held again")

    def _fold_size(self, ticket: Ticket, job: SlurmJob, now: float) -> None:
        """It runs on with other GPUs: its user gave nodes back, `scontrol update JobId=... NumNodes=...`."""
        if ticket.standing is not Standing.RUNNING or self._has_restarted(ticket, job):
            return
        if job.gpus and dict(job.gpus) != ticket.gpus:
            self._ledger.resize(ticket, now)
            why = self.companions.why.pop(ticket.job_id, "its nodes were changed in Slurm")
            ticket.why, ticket.resizing = why, True
            self._start(ticket, job, now, earliest_s=now)

    def _fold_running(self, ticket: Ticket, job: SlurmJob, now: float) -> None:
        if ticket.standing in ON_GPUS:
            if self._has_restarted(ticket, job):
                self._come_back(ticket, job, now)
                self._start(ticket, job, now)
            elif ticket.standing is Standing.RUNNING:
                ticket.until_s = save_at_s(ticket, job, self.state.jobs[ticket.job_id])
        elif ticket.standing is Standing.LEFT:
            return
        elif ticket.standing is Standing.STARTING or ticket.hold_back or self._shadow:
            self._start(ticket, job, now)
        else:
            self._leave(ticket, now, "somebody released it; it runs where Slurm put it")

    def _has_restarted(self, ticket: Ticket, job: SlurmJob) -> bool:
        return job.start_s is not None and abs(job.start_s - self._ledger.slurm_start_s(ticket)) > 1.0

    def _start(self, ticket: Ticket, job: SlurmJob, now: float, earliest_s: float | None = None) -> None:
        """It runs: on the nodes that were chosen, with the GPUs that Slurm gave it there.

        Args:
            ticket: Its ticket.
            job: As Slurm shows it.
            now: The time.
            earliest_s: It was not running before; None: at the last look.
        """
        if ticket.standing not in WITH_POLICY:
            self.scheduler.submit(ticket.job, now, ticket.past)
            self._ledger.move(ticket, Standing.WAITING, now, ticket.why)
        gpus = dict(job.gpus) or ticket.gpus
        allocation = self._ledger.fitting(ticket, gpus, now)
        if allocation is None:
            self._leave(ticket, now, "it runs on GPUs that are not Dally's to give")
            return
        start_s = now if job.start_s is None else job.start_s
        since_s = min(now, max(self._last_s if earliest_s is None else earliest_s, start_s))
        cost = self.state.costs.cost(ticket.job, allocation, self.state.jobs[ticket.job_id].done(now))
        ticket.gpus, ticket.hold_back = gpus, False
        refusals.forget(ticket)
        life = self._ledger.run(ticket, allocation, since_s, 1 / cost.slowdown, start_s)
        event = "resize" if ticket.resizing else "migrate" if ticket.moving else "start"
        self._log(now, event, job=ticket.job_id, **start_facts(self.state, life, cost, ticket.why))
        self._ledger.move(ticket, Standing.RUNNING, now, ticket.why)
        ticket.until_s = save_at_s(ticket, job, life)
        ticket.moving = ticket.resizing = False

    def _meet(self, job: SlurmJob, now: float) -> None:
        """A job that we do not know: take it if it asks for us."""
        request = self._intake.request(job)
        if request is None:
            return
        try:
            asked, unfit = self._intake.first_asked(job, request), ""
        except DallyError as error:
            asked, unfit = Job(job.job_id, job.submit_s, 1, 1.0, user=job.user), str(error)
        ticket = Ticket(asked, request, Standing.ASIDE, NEW, now, past=Past(min(now, job.submit_s)))
        ticket.submit_s, ticket.restarts = job.submit_s, job.restarts
        ticket.min_nodes, ticket.tasks = shown_size(job, request)
        ticket.released = ticket.hold_back = bool(job.required_nodes) or job.reservation.startswith(FENCE)
        self.tickets[job.job_id] = ticket
        if unfit:
            self._leave(ticket, now, f"{unfit}; Slurm schedules it", hand_back=True)
            return
        self._log(now, "submit", job=job.job_id, gpus=asked.gpus, model=asked.model)
        if job.state is State.PENDING:
            self._fold_pending(ticket, job, now)
        else:
            ticket.why = "it ran when the controller came"
            self._start(ticket, job, now, earliest_s=-inf)

    def _call_back(self, jobs: Iterable[SlurmJob]) -> None:
        """Jobs that ended to be put back when the journal, or slurmctld after a crash, had forgotten why."""
        for job in jobs:
            if job.job_id in self.tickets or not wants_back(job):
                continue
            request = self._intake.request(job)
            if request and request.signal and job.requeue and job.restarts < self._config.max_requeues:
                self.orders.append(Requeue(job.job_id, ended=True))

    def _asks(self, ticket: Ticket, job: SlurmJob, now: float) -> str | None:
        """Take in what a waiting job asks for now; None, or why Dally cannot place it."""
        request = self._intake.request(job) or ticket.request
        try:
            asked = self._intake.asked(ticket, job, request)
        except DallyError as error:
            return str(error)
        if job.time_limit_s != ticket.limit_s:
            ticket.limit_s = None
        size = asked_size(ticket, job)
        if size != (ticket.min_nodes, ticket.tasks) or request != ticket.request:
            ticket.min_nodes, ticket.tasks = size
            ticket.request = replace(request, tag=request.tag or ticket.request.tag)
            self.changed.add(ticket.job_id)
        self._ledger.become(ticket, asked, now)
        if ticket.refused and refusals.asked_for(ticket, job) != ticket.refused_as:
            refusals.forget(ticket)
            ticket.until_s = min(ticket.until_s, now)
        return None

    def _admit(self, now: float) -> None:
        """Jobs that may start now are in the policy's queue, others are not."""
        slots = array_slots(self._seen.values(), self.tickets)
        waiting = [t for t in self.tickets.values() if t.standing in (Standing.ASIDE, Standing.WAITING)]
        for ticket in sorted(waiting, key=_arrival):
            job = self._seen[ticket.job_id]
            if job.state is not State.PENDING:
                self._ledger.aside_once(ticket, now, f"Slurm shows it as {job.state_name}")
                continue
            unfit = None if job == self._before.get(ticket.job_id) else self._asks(ticket, job, now)
            if unfit is not None:
                self._leave(ticket, now, f"{unfit}; Slurm schedules it", hand_back=True)
                continue
            request = self._intake.request(job) or ticket.request
            held = job.hold is Hold.ADMIN or (request.held and not ticket.unheld)
            if held != ticket.person_held:
                ticket.person_held = held
                self.changed.add(ticket.job_id)
            why = obstacle(ticket, job, request, slots, now, self._seen)
            if not why:
                self._ledger.queue(ticket, now)
            else:
                self._ledger.aside_once(ticket, now, why)

    def _leave(self, ticket: Ticket, now: float, why: str, hand_back: bool = False) -> None:
        """From here on the job is Slurm's own."""
        if ticket.job_id in self.state.waiting:
            self.scheduler.withdraw(ticket.job_id, now)
        self._ledger.move(ticket, Standing.LEFT, now, why)
        ticket.handed_back = hand_back
        self._log(now, "leave", job=ticket.job_id, reason=why)
        job = self._seen.get(ticket.job_id)
        if job is not None and job.state is State.PENDING:
            self._fold_left(ticket, job, now)


def _arrival(ticket: Ticket) -> tuple[float, tuple[int, ...]]:
    return arrival(ticket.job.submit_s, ticket.job_id)
