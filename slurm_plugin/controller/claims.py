"""Starts that were decided and cannot be carried out yet, as others still write their checkpoints there."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from dally.cluster.topology import Topology
from dally.plan import Migrate, Start
from slurm_plugin.controller.tickets import Standing, Ticket


@dataclass(frozen=True, slots=True)
class Claim:
    """One such decision, and the jobs that leave for it by number; itself among them, if it moves."""

    decision: Start | Migrate
    leaving: frozenset[str]


class PendingStarts:
    """Keeps the GPUs of such starts from others, and tells when they have become free.

    A policy may have nothing new to decide until its next round; what it decided stands until then.

    Args:
        tickets: Our jobs, by number.
        topology: The cluster.
        restart_gap_s: A job does not go back to nodes that it left less than this ago, seconds.
    """

    def __init__(self, tickets: Mapping[str, Ticket], topology: Topology, restart_gap_s: float) -> None:
        self._tickets, self._topology, self._gap_s = tickets, topology, restart_gap_s
        self._claims: dict[str, Claim] = {}

    def __len__(self) -> int:
        return len(self._claims)

    def cover(self, job_ids: Collection[str]) -> bool:
        """Whether all these jobs have GPUs coming to them."""
        return self._claims.keys() >= set(job_ids)

    def add(self, claim: Claim) -> None:
        """A start is to be carried out later; an earlier one of the same job holds on."""
        self._claims.setdefault(claim.decision.job_id, claim)

    def kept(self, now: float) -> list[dict[str, int]]:
        """GPUs by node that others must not get meanwhile; claims whose jobs do something else by now end."""
        self._claims = {job_id: claim for job_id, claim in self._claims.items() if self._stands(job_id)}
        waiting = (claim for claim in self._claims.values() if not self._is_due(claim, now))
        return [self._topology.named(claim.decision.allocation) for claim in waiting]

    def take_due(self, now: float) -> list[Start | Migrate]:
        """The starts for which nobody has to leave any more; they are claims no longer."""
        due = [claim.decision for claim in self._claims.values() if self._is_due(claim, now)]
        for decision in due:
            del self._claims[decision.job_id]
        return due

    def may_start(self, decision: Start | Migrate, now: float) -> bool:
        """Whether its job waits, and left none of these nodes just now: Slurm might still clean up there."""
        ticket = self._tickets[decision.job_id]
        rested = now >= ticket.left_s + self._gap_s
        nodes = self._topology.named(decision.allocation)
        return ticket.standing is Standing.WAITING and (rested or nodes.keys().isdisjoint(ticket.left_nodes))

    def _stands(self, job_id: str) -> bool:
        ticket = self._tickets.get(job_id)
        return ticket is not None and (ticket.standing is Standing.WAITING or ticket.leaves_to_move)

    def _is_due(self, claim: Claim, now: float) -> bool:
        ready = self._stands(claim.decision.job_id) and self.may_start(claim.decision, now)
        return ready and not any(map(self._is_leaving, claim.leaving))

    def _is_leaving(self, job_id: str) -> bool:
        ticket = self._tickets.get(job_id)
        return ticket is not None and ticket.standing is Standing.STOPPING
