"""What a job in Slurm's queue asks of Dally, as far as this site and its cluster can give it."""

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache

from dally.errors import InputError
from dally.jobs.job import Gang, Job, JobKind
from slurm_plugin.client.slurm import Hold, ReleaseToSlurm, SlurmJob
from slurm_plugin.config import Config
from slurm_plugin.controller.demand import UnfitError, demand
from slurm_plugin.controller.managed_job import ManagedJob
from slurm_plugin.request import Request, decode_job


class RequestReader:
    """Reads jobs for one site.

    Args:
        config: Settings.
        best_level: The lowest level of the cluster that holds a gang; raises `CapacityError` if none does.
        shadow: Whether jobs are looked at that do not ask for Dally.
    """

    def __init__(self, config: Config, best_level: Callable[[Gang], int], shadow: bool) -> None:
        self._config, self._best_level, self._shadow = config, best_level, shadow

    def request(self, job: SlurmJob) -> Request | None:
        """What the job's comments ask of Dally; None if nothing. In shadow mode every job of ours asks."""
        request = read_request(job.comment, job.admin_comment)
        if request is None:
            return Request(held=job.hold is Hold.USER) if self._shadow and self._is_ours(job) else None
        longest_s = self._config.longest_grace_s
        return request if request.grace_s <= longest_s else replace(request, grace_s=longest_s)

    def tag(self, job: SlurmJob) -> str:
        """The tag in the job's comments; empty if there is none."""
        request = self.request(job)
        return request.tag if request else ""

    def first_asked(self, job: SlurmJob, request: Request) -> Job:
        """What a job asks for, which Dally has never released.

        Raises:
            UnfitError: Dally cannot place it.
            CapacityError: The cluster is too small for it.
        """
        if not self._is_ours(job):
            raise UnfitError(f"partition {job.partition} is not one of Dally's")
        nodes, tasks = shown_size(job, request)
        asked = demand(replace(job, min_nodes=nodes, tasks=tasks), request)
        self._best_level(asked.gang)
        return asked

    def asked(self, managed: ManagedJob, job: SlurmJob, request: Request) -> Job:
        """What a waiting job asks for now: somebody may have changed it.

        Raises:
            UnfitError: Dally cannot place it any more.
            CapacityError: The cluster is too small for it.
        """
        nodes, tasks = asked_size(managed, job)
        limit_s = own_limit_s(managed, job)
        asked = self.first_asked(replace(job, min_nodes=nodes, tasks=tasks, time_limit_s=limit_s), request)
        often = max(job.restarts, managed.history.preemptions) >= self._config.max_requeues
        return replace(asked, submit_s=managed.job.submit_s, preemptible=asked.preemptible and not often)

    def _is_ours(self, job: SlurmJob) -> bool:
        return set(job.partition.split(",")) <= set(self._config.partitions)


def shown_size(job: SlurmJob, request: Request) -> tuple[int, int]:
    """Fewest nodes and tasks that a job asks for, as Slurm shows them; those of one copy if it forks."""
    if request.max_copies > 1:
        return 1, max(1, job.tasks // job.min_nodes)
    return job.min_nodes, job.tasks


def asked_size(managed: ManagedJob, job: SlurmJob) -> tuple[int, int]:
    """Fewest nodes and tasks that a pending job asks for; once released, it may show what Dally chose."""
    if not managed.placed_once:
        return shown_size(job, managed.request)
    if managed.job.kind is not JobKind.RIGID:
        return managed.min_nodes, managed.tasks
    return job.min_nodes if job.tres_per_node else managed.min_nodes, job.tasks


def own_limit_s(managed: ManagedJob, job: SlurmJob) -> float | None:
    """The time limit that a job asks for; the one that it shows may be what Dally gave it."""
    given = managed.limit_s is not None and job.time_limit_s == managed.limit_s
    return managed.job.time_limit_s if given else job.time_limit_s


def release_order(job: SlurmJob, request: Request, managed: ManagedJob | None) -> ReleaseToSlurm:
    """The order by which a job becomes Slurm's own, of the size that it asked for."""
    nodes, tasks = shown_size(job, request) if managed is None else asked_size(managed, job)
    own_s = job.time_limit_s if managed is None else own_limit_s(managed, job)
    limit_min = None if own_s in (None, job.time_limit_s) else int(own_s // 60)
    if job.tres_per_job or not (request.max_copies > 1 or request.min_gpus or request.max_gpus):
        return ReleaseToSlurm(job.job_id, nodes, limit_min=limit_min)
    return ReleaseToSlurm(job.job_id, nodes, tasks, has_exact_nodes(job, nodes), job.cpus_per_task, limit_min)


def has_exact_nodes(job: SlurmJob, nodes: int) -> bool:
    """Whether just so many nodes follow from how a job asks for its GPUs, and not as many as it takes."""
    return nodes > 1 or bool(job.tres_per_node or job.tasks_per_node)


@lru_cache(maxsize=1 << 15)
def read_request(comment: str, admin_comment: str) -> Request | None:
    """What a job's comments ask; a comment written by hand, and wrongly, makes it ours without wishes."""
    try:
        return decode_job(comment, admin_comment)
    except InputError:
        return Request()
