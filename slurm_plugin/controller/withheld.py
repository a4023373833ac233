"""Which GPUs the policy cannot have: those of others, promised ones, and those of nodes that are closed."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from dally.scheduling.scheduler import Scheduler
from slurm_plugin.client.slurm import HOLDS_GPUS, Reservation, SlurmJob, SlurmNode
from slurm_plugin.controller.tickets import ON_GPUS, Standing, Ticket

FENCE = "dally_"
"""What the names of our own reservations begin with."""


def withhold(
    scheduler: Scheduler,
    tickets: Mapping[str, Ticket],
    claims: Iterable[Mapping[str, int]],
    jobs: Iterable[SlurmJob],
    nodes: Sequence[SlurmNode],
    closed: set[str],
) -> None:
    """Keep from the policy what others hold, what is promised or claimed, and the nodes that are closed."""
    state = scheduler.state
    ours: Counter[int] = Counter()
    for job_id in state.running:
        ours.update(dict(state.jobs[job_id].allocation))
    machines = state.topology.machine_index
    foreign = held_by_others(jobs, tickets)
    for node in nodes:
        if node.name in machines:  # jobs that are coming to their end show on their nodes only
            foreign[node.name] = max(foreign[node.name], node.gpus_used - ours[machines[node.name]])
    kept = promised(tickets.values())
    for gpus in claims:
        kept.update(gpus)
    for name, machine in machines.items():
        left = state.topology.machines[machine].gpus - ours[machine]
        wanted = left if name in closed else min(left, foreign[name] + kept[name])
        if wanted != state.withheld.get(machine, 0):
            scheduler.withhold(machine, wanted)


def held_by_others(jobs: Iterable[SlurmJob], tickets: Mapping[str, Ticket]) -> Counter[str]:
    """GPUs by node of jobs that do not run for the policy."""
    held: Counter[str] = Counter()
    for job in jobs:
        ticket = tickets.get(job.job_id)
        if job.state in HOLDS_GPUS and (ticket is None or ticket.standing not in ON_GPUS):
            held.update(job.gpus)
    return held


def promised(tickets: Iterable[Ticket]) -> Counter[str]:
    """GPUs by node that jobs about to start will take."""
    kept: Counter[str] = Counter()
    for ticket in tickets:
        if ticket.standing is Standing.STARTING:
            kept.update(ticket.gpus)
    return kept


def idle_fences(reservations: Iterable[Reservation], tickets: Mapping[str, Ticket], now: float) -> list[str]:
    """Names of our fences whose job is no longer about to start: they keep others out for nothing.

    A fence of this very second is left for the next look: Slurm ends no reservation at its own start.
    """
    ours = (each for each in reservations if each.name.startswith(FENCE))
    up = (each.name for each in ours if each.start_s + 1 <= now < each.end_s)
    starting = {ticket.job_id for ticket in tickets.values() if ticket.standing is Standing.STARTING}
    return [name for name in up if name.removeprefix(FENCE).rpartition("_")[0] not in starting]


def closed_nodes(nodes: Iterable[SlurmNode], reservations: Iterable[Reservation], now: float) -> set[str]:
    """Nodes on which Slurm would start nothing, and those in reservations of others that are under way."""
    reserved = {
        node
        for reservation in reservations
        if reservation.start_s <= now < reservation.end_s and not reservation.name.startswith(FENCE)
        for node in reservation.nodes
    }
    return reserved | {node.name for node in nodes if not node.available}


def still_left(tickets: Iterable[Ticket], now: float) -> set[str]:
    """Nodes where a run may go on that Slurm no longer knows of."""
    return {node for ticket in tickets if now < ticket.left_s for node in ticket.left_nodes}
