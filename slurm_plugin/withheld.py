"""Which GPUs the policy cannot have: those of others, promised ones, and those of nodes that are closed."""

from collections import Counter
from collections.abc import Iterable, Mapping

from slurm_plugin.slurm import Reservation, SlurmJob, SlurmNode, State
from slurm_plugin.tickets import ON_GPUS, Standing, Ticket

FENCE = "dally_"
"""What the names of our own reservations begin with."""

HOLDS_GPUS = (State.RUNNING, State.SUSPENDED, State.COMPLETING, State.UNKNOWN)


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


def closed_nodes(nodes: Iterable[SlurmNode], reservations: Iterable[Reservation], now: float) -> set[str]:
    """Nodes on which Slurm would start nothing, and those in reservations of others that are under way."""
    reserved = {
        node
        for reservation in reservations
        if reservation.start_s <= now < reservation.end_s and not reservation.name.startswith(FENCE)
        for node in reservation.nodes
    }
    return reserved | {node.name for node in nodes if not node.available}
