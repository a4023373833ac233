"""Detects that a run goes on and on while nothing gets done, so that no policy can keep it from ending."""

from collections.abc import Mapping
from dataclasses import dataclass
from heapq import nlargest

from dally.state import ClusterState
from dally.words import plural, span

WINDOW = 5000
"""Decisions in a row without the end of a job after which the training done in as many more is looked at."""

LEAST_PART = 0.01
"""Of the time in which jobs hold GPUs, the part that must be training; the rest is starts and restarts.

Turns as long as two restarts train for half of it, and training over a slow link is training, too. Only turns
that mostly end before the restart does come near this.
"""

LEAST_S = 1e-3
"""Training that a decision must come to on average, job-seconds, so that ever smaller steps end as well."""

_NAMED = 3


@dataclass(frozen=True, slots=True)
class JobTimes:
    """What a job has had so far: seconds with GPUs, those of training among them, and preemptions."""

    held_s: float = 0.0
    trained_s: float = 0.0
    preemptions: int = 0

    def since(self, before: "JobTimes") -> "JobTimes":
        """The times since an earlier moment."""
        return JobTimes(
            self.held_s - before.held_s,
            self.trained_s - before.trained_s,
            self.preemptions - before.preemptions,
        )


class StallDetector:
    """Counts decisions since a job ended, and looks every so many at what the jobs have had meanwhile.

    As long as it is silent each window of decisions ends a job or trains for a time that has a lower bound;
    there are finitely many jobs, with finite work, so every run ends.

    Args:
        state: The cluster and its jobs, as the engine keeps them up to date.
    """

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self._decisions = 0
        self._since_s = 0.0
        self._before: Mapping[str, JobTimes] | None = None

    def ended(self) -> None:
        """Note that a job has ended."""
        self._decisions, self._before = 0, None

    def decided(self, now: float) -> str:
        """Note a decision that was carried out; return in words what is wrong by now, mostly nothing."""
        self._decisions += 1
        if self._decisions < WINDOW:
            return ""
        before, since_s = self._before, self._since_s
        times = {
            job_id: JobTimes(job.run_s(now), job.training_s(now), job.preemptions)
            for job_id, job in self._state.jobs.items()
        }
        self._decisions, self._since_s, self._before = 0, now, times
        if before is None:
            return ""
        gains = {name: each.since(before.get(name, JobTimes())) for name, each in times.items()}
        held_s = sum(gain.held_s for gain in gains.values())
        trained_s = sum(gain.trained_s for gain in gains.values())
        if trained_s > LEAST_PART * held_s + LEAST_S * WINDOW:
            return ""
        stops = sum(gain.preemptions for gain in gains.values())
        most = nlargest(_NAMED, gains, key=lambda name: gains[name].preemptions)
        named = ", ".join(f"{name} {gains[name].preemptions:,}" for name in most)
        return (
            f"nothing gets done since {since_s:.0f} s: {WINDOW:,} decisions with "
            f"{plural(stops, 'preemption')} ended no job, and of {span(held_s)} with GPUs "
            f"{plural(len(gains), 'job')} trained {span(trained_s)} (preemptions: {named})"
        )
