"""Keeps tickets, cluster state and policy in step with what Slurm shows, and says what must be mended."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from math import inf

from dally.cycle import Scheduler, start_facts
from dally.errors import CapacityError, InputError
from dally.job import Job
from dally.state import JobState, Past, Phase
from dally.topology import Allocation
from slurm_plugin.config import Config
from slurm_plugin.demand import UnfitError, demand
from slurm_plugin.obstacles import array_slots, obstacle
from slurm_plugin.request import Request, decode_job
from slurm_plugin.slurm import HandBack, Hold, HoldBack, Order, Reservation, SlurmJob, SlurmNode, State
from slurm_plugin.tickets import ON_GPUS, WITH_POLICY, Standing, Stretch, Ticket
from slurm_plugin.withheld import closed_nodes, held_by_others, promised

CHECKPOINTED = 85
"""Exit code by which a job says that it has written its checkpoint and wants to be put back."""

NEW = "new"
_LONGEST_BACKOFF_S = 3600.0

Log = Callable[..., None]
"""Records an event: `log(now, event, **said)`."""


class Mirror:
    """Slurm's jobs and nodes as tickets and as the state that the policy decides on.

    It tells the policy facts only: a job is started when Slurm shows it running, stopped when it is back in
    the queue. Folding the same view twice changes nothing.

    Attributes:
        tickets: Our jobs, by number.
        scheduler: State and policy.
        orders: What Slurm must be told so that it agrees; emptied by whoever carries them out.
        changed: Tickets that differ from the journal's.
        gone: Numbers whose tickets are no longer needed.
        decided: Numbers of jobs that are stopping or starting, in the order in which that was decided.
        claims: GPUs by node kept for a job until others, by number, have left theirs.
    """

    def __init__(self, scheduler: Scheduler, config: Config, log: Log, shadow: bool = False) -> None:
        self.scheduler, self.state = scheduler, scheduler.state
        self.tickets: dict[str, Ticket] = {}
        self.orders: list[Order] = []
        self.changed: set[str] = set()
        self.gone: set[str] = set()
        self.decided: list[str] = []
        self.claims: dict[str, tuple[dict[str, int], frozenset[str]]] = {}
        self._config, self._log, self._shadow = config, log, shadow
        self._machines = self.state.topology.machine_index
        self._seen: dict[str, SlurmJob] = {}
        self._last_s = -inf

    def recall(self, tickets: Mapping[str, Ticket], now: float) -> None:
        """Take up the tickets of a controller that is no more; its policy must have been restored."""
        for ticket in sorted(tickets.values(), key=lambda each: arrival(each.job)):
            self.tickets[ticket.job_id] = ticket
            if ticket.standing in WITH_POLICY:
                self._take_up(ticket, now)

    def _take_up(self, ticket: Ticket, now: float) -> None:
        try:
            allocation = self._allocation(ticket.gpus)
            self.scheduler.submit(ticket.job, now, ticket.past)
        except (CapacityError, KeyError):  # the cluster is another one now
            self._leave(ticket, now, "the cluster has changed and cannot hold it", hand_back=True)
            return
        if ticket.standing not in ON_GPUS or ticket.stretch is None:
            return
        if not self.state.free.holds(allocation):
            self.scheduler.withdraw(ticket.job_id, now)
            self._leave(ticket, now, "the cluster has changed; it runs on as it is")
            return
        stretch = ticket.stretch
        self.scheduler.resume(ticket.job_id, allocation, stretch.since_s, stretch.ready_s, now, stretch.speed)

    def fold(
        self,
        jobs: Sequence[SlurmJob],
        nodes: Sequence[SlurmNode],
        reservations: Iterable[Reservation],
        now: float,
    ) -> None:
        """Take in one view of Slurm: what left or came back, then what started, then what is new."""
        self._seen = {job.job_id: job for job in jobs}
        for job_id in self._in_order():
            self._follow(self.tickets[job_id], now)
        for job_id in self._in_order():
            if self._seen[job_id].state in (State.RUNNING, State.SUSPENDED):
                self._fold_running(self.tickets[job_id], self._seen[job_id], now)
        under_way = (Standing.STARTING, Standing.STOPPING)
        self.decided = [job_id for job_id in self.decided if self._stands(job_id) in under_way]
        for job in sorted(jobs, key=lambda each: (each.submit_s, number(each.job_id))):
            if job.job_id not in self.tickets and job.state is not State.ENDED:
                self._meet(job, now)
        self._admit(now)
        self._withhold(jobs, nodes, reservations, now)
        self._last_s = now

    def _in_order(self) -> list[str]:
        """Our jobs: those with a decision under way first, so that facts come in the order of decisions."""
        decided = [job_id for job_id in self.decided if job_id in self.tickets]
        return [*dict.fromkeys([*decided, *self.tickets])]

    def seen(self, job_id: str) -> SlurmJob:
        """A job as Slurm last showed it."""
        return self._seen[job_id]

    def _follow(self, ticket: Ticket, now: float) -> None:
        """A job that we know: has it gone, ended, or come back?"""
        job = self._seen.get(ticket.job_id)
        if job is None or not ticket.same_as(job, self._tag(job)):
            self._end(ticket, now, "GONE")
            return
        if (ticket.submit_s, ticket.restarts) != (job.submit_s, job.restarts):
            ticket.submit_s, ticket.restarts = job.submit_s, job.restarts
            self.changed.add(ticket.job_id)
        if job.state is State.ENDED:
            self._fold_ended(ticket, job, now)
        elif job.state is State.PENDING:
            self._fold_pending(ticket, job, now)

    def _fold_ended(self, ticket: Ticket, job: SlurmJob, now: float) -> None:
        if ticket.standing is Standing.STOPPING and job.exit_code == CHECKPOINTED:
            return  # it will be put back
        if ticket.standing is Standing.STARTING and job.start_s is not None and job.nodes:
            self._start(ticket, job, now)
        self._end(ticket, now, job.state_name)

    def _end(self, ticket: Ticket, now: float, how: str) -> None:
        """Forget a job, whatever it was doing."""
        if ticket.standing in ON_GPUS:
            self.scheduler.finish(ticket.job_id, now)
        elif ticket.standing in WITH_POLICY:
            self.scheduler.withdraw(ticket.job_id, now)
        del self.tickets[ticket.job_id]
        self.changed.discard(ticket.job_id)
        self.gone.add(ticket.job_id)
        self._log(now, "end", job=ticket.job_id, status=how)

    def _fold_pending(self, ticket: Ticket, job: SlurmJob, now: float) -> None:
        if ticket.standing in ON_GPUS:
            self._come_back(ticket, job, now)
        elif ticket.standing is Standing.STARTING:
            self._fold_starting(ticket, job, now)
        elif ticket.standing is Standing.LEFT:
            self._fold_left(ticket, job, now)
        elif job.hold is Hold.NONE and not self._shadow:
            if ticket.person_held:
                ticket.person_held, ticket.unheld = False, True
                self.changed.add(ticket.job_id)
                self.orders.append(HoldBack(ticket.job_id))
            else:
                self._leave(ticket, now, "somebody released it; Slurm schedules it")

    def _come_back(self, ticket: Ticket, job: SlurmJob, now: float) -> None:
        """It lost its GPUs and waits again: by us, by an administrator, or because a node failed."""
        life, wanted = self.state.jobs[ticket.job_id], ticket.standing is Standing.STOPPING
        if wanted:
            self.scheduler.preempt(ticket.job_id, now)
        else:
            self.scheduler.fail(ticket.job_id, now, life.work_s(now))
        if max(job.restarts, life.preemptions) >= self._config.max_requeues:
            life.job = replace(life.job, preemptible=False)
        ticket.job, ticket.past, ticket.stretch = life.job, past(life), None
        ticket.left_nodes, ticket.left_s, ticket.gpus = tuple(ticket.gpus), now, {}
        self._set(ticket, Standing.WAITING, now, ticket.why)
        if wanted and not ticket.moving:
            self._log(now, "preempt", job=ticket.job_id, by=list(ticket.by), reason=ticket.why)
        elif not wanted:
            self._log(now, "fail", job=ticket.job_id, lost_s=0.0)
        if job.hold is not Hold.ADMIN:
            self.orders.append(HoldBack(ticket.job_id))

    def _fold_starting(self, ticket: Ticket, job: SlurmJob, now: float) -> None:
        if job.hold is not Hold.NONE:
            self._set(ticket, Standing.WAITING, now, "its start was interrupted")
        elif now >= ticket.until_s:
            self.refuse(ticket, now, job.reason or "it did not start in time")

    def refuse(self, ticket: Ticket, now: float, why: str) -> None:
        """Slurm would not start it there: hold it again, and leave it out for a while."""
        ticket.refusals += 1
        backoff_s = min(_LONGEST_BACKOFF_S, self._config.backoff_s * 2 ** (ticket.refusals - 1))
        nodes = ", ".join(ticket.gpus)
        self._aside(ticket, now, f"could not start on {nodes}: {why}", until_s=now + backoff_s)
        self.orders.append(HoldBack(ticket.job_id))
        self._log(now, "refuse", job=ticket.job_id, reason=ticket.why, again_in_s=backoff_s)

    def _fold_left(self, ticket: Ticket, job: SlurmJob, now: float) -> None:
        if job.hold is not Hold.USER:
            return
        if ticket.handed_back:
            self.orders.append(HandBack(ticket.job_id, job.min_nodes))
        else:  # somebody held it again: it is ours again
            self._set(ticket, Standing.ASIDE, now, "held again")

    def _fold_running(self, ticket: Ticket, job: SlurmJob, now: float) -> None:
        if ticket.standing in ON_GPUS:
            assert ticket.stretch is not None, "it runs"
            if job.start_s is not None and abs(job.start_s - ticket.stretch.slurm_start_s) > 1.0:
                self._come_back(ticket, replace(job, hold=Hold.ADMIN), now)
                self._start(ticket, job, now)
        elif ticket.standing is Standing.STARTING:
            self._start(ticket, job, now)
        elif ticket.standing is not Standing.LEFT:
            self._leave(ticket, now, "somebody released it; it runs where Slurm put it")

    def _start(self, ticket: Ticket, job: SlurmJob, now: float) -> None:
        """It runs: on the nodes that were chosen, with the GPUs that Slurm gave it there."""
        gpus = dict(job.gpus) or ticket.gpus
        try:
            allocation = self._allocation(gpus)
        except KeyError:
            self._leave(ticket, now, "it runs on nodes that are not Dally's")
            return
        for machine, _ in allocation:
            self.state.withhold(machine, 0)
        if not self.state.free.holds(allocation):
            self._log(now, "conflict", job=ticket.job_id, gpus=gpus)
            return  # the next view will say who left
        self._match(ticket, allocation, now)
        start_s = now if job.start_s is None else job.start_s
        since_s = min(now, max(self._last_s, start_s))
        cost = self.state.costs.cost(ticket.job, allocation)
        life = self.scheduler.start(ticket.job_id, allocation, since_s, 1 / cost.slowdown)
        ticket.stretch = Stretch(life.since_s, life.ready_s, life.speed, start_s)
        ticket.gpus, ticket.refusals = gpus, 0
        event = "migrate" if ticket.moving else "start"
        self._log(now, event, job=ticket.job_id, **start_facts(self.state, life, cost, ticket.why))
        self._set(ticket, Standing.RUNNING, now, ticket.why)
        ticket.moving = False

    def _match(self, ticket: Ticket, allocation: Allocation, now: float) -> None:
        """Slurm gave it more or fewer GPUs than it seemed to ask for: what it holds is what it is."""
        gpus = sum(count for _, count in allocation)
        if gpus != ticket.job.gpus:
            self.scheduler.withdraw(ticket.job_id, now)
            ticket.job = replace(ticket.job, gpus=gpus, gpus_per_machine=None, min_gpus=None, max_gpus=None)
            self.scheduler.submit(ticket.job, now, ticket.past)

    def _tag(self, job: SlurmJob) -> str:
        request = self._request(job)
        return request.tag if request else ""

    def _meet(self, job: SlurmJob, now: float) -> None:
        """A job that we do not know: take it if it is ours."""
        request = self._request(job)
        if request is None or (self._shadow and not self._is_ours(job)):
            return
        try:
            if not self._is_ours(job):
                raise UnfitError(f"partition {job.partition} is not one of Dally's")
            asked = demand(job, request)
            self.state.best_level(asked.gang)
        except InputError as error:
            hopeless = Job(job.job_id, job.submit_s, 1, 1.0, user=job.user)
            ticket = Ticket(hopeless, request, Standing.LEFT, "", now)
            ticket.submit_s, ticket.restarts = job.submit_s, job.restarts
            self.tickets[job.job_id] = ticket
            self._leave(ticket, now, f"{error}; Slurm schedules it", hand_back=True)
            return
        ticket = Ticket(asked, request, Standing.ASIDE, NEW, now, past=Past(min(now, job.submit_s)))
        ticket.submit_s, ticket.restarts = job.submit_s, job.restarts
        self.tickets[job.job_id] = ticket
        self._log(now, "submit", job=job.job_id, gpus=asked.gpus, model=asked.model)
        if job.state is State.PENDING:
            self._fold_pending(ticket, job, now)
        else:
            self._adopt(ticket, job, now)

    def _is_ours(self, job: SlurmJob) -> bool:
        return set(job.partition.split(",")) <= set(self._config.partitions)

    def _adopt(self, ticket: Ticket, job: SlurmJob, now: float) -> None:
        """It runs already and there is no journal of it: its service before now is what Slurm says."""
        self.scheduler.submit(ticket.job, now, ticket.past)
        self._set(ticket, Standing.STARTING, now, "it ran when the controller came")
        ticket.gpus = dict(job.gpus)
        start_s = now if job.start_s is None else job.start_s
        self._last_s, last_s = min(now, start_s), self._last_s
        self._start(ticket, job, now)
        self._last_s = last_s

    def _request(self, job: SlurmJob) -> Request | None:
        """What the job's comments ask of Dally; None if nothing. In shadow mode every job is looked at."""
        try:
            request = decode_job(job.comment, job.admin_comment)
        except InputError:
            return Request()
        if request is None:
            return Request() if self._shadow else None
        return replace(request, grace_s=min(request.grace_s, self._config.longest_grace_s))

    def _admit(self, now: float) -> None:
        """Jobs that may start now are in the policy's queue, others are not."""
        slots = array_slots(self._seen.values(), self.tickets)
        waiting = [t for t in self.tickets.values() if t.standing in (Standing.ASIDE, Standing.WAITING)]
        for ticket in sorted(waiting, key=lambda each: arrival(each.job)):
            job = self._seen[ticket.job_id]
            if job.state is not State.PENDING:
                continue
            request = self._request(job) or ticket.request
            held = job.hold is Hold.ADMIN or (request.held and not ticket.unheld)
            if held != ticket.person_held:
                ticket.person_held = held
                self.changed.add(ticket.job_id)
            why = obstacle(ticket, job, request, slots, now)
            if not why:
                self._queue(ticket, now)
            elif ticket.standing is Standing.WAITING or ticket.why != why:
                self._aside(ticket, now, why)

    def _queue(self, ticket: Ticket, now: float) -> None:
        """Nothing but a placement is missing: the policy is to know it."""
        if ticket.standing is Standing.WAITING:
            return
        if ticket.until_s == inf and ticket.why != NEW:  # what it waited for was not a placement
            ticket.past = replace(ticket.past, origin_s=now)
        self.scheduler.submit(ticket.job, now, ticket.past)
        self._set(ticket, Standing.WAITING, now, "in the queue")

    def _aside(self, ticket: Ticket, now: float, why: str, until_s: float = inf) -> None:
        """The policy is not to know it for now."""
        if ticket.standing in (Standing.WAITING, Standing.STARTING):
            ticket.past = past(self.scheduler.withdraw(ticket.job_id, now))
        self._set(ticket, Standing.ASIDE, now, why)
        ticket.until_s = until_s

    def _leave(self, ticket: Ticket, now: float, why: str, hand_back: bool = False) -> None:
        """From here on the job is Slurm's own."""
        if ticket.job_id in self.state.waiting:
            self.scheduler.withdraw(ticket.job_id, now)
        self._set(ticket, Standing.LEFT, now, why)
        ticket.handed_back = hand_back
        if hand_back and (job := self._seen.get(ticket.job_id)) and job.hold is Hold.USER:
            self.orders.append(HandBack(ticket.job_id, job.min_nodes))
        self._log(now, "leave", job=ticket.job_id, reason=why)

    def _set(self, ticket: Ticket, standing: Standing, now: float, why: str) -> None:
        ticket.standing, ticket.since_s, ticket.why, ticket.until_s = standing, now, why, inf
        self.changed.add(ticket.job_id)

    def _withhold(
        self,
        jobs: Iterable[SlurmJob],
        nodes: Sequence[SlurmNode],
        reservations: Iterable[Reservation],
        now: float,
    ) -> None:
        """Keep from the policy what others hold, what is promised, and nodes that Slurm would not use."""
        ours = self._ours()
        foreign = held_by_others(jobs, self.tickets)
        for node in nodes:
            if node.name in self._machines:  # jobs that are coming to their end show on their nodes only
                used = node.gpus_used - ours[self._machines[node.name]]
                foreign[node.name] = max(foreign[node.name], used)
        kept = promised(self.tickets.values())
        for gpus in self._standing_claims():
            kept.update(gpus)
        closed = closed_nodes(nodes, reservations, now)
        for name, machine in self._machines.items():
            left = self.state.topology.machines[machine].gpus - ours[machine]
            wanted = left if name in closed else min(left, foreign[name] + kept[name])
            if wanted != self.state.withheld.get(machine, 0):
                self.state.withhold(machine, wanted)

    def _standing_claims(self) -> list[dict[str, int]]:
        """Claims of jobs that still wait for others to leave; the rest are dropped."""
        self.claims = {
            job_id: (gpus, leaving)
            for job_id, (gpus, leaving) in self.claims.items()
            if self._stands(job_id) is Standing.WAITING
            and any(self._stands(other) is Standing.STOPPING for other in leaving)
        }
        return [gpus for gpus, _ in self.claims.values()]

    def _stands(self, job_id: str) -> Standing | None:
        return self.tickets[job_id].standing if job_id in self.tickets else None

    def _ours(self) -> Counter[int]:
        ours: Counter[int] = Counter()
        for job_id in self.state.running:
            ours.update(dict(self.state.jobs[job_id].allocation))
        return ours

    def _allocation(self, gpus: Mapping[str, int]) -> Allocation:
        """GPUs by machine index; KeyError if a node is not in the cluster file."""
        return tuple(sorted((self._machines[node], count) for node, count in gpus.items()))


def number(job_id: str) -> tuple[int, ...]:
    """A job's number, as numbers are ordered: 17 before 17_3 before 100."""
    return tuple(int(part) for part in job_id.split("_"))


def arrival(job: Job) -> tuple[float, tuple[int, ...]]:
    """What orders jobs by arrival."""
    return job.submit_s, number(job.job_id)


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
    )
