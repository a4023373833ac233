"""How much longer jobs are expected to hold their GPUs: as they say, or as long again as they have run."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Protocol

from dally.state import JobState


class Service(Protocol):
    """Expected time left of jobs, seconds; that of running jobs by a key that stays while they run.

    Of two running jobs the one with the lesser key holds its GPUs longer, at every moment.

    Attributes:
        grows: What running jobs hold grows with time, so that whoever waits must be looked at again.
    """

    grows: ClassVar[bool]

    def left_s(self, job: JobState, now: float) -> float:
        """Time left of a job, at its best placement."""

    def key(self, job: JobState) -> float:
        """The key of a running job."""

    def running_s(self, key: float, now: float) -> float:
        """Time left at `now` of the running job with such a key, where it is."""


class Given:
    """The durations that jobs come with: true ones in a simulation, time limits on a live cluster."""

    grows: ClassVar[bool] = False

    def left_s(self, job: JobState, now: float) -> float:
        """What is left of its duration."""
        return job.remaining_s(now)

    def key(self, job: JobState) -> float:
        """Its end, negated."""
        return -job.end_s()

    def running_s(self, key: float, now: float) -> float:
        """Until its end."""
        return -key - now


@dataclass(frozen=True, slots=True)
class Attained:
    """Nothing given: whoever ran for t seconds is taken to run for t more, and what a new job takes besides.

    That is the mean time left under a Lomax distribution of shape 2, whose mean is what a new job takes. With
    the same for all new jobs the least attained service goes first, as is best where running times are spread
    widely (Nuyens and Wierman, The Foreground-Background queue, Performance Evaluation 65, 2008).

    Attributes:
        newcomer_s: What a job is expected to take that has never run, seconds; the same each time.
    """

    newcomer_s: Callable[[JobState], float]
    grows: ClassVar[bool] = True

    def left_s(self, job: JobState, now: float) -> float:
        """As long again as it ran."""
        return job.run_s(now) + self.newcomer_s(job)

    def key(self, job: JobState) -> float:
        """When it would have begun if it had never waited, and what is expected of it."""
        return job.since_s - job.run_before_s - self.newcomer_s(job)

    def running_s(self, key: float, now: float) -> float:
        """As long again as it has run."""
        return now - key
