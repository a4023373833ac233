"""What is spent of limits on minutes, kept up to date while jobs start and end."""

from collections.abc import Sequence
from math import inf

from slurm_plugin.client.accounting_limits import AccountingLimits, Counted
from slurm_plugin.client.slurm import HOLDS_GPUS, Slurm, SlurmJob
from slurm_plugin.controller.start_conditions import StartConditions

SPENT_S = 10.0
"""Where jobs have started or ended, what is spent is read anew no oftener than this."""


class SpentMinutes:
    """Reads what is spent of limits when jobs have started or ended since it was read.

    Slurm books what a running job uses now and then (PriorityCalcPeriod), and shows beside it what it may
    still take. Both together do not change while it runs. So between two readings nothing is missed: a job
    that has started since counts with all of its time limit, one that has ended as before.

    Args:
        slurm: Access to Slurm.
        conditions: Told of what is spent, and by which runs.
    """

    def __init__(self, slurm: Slurm, conditions: StartConditions) -> None:
        self._slurm, self._conditions = slurm, conditions
        self._read: AccountingLimits | None = None
        self._due_s = -inf

    def refresh(self, jobs: Sequence[SlurmJob], now: float) -> None:
        """Read it if that is due.

        Args:
            jobs: All jobs as Slurm has just shown them.
            now: The time, seconds.

        Raises:
            SlurmUnavailableError: Slurm does not answer.
        """
        limits = self._conditions.limits
        is_new = limits is not self._read
        if is_new and not any(limit.counted is Counted.SPENT for limit in limits.limits):
            self._read, self._due_s = limits, inf
            return
        if not is_new and now < self._due_s:
            return
        runs = frozenset((job.job_id, job.start_s) for job in jobs if job.state in HOLDS_GPUS)
        if not is_new and runs == self._conditions.runs_in_spent:
            return
        self._read = self._conditions.limits = self._slurm.spent(limits)
        self._conditions.runs_in_spent, self._due_s = runs, now + SPENT_S
