"""Jobs that Slurm no longer shows: they count as gone only if later looks lack them, too.

A job that ends is shown as ended for minutes (MinJobAge). So one that is missing all at once may be there
all the same: squeue's answer was short, or slurmctld has only just come back.
"""

from collections.abc import Sequence

from slurm_plugin.client.slurm import SlurmJob, State

GONE_S = 10.0
"""A job is gone once all looks of so many seconds lacked it."""


class VanishedJobs:
    """The jobs of the last look, to which the next one is held."""

    def __init__(self) -> None:
        self._last: dict[str, SlurmJob] = {}
        self._since_s: dict[str, float] = {}

    def restored(self, jobs: Sequence[SlurmJob], now: float) -> Sequence[SlurmJob]:
        """The jobs of a look, and as they were those that it lacks and that may come back.

        Args:
            jobs: All that it shows.
            now: The time, seconds.
        """
        shown = {job.job_id: job for job in jobs}
        missing = (job for job in self._last.values() if job.job_id not in shown)
        lacks = [job for job in missing if job.state is not State.ENDED]
        self._since_s = {job.job_id: self._since_s.get(job.job_id, now) for job in lacks}
        kept = [job for job in lacks if now < self._since_s[job.job_id] + GONE_S]
        self._last = {**shown, **{job.job_id: job for job in kept}}
        return [*jobs, *kept] if kept else jobs
