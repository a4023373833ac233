"""Jobs that have ended and are there again, as slurmctld was killed and came back with an older state.

Nobody asked for them to run a second time. The journal knows their end; Slurm does not.
"""

from slurm_plugin.client.slurm import Slurm, SlurmJob
from slurm_plugin.controller.journal import Journal
from slurm_plugin.request import Request

BACK_S = 120.0
"""So soon after its start slurmctld itself requeues the jobs that it thinks are running and no node knows."""


class EndedJobs:
    """The ends that the journal knows.

    Args:
        journal: Where the events are.
        slurm: Tells when slurmctld was started.
    """

    def __init__(self, journal: Journal, slurm: Slurm) -> None:
        self._journal, self._slurm = journal, slurm

    def ended_as(self, job: SlurmJob, request: Request) -> str:
        """How a job that Slurm shows waiting or running had ended, in Slurm's words; empty: it had not.

        Who requeues an ended job by hand gives it a later submission and one restart more. So does slurmctld
        itself, but only just after it was started. A number that was given anew has another tag.
        """
        end = self._journal.end_of(job.job_id)
        if end is None or (request.tag and end.tag and request.tag != end.tag):
            return ""
        if job.submit_s <= end.submit_s and job.restarts <= end.restarts:
            return end.status
        if not 0 < job.restarts <= end.restarts + 1:
            return ""
        booted_s = self._slurm.booted_s()
        return end.status if end.submit_s < booted_s <= job.submit_s < booted_s + BACK_S else ""
