"""Jobs as Slurm will judge them: with what their partitions give jobs that say nothing of CPUs and memory.

Slurm puts it into a job when it looks for nodes for it. A held job looks until then as if it asked for one
CPU, and for all memory of its nodes.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from slurm_plugin.client.slurm import JobDefaults, Partition, SlurmJob, State


class DefaultsOfJobs:
    """Gives jobs what they will have by default; one that has not changed is the same object again."""

    def __init__(self) -> None:
        self._defaults: Mapping[str, JobDefaults] = {}
        self._jobs: dict[str, tuple[SlurmJob, SlurmJob]] = {}

    def applied(self, jobs: Sequence[SlurmJob], partitions: Iterable[Partition]) -> Sequence[SlurmJob]:
        """All jobs that Slurm knows, with the defaults of their partitions."""
        defaults = {each.name: each.defaults for each in partitions if _are_by_gpu(each.defaults)}
        if defaults != self._defaults:
            self._defaults, self._jobs = defaults, {}
        if not defaults:
            return jobs
        self._jobs = {job.job_id: self._with_defaults(job) for job in jobs}
        return [judged for _, judged in self._jobs.values()]

    def _with_defaults(self, job: SlurmJob) -> tuple[SlurmJob, SlurmJob]:
        """A job as Slurm shows it, and with its defaults: of several partitions the most that one gives."""
        known = self._jobs.get(job.job_id)
        if known is not None and known[0] is job:
            return known
        found = [self._defaults[name] for name in job.partition.split(",") if name in self._defaults]
        judged = job
        for most in sorted(found, key=lambda each: (each.memory_per_gpu_mb, each.cpus_per_gpu), reverse=True):
            judged = with_defaults(judged, most)
        return job, judged


def with_defaults(job: SlurmJob, defaults: JobDefaults) -> SlurmJob:
    """A job with what it will have by default; what it has by now stays.

    Slurm does not show that a held job asks for one CPU for each task, or for all memory (`--mem=0`): it is
    taken to say nothing. Limits on its memory and CPUs go by what it will have, too.
    """
    gpus, tres = job.tres.get("gres/gpu", 0.0), dict(job.tres)
    by_node = job.memory_per_node_mb not in (0, defaults.memory_per_node_mb)
    by_cpu = job.memory_per_cpu_mb not in (0, defaults.memory_per_cpu_mb)
    if by_node or by_cpu:
        job = replace(job, memory_per_gpu_mb=0)  # Slurm shows the default in any case, and does not use it
    elif defaults.memory_per_gpu_mb:
        per_gpu_mb = job.memory_per_gpu_mb or defaults.memory_per_gpu_mb
        job = replace(job, memory_per_gpu_mb=per_gpu_mb, memory_per_node_mb=0, memory_per_cpu_mb=0)
        tres["mem"] = per_gpu_mb * gpus
    if job.cpus_per_task == 1 and not job.cpus_per_gpu:
        job = replace(job, cpus_per_gpu=defaults.cpus_per_gpu)
        tres["cpu"] = max(tres.get("cpu", 0.0), defaults.cpus_per_gpu * gpus)
    return replace(job, tres=tres) if gpus and job.state is State.PENDING else job


def _are_by_gpu(defaults: JobDefaults) -> bool:
    return bool(defaults.cpus_per_gpu or defaults.memory_per_gpu_mb)
