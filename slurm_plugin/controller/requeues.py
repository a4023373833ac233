"""Requeues by others: a job that comes back again and again soon after its start is left out for a while.

Others are the job itself, Slurm's own preemption, health checks, and programs that requeue jobs whose node
failed. A controller that starts such a job at once each time would play ping-pong with them. What is counted
here is forgotten when the controller ends.
"""

from collections.abc import Container
from dataclasses import dataclass

from dally.words import span
from slurm_plugin.controller.failed_starts import longer

SOON_S = 600.0
"""A run that ends in a requeue earlier than that counts, seconds."""

PATIENCE = 3
"""So many such runs in a row are followed by a pause."""

RELEASED_WITH_IT_S = 120.0
"""A release so soon after a requeue belongs to it, seconds: nobody means to take the job from Dally."""


@dataclass(frozen=True, slots=True)
class _Requeued:
    last_s: float
    in_a_row: int = 0
    until_s: float = 0.0
    why: str = ""


class ForeignRequeues:
    """The requeues of our jobs that were not ours.

    Args:
        backoff_s: The first pause, seconds; it doubles each time, up to an hour.
    """

    def __init__(self, backoff_s: float) -> None:
        self._backoff_s = backoff_s
        self._jobs: dict[str, _Requeued] = {}

    def note(self, job_id: str, run_s: float, now: float) -> str:
        """A job was requeued after it ran for so long; why it is to wait now, in words, if it is."""
        before = self._jobs.get(job_id)
        in_a_row = 1 + (before.in_a_row if before else 0) if run_s < SOON_S else 0
        if in_a_row < PATIENCE:
            self._jobs[job_id] = _Requeued(now, in_a_row)
            return ""
        pause_s = longer(self._backoff_s, in_a_row - PATIENCE + 1)
        often = f"requeued {in_a_row} times in a row within {span(SOON_S)} of its start, and not by Dally"
        self._jobs[job_id] = _Requeued(now, in_a_row, now + pause_s, f"{often}: it waits {span(pause_s)}")
        return self._jobs[job_id].why

    def pause(self, job_id: str, now: float) -> tuple[str, float]:
        """Why a job must wait, in words, and until when, seconds; empty and the past if it need not."""
        found = self._jobs.get(job_id)
        return (found.why, found.until_s) if found and now < found.until_s else ("", 0.0)

    def explains_release(self, job_id: str, now: float) -> bool:
        """Whether a job was requeued just now, so that whoever did it has also released it."""
        found = self._jobs.get(job_id)
        return found is not None and now < found.last_s + RELEASED_WITH_IT_S

    def forget_all_but(self, job_ids: Container[str]) -> None:
        """Forget the jobs that are gone."""
        self._jobs = {job_id: found for job_id, found in self._jobs.items() if job_id in job_ids}
