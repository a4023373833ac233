"""Why jobs wait, told where their users look: in the AdminComment that squeue prints."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import inf

from slurm_plugin.client.orders import Annotate
from slurm_plugin.client.slurm import SlurmJob, State
from slurm_plugin.controller.managed_job import (
    AnyPhase,
    IneligiblePhase,
    ManagedJob,
    PendingPhase,
    ReleasedPhase,
)
from slurm_plugin.controller.transitions import Log
from slurm_plugin.request import MARK

SIGN = "Dally: "
"""How our words begin; a comment that others wrote is left alone."""

ANNOTATED_AGAIN_S = 60.0
"""The words for a job change at most so often."""

MOST_ANNOTATED = 10
"""In one cycle: each takes slurmctld some 5 ms, and none is urgent."""

_LONGEST = 200
_MAY_NOT = re.compile("[^']*(denied|invalid user)", re.IGNORECASE)
"""How Slurm says that Dally may not; what it quotes are the words of others."""

_WAITS = (IneligiblePhase, PendingPhase, ReleasedPhase)


@dataclass(frozen=True, slots=True)
class _Wanted:
    """The comment that a job is to have, as it is and in the phase that it is in."""

    job: SlurmJob
    phase: AnyPhase
    comment: str


class Annotations:
    """Tells which jobs are to get other words, and stops where Slurm does not let Dally write them.

    Tasks of arrays get none: an update sets a task apart from those that wait with it.

    Args:
        log: Records events.
    """

    def __init__(self, log: Log) -> None:
        self._log = log
        self._annotated_s: dict[str, float] = {}
        self._wanted: dict[str, _Wanted] = {}
        self._may_not = False

    def due(
        self, managed_jobs: Mapping[str, ManagedJob], seen: Callable[[str], SlurmJob], now: float
    ) -> list[Annotate]:
        """The orders for the jobs whose words have changed, those that have had theirs longest first.

        Args:
            managed_jobs: Our jobs, by number.
            seen: Gives a job as Slurm last showed it.
            now: The time.
        """
        if self._may_not:
            return []
        self._annotated_s = {job: told_s for job, told_s in self._annotated_s.items() if job in managed_jobs}
        before, self._wanted, orders = self._wanted, {}, []
        for job_id, managed in managed_jobs.items():
            job, known = seen(job_id), before.get(job_id)
            if known is None or known.job is not job or known.phase is not managed.phase:
                if job.array_id or job.state is State.ENDED:
                    continue
                known = _Wanted(job, managed.phase, annotated(job.admin_comment, _words(managed, job)))
            self._wanted[job_id] = known
            if known.comment != job.admin_comment:
                told_s = self._annotated_s.get(job_id, -inf)
                if now >= told_s + ANNOTATED_AGAIN_S:
                    orders.append((told_s, Annotate(job_id, known.comment)))
        orders.sort(key=lambda each: each[0])
        return [order for _, order in orders[:MOST_ANNOTATED]]

    def answered(self, orders: Sequence[Annotate], answers: Sequence[str | None], now: float) -> None:
        """Slurm took or refused the orders."""
        for order, refusal in zip(orders, answers, strict=True):
            self._annotated_s[order.job_id] = now
            if refusal is not None and _MAY_NOT.match(refusal) and not self._may_not:
                self._may_not = True
                self._log(now, "annotations_refused", job=order.job_id, said=refusal)


def annotated(comment: str, words: str) -> str:
    """An admin comment with our words in place of those before; as it is, if others wrote in it.

    The mark that job_submit.lua has put there says what the job is, and stays.
    """
    mark, _, rest = comment.partition(" ") if comment.startswith(MARK) else ("", "", comment)
    if rest and not rest.startswith(SIGN):
        return comment
    return " ".join(filter(None, (mark, f"{SIGN}{words}" if words else "")))


def _words(managed: ManagedJob, job: SlurmJob) -> str:
    """Why a job waits, in characters that are nothing else to Slurm; nothing if it does not wait."""
    if job.state is not State.PENDING or not isinstance(managed.phase, _WAITS):
        return ""
    text = re.sub("[^ -~]|[\"'\\\\]", "?", managed.phase.reason)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."
