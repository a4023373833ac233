"""Which GPUs the policy cannot have: those of others, promised ones, and those of nodes that are closed."""

import re
from collections import Counter
from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from math import inf

from dally.cluster.topology import Topology
from dally.jobs.job import Job
from dally.scheduling.scheduler import Scheduler
from slurm_plugin.client.slurm import HOLDS_GPUS, Reservation, SlurmJob, SlurmNode, State
from slurm_plugin.controller.managed_job import ON_GPUS, ManagedJob, StartingPhase

RESERVATION_PREFIX = "dally_"
"""What the names of our own reservations begin with."""

WITHOUT_LIMIT_S = 365 * 86_400.0
"""What Slurm takes a job without a time limit to run, where a reservation comes."""

_CLAIM = ".oldest"

_OF_JOB = re.compile(rf"{RESERVATION_PREFIX}([0-9]+(?:_[0-9]+)?)_[0-9]+", re.ASCII)


def withhold_unavailable(
    scheduler: Scheduler,
    managed_jobs: Mapping[str, ManagedJob],
    pending_starts: Iterable[Mapping[str, int]],
    jobs: Iterable[SlurmJob],
    nodes: Sequence[SlurmNode],
    closed: set[str],
) -> None:
    """Keep from the policy what others hold, what jobs are about to get, and the nodes that are closed.

    Args:
        scheduler: State and policy.
        managed_jobs: Our jobs, by number.
        pending_starts: GPUs by node of starts that wait for others to leave.
        jobs: All jobs of Slurm.
        nodes: All nodes of Slurm.
        closed: Names of nodes of which no further GPU may be taken.
    """
    state = scheduler.state
    ours: Counter[int] = Counter()
    for job_id in state.running:
        ours.update(dict(state.jobs[job_id].allocation))
    machines = state.topology.machine_index

    foreign: Counter[str] = Counter()
    for job in jobs:
        managed = managed_jobs.get(job.job_id)
        if job.state in HOLDS_GPUS and (managed is None or not isinstance(managed.phase, ON_GPUS)):
            foreign.update(job.gpus)
    for node in nodes:
        if node.name in machines:  # jobs that are coming to their end show on their nodes only
            whole = max(foreign[node.name], node.gpus_used - ours[machines[node.name]])
            foreign[node.name] = whole + node.gpus_shared

    promised: Counter[str] = Counter()
    for managed in managed_jobs.values():
        if isinstance(managed.phase, StartingPhase):
            promised.update(kept_gpus(state.topology, managed.job, managed.phase.gpus))
    for gpus in pending_starts:
        promised.update(gpus)

    for name, machine in machines.items():
        rest = state.topology.machines[machine].gpus - ours[machine]
        is_closed = name in closed
        wanted = rest if is_closed else min(rest, foreign[name] + promised[name])
        if wanted != state.withheld.get(machine, 0) or is_closed != (machine in state.closed):
            scheduler.withhold(machine, wanted, is_closed)


def kept_gpus(topology: Topology, job: Job, gpus: Mapping[str, int]) -> Mapping[str, int]:
    """GPUs by node that nobody else may get beside a job: its own, or all of its whole blocks."""
    if not job.whole_blocks:
        return gpus
    beside = topology.beside(topology.machine_index[name] for name in gpus)
    return {topology.machines[each].name: topology.machines[each].gpus for each in beside}


def reservation_name(job_id: str, now: float, early: bool = False) -> str:
    """The name of a reservation for the start of one job, or of one until others have left for it."""
    return f"{RESERVATION_PREFIX}{job_id}_{now:.0f}{'.early' if early else ''}"


def claim_name(job_id: str, now: float) -> str:
    """The name of a reservation that keeps nodes for our oldest job from Slurm's own; nothing runs in it."""
    return f"{reservation_name(job_id, now)}{_CLAIM}"


def is_claim(reservation: Reservation) -> bool:
    """Whether a reservation is such a one."""
    return bool(reserved_for(reservation)) and reservation.name.endswith(_CLAIM)


def reserved_for(reservation: Reservation) -> str:
    """The number of the job for whose start a reservation is; empty if it is for none of ours."""
    found = _OF_JOB.match(reservation.name)
    return found[1] if found else ""


def is_anothers(
    reservation: Reservation, managed_jobs: Mapping[str, ManagedJob], jobs: Mapping[str, SlurmJob]
) -> bool:
    """Whether a reservation was made by a controller of other partitions, for a job that has not ended."""
    job = jobs.get(reserved_for(reservation))
    return job is not None and job.state is not State.ENDED and job.job_id not in managed_jobs


def idle_reservations(
    reservations: Iterable[Reservation],
    managed_jobs: Mapping[str, ManagedJob],
    pending_starts: Container[str],
    jobs: Mapping[str, SlurmJob],
    now: float,
) -> list[str]:
    """Names of our reservations whose job is no longer about to start: they keep others out for nothing.

    Those of a job that has not ended and is not ours are another controller's, of other partitions.
    Those of claims are looked after elsewhere (`oldest_first`).
    One of this very second is left for the next look: Slurm ends no reservation at its own start.
    """
    up = [
        each
        for each in reservations
        if reserved_for(each) and not is_claim(each) and each.start_s + 1 <= now < each.end_s
        if not is_anothers(each, managed_jobs, jobs)
    ]
    starting = {each.job_id for each in managed_jobs.values() if isinstance(each.phase, StartingPhase)}
    used = starting | {reserved_for(each) for each in up if reserved_for(each) in pending_starts}
    return [each.name for each in up if reserved_for(each) not in used]


def own_reservation(job: SlurmJob) -> str:
    """The reservation that a job's user asked for; empty if it has none, or one of ours."""
    return "" if job.reservation.startswith(RESERVATION_PREFIX) else job.reservation


def closed_nodes(
    nodes: Iterable[SlurmNode],
    jobs: Iterable[SlurmJob],
    reservations: Iterable[Reservation],
    wanted: Container[str],
    beside_ours: Collection[str],
    now: float,
) -> set[str]:
    """Nodes on which Slurm would start nothing, and those in reservations of others that are under way.

    The nodes of a job that shares its blocks with nobody look as if they had room; those beside it do not.
    Of a job of ours the state knows: its nodes come free with it.

    Args:
        nodes: All nodes of Slurm.
        jobs: All jobs of Slurm.
        reservations: All reservations.
        wanted: Names of those for which waiting jobs of ours ask: policies choose their nodes, too.
        beside_ours: Nodes of blocks that jobs of ours share with nobody.
        now: The time, seconds.
    """
    under_way = [each for each in reservations if each.start_s <= now < each.end_s]
    reserved = reserved_before(inf, [each for each in under_way if each.name not in wanted])
    alone = {node for job in jobs if job.whole_blocks and job.state in HOLDS_GPUS for node in job.nodes}
    unavailable = {node.name for node in nodes if not node.available}
    waits_for_ours = {node.name for node in nodes if node.blocked}.intersection(beside_ours)
    return reserved | alone.difference(beside_ours) | (unavailable - waits_for_ours)


def reserved_before(end_s: float, reservations: Iterable[Reservation]) -> set[str]:
    """Nodes reserved for others from before `end_s` on: Slurm starts no job there that may run until then."""
    return {
        node
        for reservation in reservations
        if reservation.start_s < end_s and not reservation.name.startswith(RESERVATION_PREFIX)
        for node in reservation.nodes
    }
