"""Hands jobs that are held for Dally back to Slurm; needs neither a controller nor its journal."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from slurm_plugin.client.slurm import Hold, ReleaseToSlurm, Slurm, SlurmJob, State
from slurm_plugin.controller.job_requests import read_request, release_order
from slurm_plugin.controller.managed_job import JobPhase, ManagedJob
from slurm_plugin.request import Request


@dataclass(frozen=True, slots=True)
class HandBackResult:
    """What became of the jobs: those that are Slurm's now, and what Slurm said against the others."""

    released: tuple[str, ...]
    refused: Mapping[str, str]


def to_hand_back(
    jobs: Sequence[SlurmJob], managed_jobs: Mapping[str, ManagedJob]
) -> tuple[ReleaseToSlurm, ...]:
    """The orders for all jobs that wait for Dally, and for those that it has pinned to nodes.

    Jobs that their users or an administrator hold stay held.
    """
    found = (_order(job, managed_jobs.get(job.job_id)) for job in jobs if job.state is State.PENDING)
    return tuple(order for order in found if order is not None)


def hand_back(
    slurm: Slurm, orders: Sequence[ReleaseToSlurm], managed_jobs: Mapping[str, ManagedJob]
) -> HandBackResult:
    """Carry out the orders; a job that has left meanwhile counts neither way.

    Raises:
        SlurmUnavailableError: Slurm did not answer.
    """
    answers = slurm.run(orders)
    said = {order.job_id: answer for order, answer in zip(orders, answers, strict=True) if answer is not None}
    still = {order.job_id for order in to_hand_back(slurm.jobs(), managed_jobs)} if said else set()
    return HandBackResult(
        tuple(order.job_id for order in orders if order.job_id not in said),
        {job_id: answer for job_id, answer in said.items() if job_id in still},
    )


def _order(job: SlurmJob, managed: ManagedJob | None) -> ReleaseToSlurm | None:
    request = read_request(job.comment, job.admin_comment)
    if request is None:
        return None
    if managed is not None and not managed.same_as(job, request.tag):
        managed = None
    if not _waits_for_dally(job, request, managed):
        return None
    return release_order(job, request, managed)


def _waits_for_dally(job: SlurmJob, request: Request, managed: ManagedJob | None) -> bool:
    if job.hold is Hold.ADMIN:
        return False
    if job.hold is Hold.NONE:
        return bool(job.required_nodes) and (managed is None or managed.phase is JobPhase.STARTING)
    return not request.held or (managed is not None and managed.user_released)
