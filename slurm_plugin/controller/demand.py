"""What a Slurm job asks for, as a job that policies understand; or why Dally cannot place it."""

import re
from dataclasses import replace

from dally.errors import InputError
from dally.jobs.job import Job, JobKind
from slurm_plugin.client.slurm import SlurmJob
from slurm_plugin.request import Request

UNLIMITED_S = 30 * 86_400.0
"""Taken as the duration of a job without a time limit: nobody knows it, and policies want a number."""

_GPU = re.compile(
    r"(?:^|,)(?:gres[:/])?gpu(?::(?P<type>[A-Za-z][\w.-]*))?(?:[:=](?P<count>[0-9]{1,9}))?(?:\([^)]*\))?(?=,|$)"
)


class UnfitError(InputError):
    """Dally cannot place the job as it was asked for; Slurm can."""


def demand(job: SlurmJob, request: Request) -> Job:
    """The job that policies see.

    A count per node, or a number of nodes or tasks per node that divides the GPUs, fixes what each machine
    gives; `--gpus` alone leaves it open. The time limit stands for the unknown duration. Of a waiting job
    the numbers of nodes and tasks can be changed, so only one that counts its GPUs by them has a range.

    Raises:
        UnfitError: It asks for no GPUs, or its options fix a placement that policies know nothing of.
    """
    fixed = {
        "--exclude": job.excluded_nodes,
        "--constraint": job.features,
        "--exclusive": job.exclusive,
        "--switches": job.switches,
        "--gpus-per-socket": job.tres_per_socket,
        "a part of a heterogeneous job": job.heterogeneous,
    }
    if found := next((option for option, value in fixed.items() if value), ""):
        raise UnfitError(f"{found} fixes the placement")
    gpus, each, gpu_type = _gpus(job)
    plain = Job(
        job_id=job.job_id,
        submit_s=job.submit_s,
        gpus=gpus,
        duration_s=job.time_limit_s or UNLIMITED_S,
        user=job.user,
        group=job.account,
        model=request.model,
        gpu_type=gpu_type,
        time_limit_s=job.time_limit_s,
        gpus_per_machine=each,
        preemptible=bool(request.signal) and job.requeue,
        job_name=job.job_name,
    )
    if request.max_copies > 1:
        if not job.tres_per_node or job.tres_per_job:
            raise UnfitError("its copies' GPUs are not counted by --gpus-per-node or --gres alone")
        return replace(plain, kind=JobKind.FORKED, max_copies=request.max_copies)
    low, high = request.min_gpus or gpus, request.max_gpus or gpus
    if low == high or job.tres_per_job:
        return plain
    if not low <= gpus <= high:
        raise UnfitError(f"it asks for {gpus} GPUs, outside of its own range {low} to {high}")
    return replace(plain, kind=JobKind.ELASTIC, min_gpus=low, max_gpus=high)


def _gpus(job: SlurmJob) -> tuple[int, int | None, str | None]:
    """GPUs in all, on each machine if that is fixed, and their type."""
    for text, times, each in (
        (job.tres_per_node, job.min_nodes, 1),
        (job.tres_per_task, job.tasks, job.tasks_per_node or _share(job.tasks, job.min_nodes)),
        (job.tres_per_job, 1, None),
    ):
        found = [(match["type"], int(match["count"] or 1)) for match in _GPU.finditer(text)]
        if len(found) > 1:
            raise UnfitError(f"it asks for several kinds of GPUs: {text}")
        if found and found[0][1]:
            gpu_type, count = found[0]
            gpus = count * times
            share = _share(gpus, job.min_nodes) if each is None else each * count
            if share and gpus % share:
                raise UnfitError(f"{gpus} GPUs do not come out even with {share} on each node")
            return gpus, share, gpu_type
    raise UnfitError("it asks for no GPUs")


def _share(whole: int, nodes: int) -> int | None:
    """The equal share of each node; None if the number of nodes is open or does not divide the whole."""
    return whole // nodes if nodes > 1 and whole % nodes == 0 else None
