"""What jobs of the same user and model took before: what a new one is expected to take."""

from collections.abc import Iterable, Mapping
from math import exp, log
from typing import Any

from dally.state import JobState

NEWEST = 0.2
"""What the last job counts in a mean, at least; the others count what they did before, less that."""

Likeness = tuple[str, str, int]
"""User, model and GPUs that jobs have in common; empty or 0 where they may differ."""


class History:
    """Expected running times of new jobs, by those like them that have ended.

    Running times spread over orders of magnitude, and a user's last jobs tell more than older ones, so it is
    a running mean of logarithms. What a job is expected to take is fixed when it arrives, and stays.

    Args:
        unknown_s: What a job is expected to take that has none like it, seconds.
    """

    def __init__(self, unknown_s: float) -> None:
        self._unknown_s = unknown_s
        self._means: dict[Likeness, tuple[int, float]] = {}
        self._expected_s: dict[str, float] = {}
        self._restored_s: dict[str, float] = {}

    def arrived(self, job: JobState) -> None:
        """A job came, or came back after this was restored."""
        known = (exp(self._means[like][1]) for like in _alike(job) if like in self._means)
        new_s = next(known, self._unknown_s)
        self._expected_s[job.job_id] = self._restored_s.pop(job.job_id, new_s)

    def expected_s(self, job: JobState) -> float:
        """What a job was expected to take when it came, seconds."""
        return self._expected_s[job.job_id]

    def ended(self, job: JobState) -> None:
        """A job has ended: others like it may take as long as it ran."""
        for like in _alike(job):
            jobs, mean = self._means.get(like, (0, 0.0))
            mean += max(NEWEST, 1 / (jobs + 1)) * (log(max(job.run_before_s, 1.0)) - mean)
            self._means[like] = jobs + 1, mean
        self.left(job)

    def left(self, job: JobState) -> None:
        """A job is gone, and teaches nothing."""
        del self._expected_s[job.job_id]

    def snapshot(self) -> dict[str, Any]:
        """As plain data."""
        means = [[*like, *mean] for like, mean in sorted(self._means.items())]
        return {"means": means, "expected_s": dict(sorted(self._expected_s.items()))}

    def restore(self, learnt: Mapping[str, Any]) -> None:
        """Take back what `snapshot` gave, before the jobs are submitted again."""
        self._means = {(user, model, gpus): (jobs, mean) for user, model, gpus, jobs, mean in learnt["means"]}
        self._restored_s = dict(learnt["expected_s"])


def _alike(job: JobState) -> Iterable[Likeness]:
    """What a job has in common with others, the most telling first."""
    user, model, gpus = job.job.user, job.job.model, job.job.gpus
    return dict.fromkeys(((user, model, gpus), (user, model, 0), (user, "", 0), ("", model, gpus)))
