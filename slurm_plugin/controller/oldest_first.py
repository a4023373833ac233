"""Whose turn it is where Slurm's own jobs and Dally's want the same GPUs: in the order of arrival.

Slurm starts its own jobs on whatever is free, at once, and Dally releases jobs onto chosen nodes. So a job
that needs much would starve on either side, once the other's queue never runs dry. The oldest waiting job of
each side therefore has a claim: the nodes on which it can start earliest. Younger jobs of the other side
start there only if they end before. Dally's keep to that by themselves; a reservation keeps out Slurm's.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from heapq import nsmallest
from itertools import islice
from math import ceil, inf
from time import localtime, strftime

from dally.errors import DallyError
from dally.hostlist import fold
from dally.jobs.job import Gang
from dally.state import ClusterState
from slurm_plugin.client.orders import Order, Reserve, Unreserve
from slurm_plugin.client.slurm import HOLDS_GPUS, Hold, Reservation, SlurmJob, State
from slurm_plugin.controller.earliest_nodes import EarliestStart, GpuHold, earliest_start, holds_until_limit
from slurm_plugin.controller.job_requests import demand
from slurm_plugin.controller.managed_job import ManagedJob, PendingPhase, ReleasedPhase, StartingPhase
from slurm_plugin.controller.node_room import NONE, NodeResources, NodeRoom
from slurm_plugin.controller.unavailable_gpus import (
    WITHOUT_LIMIT_S,
    claim_name,
    is_anothers,
    is_claim,
    reserved_before,
    reserved_for,
)
from slurm_plugin.request import Request

KEPT_S = 600.0
"""A claim lapses so long after the job could have started: whoever is to start it does not want to."""

LAPSED_S = 3600.0
"""So long after that the job may have a claim again."""

_CLOSE_S = 60.0
"""A claim keeps its nodes while others are not so much earlier."""

_UNKNOWN_MIN = 60
"""So long is a reservation for a start of which nobody knows when it comes: without a controller it ends."""

_TRIED = 20
"""So many of the oldest jobs are looked at for one that can have a claim."""

_HINDERED = (
    *("Assoc", "BadConstraints", "BeginTime", "Dependency", "InvalidAccount", "InvalidQOS"),
    *("JobArrayTaskLimit", "Licenses", "MaxMemPerLimit", "Partition", "QOS"),
)
"""How Slurm's reasons begin for which GPUs would not help a job."""

Arrival = tuple[float, tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class WaitingJob:
    """A job as far as its claim depends on it: what it asks for, of which nodes, by name with their GPUs.

    With `whole_blocks` no other job may have a node in the blocks of its own.
    """

    job_id: str
    arrival: Arrival
    user: str
    gang: Gang
    min_nodes: int
    nodes: Mapping[str, int]
    whole_blocks: bool


@dataclass(frozen=True, slots=True)
class Claim:
    """The nodes that are kept for the oldest waiting job of one side, and when it can start there."""

    job: WaitingJob
    earliest: EarliestStart


class OldestFirst:
    """The claims as of the last look.

    Args:
        managed_jobs: Our jobs, by number.
        state: The cluster, on whose machines Dally starts jobs: only there do the two sides meet.

    Attributes:
        slurms: The claim of Slurm's oldest job.
        ours: The claim of Dally's oldest job; only while a younger job of Slurm's could take its GPUs.
    """

    def __init__(self, managed_jobs: Mapping[str, ManagedJob], state: ClusterState) -> None:
        self._managed_jobs, self._free = managed_jobs, state.free
        self._paths = {
            machine.name: path
            for machine, path in zip(state.topology.machines, state.topology.ancestors, strict=True)
        }
        self._blocks = {name: path[1] for name, path in self._paths.items()}
        self._machines = frozenset(self._paths)
        self.slurms: Claim | None = None
        self.ours: Claim | None = None
        self._lapses_s: dict[str, float] = {}
        self._lapsed_users: dict[str, float] = {}
        self._without_gpus: Mapping[str, NodeResources] = {}
        self._jobs: Mapping[str, SlurmJob] = {}
        self._room = NodeRoom()
        self._reservations: Sequence[Reservation] = ()
        self._holds: list[GpuHold] = []

    def observe(
        self, jobs: Mapping[str, SlurmJob], room: NodeRoom, reservations: Sequence[Reservation], now: float
    ) -> None:
        """Take in a look at Slurm, with our jobs as they are by now."""
        self._jobs, self._room, self._reservations = jobs, room, reservations
        self._lapses_s = {
            job_id: lapse_s
            for job_id, lapse_s in self._lapses_s.items()
            if job_id in jobs and jobs[job_id].state is State.PENDING and now < lapse_s + LAPSED_S
        }
        self._lapsed_users |= {
            jobs[job_id].user: lapse_s for job_id, lapse_s in self._lapses_s.items() if lapse_s <= now
        }
        before, self.slurms, self.ours = (self.slurms, self.ours), None, None
        of_slurm = [job for job in jobs.values() if self._is_slurms(job) and _wants_gpus(job, now)]
        if not of_slurm:  # nobody is in anybody's way
            return
        self._without_gpus = _held_without_gpus(jobs.values())
        self._holds = [*holds_until_limit(map(self._holding_nodes, jobs.values())), *self._starting(now)]
        slurms, ours = self._oldest_of_slurm(of_slurm, now), self._oldest_of_ours(of_slurm, now)
        if ours and (slurms is None or ours.arrival < slurms.arrival):
            self.ours = self._claim(ours, frozenset(), before[1], now)
            beside = self.ours.earliest.nodes if self.ours else frozenset[str]()
            if slurms:
                self.slurms = self._claim(slurms, beside, before[0], now)
                self.slurms = self.slurms or self._claim(slurms, frozenset(), before[0], now)
        elif slurms:
            self.slurms = self._claim(slurms, frozenset(), before[0], now)
            beside = self.slurms.earliest.nodes if self.slurms else frozenset()
            self.ours = self._claim(ours, beside, before[1], now) if ours else None

    # What follows from the claims.

    def kept_from(self, managed: ManagedJob, now: float) -> frozenset[str]:
        """Nodes on which a waiting job of ours may not start now, kept for an older one of Slurm's own."""
        claim = self.slurms
        if claim is None or managed.arrival < claim.job.arrival:
            return frozenset()
        limit_s = managed.job.time_limit_s
        ends_before = limit_s is not None and now + limit_s <= claim.earliest.start_s < inf
        return frozenset() if ends_before else claim.earliest.nodes

    def explanation(self, managed: ManagedJob, now: float) -> str:
        """What the claims are to a waiting job of ours, in words; empty if they do not concern it."""
        if self.ours and self.ours.job.job_id == managed.job_id:
            return f"{_kept(self.ours, now)} from younger jobs of Slurm's own"
        if self.kept_from(managed, now):
            assert self.slurms is not None
            older = f"job {self.slurms.job.job_id} of Slurm's own, which is older"
            return f"{_kept(self.slurms, now)}, for {older}"
        return ""

    def reservation_orders(self, now: float, starts_jobs: bool = True) -> list[Order]:
        """How to make the reservations of claims those that there should be: of the claim of ours, if any.

        Where no job of ours is started, nothing is kept for one.
        """
        claim, orders, stands = self.ours if starts_jobs else None, list[Order](), False
        if claim and not isinstance(self._managed_jobs[claim.job.job_id].phase, PendingPhase):
            claim = None
        for each in self._reservations:
            if not is_claim(each) or each.end_s <= now or is_anothers(each, self._managed_jobs, self._jobs):
                continue
            if claim and not stands and _is_of(each, claim, now):
                stands = True
            else:
                orders.append(Unreserve(each.name, unused=True))
        if claim and not stands:
            start_s = claim.earliest.start_s
            minutes = _UNKNOWN_MIN if start_s == inf else ceil(KEPT_S / 60)
            ahead_s = start_s if now < start_s < inf else None
            name, nodes = claim_name(claim.job.job_id, now), tuple(sorted(claim.earliest.nodes))
            orders.insert(0, Reserve(name, nodes, claim.job.user, minutes, ahead_s))
        return orders

    # Who is oldest.

    def _oldest_of_slurm(self, of_slurm: Iterable[SlurmJob], now: float) -> WaitingJob | None:
        nodes = self._room.nodes
        shared = {name for each in self._machines & nodes.keys() for name in nodes[each].partitions}
        waiting = [
            job
            for job in of_slurm
            if job.state is State.PENDING
            and _names_gpus(job)
            and not shared.isdisjoint(job.partition.split(","))
            and (job.job_id in self._lapses_s or now >= self._lapsed_users.get(job.user, -inf) + LAPSED_S)
        ]
        waiting.sort(key=lambda job: job.arrival)
        return self._first_that_can(map(self._job_of_slurm, waiting), now)

    def _oldest_of_ours(self, of_slurm: Iterable[SlurmJob], now: float) -> WaitingJob | None:
        """Our oldest waiting job, if a younger job of Slurm's may take its GPUs, or has taken some."""
        known = self._managed_jobs.values()
        pending = (each for each in known if isinstance(each.phase, PendingPhase))
        waiting = nsmallest(_TRIED, pending, key=lambda each: each.arrival)
        found = self._first_that_can(map(self._job_of_ours, waiting), now)
        if found is None:
            return None
        for job in of_slurm:
            if job.arrival > found.arrival:
                taken = job.gpus.keys() if job.gpus else self._usable(job)
                if not found.nodes.keys().isdisjoint(taken):
                    return found
        return None

    def _first_that_can(self, jobs: Iterator[WaitingJob | None], now: float) -> WaitingJob | None:
        """The first whose claim has not lapsed and whose nodes suffice."""
        for job in islice(jobs, _TRIED):
            if job and now < self._lapses_s.get(job.job_id, inf) and self._earliest(job, job.nodes, now):
                return job
        return None

    def _is_slurms(self, job: SlurmJob) -> bool:
        managed = self._managed_jobs.get(job.job_id)
        return managed is None or isinstance(managed.phase, ReleasedPhase)

    def _job_of_slurm(self, job: SlurmJob) -> WaitingJob | None:
        """What a job of Slurm's own asks for; None if that is no GPUs, or nobody can count them."""
        countable = _countable(job)
        try:
            asked = demand(countable, Request(), self._room.nodes.values(), segments=True)
            usable = self._usable(countable)
        except DallyError:
            return None
        named = usable & frozenset(job.required_nodes)
        nodes = named if len(named) >= job.min_nodes else usable
        return self._waiting(job, job.arrival, asked.gang, job.min_nodes, nodes)

    def _job_of_ours(self, managed: ManagedJob) -> WaitingJob | None:
        job = self._jobs[managed.job_id]
        gang = managed.job.gang
        nodes = gang.machines if gang.machines is not None else self._room.with_gpus
        return self._waiting(job, managed.arrival, gang, 1, nodes)

    def _waiting(
        self, job: SlurmJob, arrived: Arrival, gang: Gang, min_nodes: int, names: Iterable[str]
    ) -> WaitingJob:
        nodes = self._room.nodes
        available = {
            name: nodes[name].gpus for name in sorted(names) if name in nodes and nodes[name].available
        }
        return WaitingJob(job.job_id, arrived, job.user, gang, min_nodes, available, job.whole_blocks)

    def _usable(self, job: SlurmJob) -> frozenset[str]:
        """Nodes that a job of Slurm's own may use; if there are enough, those with room beside others.

        Else those that will have room once all jobs with GPUs have left. For what jobs without GPUs hold
        nobody waits here: whoever lets some run for ever would have nodes kept for a job that cannot start.
        """
        countable, room = _countable(job), self._room
        try:
            asked = demand(countable, Request(), room.nodes.values(), segments=True)
            size = job.min_nodes, job.tasks
            found = room.machines(countable, size, asked, room.beside_others)
            if len(found) < job.min_nodes:
                found = room.machines(countable, size, asked, room.in_all)
                gpus = asked.gpus_per_machine or 1
                found = frozenset(
                    name
                    for name in found
                    if (room.in_all(room.nodes[name]) - self._without_gpus.get(name, NONE)).holds(
                        room.needed(countable, asked.gpus, gpus, name)
                    )
                )
            return found if len(found) >= job.min_nodes else frozenset()
        except DallyError:
            return frozenset()

    # Where and when.

    def _holding_nodes(self, job: SlurmJob) -> SlurmJob:
        """A job that shares its blocks with nobody as one that holds all GPUs of its nodes."""
        if not (job.whole_blocks and job.gpus):
            return job
        nodes = self._room.nodes
        return replace(job, gpus={name: nodes[name].gpus for name in job.nodes if name in nodes})

    def _starting(self, now: float) -> Iterator[GpuHold]:
        """What jobs of ours hold that are about to start."""
        for managed in self._managed_jobs.values():
            if isinstance(managed.phase, StartingPhase):
                limit_s = managed.job.time_limit_s
                yield GpuHold(now + (inf if limit_s is None else limit_s), managed.gpus)

    def _claim(
        self, job: WaitingJob, beside: frozenset[str], before: Claim | None, now: float
    ) -> Claim | None:
        """The claim of a job, outside of some nodes; None if it cannot start there at all."""
        nodes = {name: gpus for name, gpus in job.nodes.items() if name not in beside}
        best = self._earliest(job, nodes, now)
        if best is None:
            return None
        if before and before.job.job_id == job.job_id:
            kept = {name: nodes[name] for name in before.earliest.nodes & nodes.keys()}
            again = self._earliest(job, kept, now)
            if again and (again.start_s <= best.start_s + _CLOSE_S):
                best = EarliestStart(again.start_s, before.earliest.nodes.intersection(nodes))
        lapse_s = min(self._lapses_s.get(job.job_id, inf), best.start_s + KEPT_S)
        self._lapses_s[job.job_id] = lapse_s
        return Claim(job, best)

    def _earliest(self, job: WaitingJob, nodes: Mapping[str, int], now: float) -> EarliestStart | None:
        limit_s = self._jobs[job.job_id].time_limit_s
        closed = reserved_before(now + (limit_s or WITHOUT_LIMIT_S), self._reservations)
        in_all = {name: gpus for name, gpus in nodes.items() if name not in closed}
        areas: dict[int, dict[str, int]] = {}
        for name, gpus in in_all.items():
            area = self._paths[name][self._free.highest(job.gang)] if job.gang.consolidated else 0
            areas.setdefault(area, {})[name] = gpus
        starts = [
            earliest_start(job.gang, job.min_nodes, each, self._holds, now, self._blocks, job.whole_blocks)
            for each in areas.values()
        ]
        return min(filter(None, starts), key=lambda start: start.start_s, default=None)


def _held_without_gpus(jobs: Iterable[SlurmJob]) -> Mapping[str, NodeResources]:
    """What jobs without GPUs hold of each node."""
    held: dict[str, NodeResources] = {}
    for job in jobs:
        if job.state in HOLDS_GPUS and job.nodes and not job.gpus:
            share = NodeResources(
                job.tres.get("cpu", 1.0) / len(job.nodes), job.tres.get("mem", 0.0) / len(job.nodes)
            )
            for name in job.nodes:
                held[name] = held.get(name, NONE) + share
    return held


def waits_for_nodes(job: SlurmJob, now: float) -> bool:
    """Whether a job of Slurm's own would start if its nodes were free."""
    return (
        job.state is State.PENDING
        and job.hold is Hold.NONE
        and not job.dependency
        and not job.reservation
        and job.begin_s <= max(now, job.submit_s + 1)
        and not job.reason.startswith(_HINDERED)
    )


def _wants_gpus(job: SlurmJob, now: float) -> bool:
    """Whether a job of Slurm's own holds GPUs, or would start on nodes if they were free.

    A new job of ours counts as Slurm's until it is taken on: it is held, so it wants nothing.
    """
    return bool(job.gpus) if job.state in HOLDS_GPUS else waits_for_nodes(job, now)


def _names_gpus(job: SlurmJob) -> bool:
    """Whether a job may ask for GPUs: others, of which there may be thousands, are not looked at closely."""
    return any("gpu" in text for text in (job.tres_per_node, job.tres_per_task, job.tres_per_job))


def _countable(job: SlurmJob) -> SlurmJob:
    """A job without the options that say how its GPUs lie, which do not change how many they are."""
    plain = replace(job, switches=0, whole_blocks=False, heterogeneous=False, tres_per_socket="")
    return replace(plain, spreads_segments=False, consolidates_segments=False)


def _is_of(reservation: Reservation, claim: Claim, now: float) -> bool:
    """Whether a reservation keeps the nodes of a claim, early enough and not only for a while longer."""
    latest_s = max(now, claim.earliest.start_s) + _CLOSE_S
    goes_on = claim.earliest.start_s < inf or reservation.end_s > now + KEPT_S
    return goes_on and (
        reserved_for(reservation) == claim.job.job_id
        and {*reservation.nodes} == claim.earliest.nodes
        and reservation.start_s <= latest_s
    )


def _kept(claim: Claim, now: float) -> str:
    """Which nodes a claim keeps, and until when, in words."""
    start_s, nodes = claim.earliest.start_s, sorted(claim.earliest.nodes)
    when = (
        "" if start_s == inf or start_s <= now else f" for a start by {strftime('%H:%M', localtime(start_s))}"
    )
    return f"{fold(nodes)} {'is' if len(nodes) == 1 else 'are'} kept{when}"
