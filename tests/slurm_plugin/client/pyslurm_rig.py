"""The backend over pyslurm, on a mock of pyslurm and a command line that answer what a test says."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dally.jobs.job import Job
from slurm_plugin.client.accounting_limits import AccountingLimits
from slurm_plugin.client.block_topology import BlockTopology
from slurm_plugin.client.job_json import Records
from slurm_plugin.client.orders import Order, Reserve
from slurm_plugin.client.pyslurm_backend import PyslurmSlurm
from slurm_plugin.client.slurm import (
    Look,
    Partition,
    PriorityFactors,
    Reservation,
    SlurmJob,
    SlurmNode,
    SlurmUnavailableError,
)
from tests.slurm_plugin.mock_pyslurm import mock_pyslurm, records_of


@dataclass
class ScriptedSlurm:
    """A Slurm that answers what the test says and keeps what it was asked."""

    all_jobs: tuple[SlurmJob, ...] = ()
    all_nodes: tuple[SlurmNode, ...] = ()
    all_reservations: tuple[Reservation, ...] = ()
    refusal: str | None = None
    down: bool = False
    forgets: bool = False
    ignores_orders: bool = False
    ran: list[tuple[Order, ...]] = field(default_factory=list)
    reads: int = 0

    def jobs(self) -> tuple[SlurmJob, ...]:
        self._answer()
        return self.all_jobs

    def records(self) -> Records:
        self._answer()
        self.reads += 1
        return records_of(self.all_jobs)

    def nodes(self) -> tuple[SlurmNode, ...]:
        self._answer()
        return self.all_nodes

    def reservations(self) -> tuple[Reservation, ...]:
        self._answer()
        return self.all_reservations

    def look(self) -> Look:
        return Look(self.jobs(), self.nodes(), self.reservations(), self.partitions())

    def hides_jobs(self) -> bool:
        """It does not."""
        return False

    def booted_s(self) -> float:
        return 0.0

    def partitions(self) -> tuple[Partition, ...]:
        self._answer()
        return ()

    def limits(self) -> AccountingLimits:
        self._answer()
        return AccountingLimits()

    def spent(self, accounting: AccountingLimits) -> AccountingLimits:
        self._answer()
        return accounting

    def priority_factors(self) -> PriorityFactors:
        self._answer()
        return PriorityFactors()

    def fair_shares(self) -> Mapping[tuple[str, str], float]:
        self._answer()
        return {}

    def blocks(self, partitions: Sequence[str]) -> BlockTopology:
        self._answer()
        return BlockTopology()

    def licenses(self) -> dict[str, int]:
        self._answer()
        return {}

    def ended_jobs(self, partitions: Sequence[str], days: int) -> tuple[Job, ...]:
        self._answer()
        return ()

    def run(self, orders: Sequence[Order]) -> tuple[str | None, ...]:
        self._answer()
        if self.ignores_orders:
            raise SlurmUnavailableError("no answer")
        self.ran.append(tuple(orders))
        for order in orders:
            if isinstance(order, Reserve) and self.refusal is None and not self.forgets:
                self.all_reservations += (Reservation(order.name, order.nodes, 1.0, 61.0),)
        return (self.refusal,) * len(orders)

    def _answer(self) -> None:
        if self.down:
            raise SlurmUnavailableError("no answer")


class PyslurmRig:
    """The backend on a mock of pyslurm and a command line that can be told apart."""

    def __init__(self, *jobs: SlurmJob, **mock: Any) -> None:
        self.cluster = ScriptedSlurm(jobs)
        self.commands = ScriptedSlurm(jobs)
        self.now_s = 3e9
        self.slurm = PyslurmSlurm(mock_pyslurm(self.cluster, **mock), self.commands, lambda: self.now_s)

    def change(self, *jobs: SlurmJob) -> None:
        self.cluster.all_jobs = self.commands.all_jobs = jobs
