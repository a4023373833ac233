"""A Slurm that leaves everything to another one: who changes some answers or orders overrides just those."""

from collections.abc import Mapping, Sequence

from dally.jobs.job import Job
from slurm_plugin.client.accounting_limits import AccountingLimits
from slurm_plugin.client.block_topology import BlockTopology
from slurm_plugin.client.orders import Order
from slurm_plugin.client.slurm import (
    Look,
    Partition,
    PriorityFactors,
    Reservation,
    Slurm,
    SlurmJob,
    SlurmNode,
)


class ForwardingSlurm:
    """Passes each question and all orders on; see `Slurm` for what they mean.

    Attributes:
        slurm: Who answers.
    """

    def __init__(self, slurm: Slurm) -> None:
        self.slurm = slurm

    def jobs(self) -> tuple[SlurmJob, ...]:
        """All jobs."""
        return self.slurm.jobs()

    def nodes(self) -> tuple[SlurmNode, ...]:
        """All nodes."""
        return self.slurm.nodes()

    def reservations(self) -> tuple[Reservation, ...]:
        """All reservations."""
        return self.slurm.reservations()

    def look(self) -> Look:
        """All of these, one after the other: each may be overridden."""
        return Look(self.jobs(), self.nodes(), self.reservations(), self.partitions())

    def partitions(self) -> tuple[Partition, ...]:
        """All partitions."""
        return self.slurm.partitions()

    def limits(self) -> AccountingLimits:
        """The limits of QOS and associations."""
        return self.slurm.limits()

    def spent(self, accounting: AccountingLimits) -> AccountingLimits:
        """The limits with what is spent of them by now."""
        return self.slurm.spent(accounting)

    def priority_factors(self) -> PriorityFactors:
        """What the priorities of jobs are made of."""
        return self.slurm.priority_factors()

    def fair_shares(self) -> Mapping[tuple[str, str], float]:
        """The fair shares of associations."""
        return self.slurm.fair_shares()

    def blocks(self, partitions: Sequence[str]) -> BlockTopology:
        """The blocks of topology/block."""
        return self.slurm.blocks(partitions)

    def licenses(self) -> Mapping[str, int]:
        """Free licences by name."""
        return self.slurm.licenses()

    def booted_s(self) -> float:
        """When slurmctld was started."""
        return self.slurm.booted_s()

    def hides_jobs(self) -> bool:
        """Whether users see their own jobs alone."""
        return self.slurm.hides_jobs()

    def ended_jobs(self, partitions: Sequence[str], days: int) -> tuple[Job, ...]:
        """The jobs that ended in the last days."""
        return self.slurm.ended_jobs(partitions, days)

    def run(self, orders: Sequence[Order]) -> tuple[str | None, ...]:
        """Carry out orders."""
        return self.slurm.run(orders)
