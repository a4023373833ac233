"""What schedulers take jobs to last, by what they know: the one place where policies get it from.

Each job carries what is believed of its whole work (`JobState.believed_s`). A belief holds until the job has
done so much work that it must be revised, or until others have ended that it rests on; policies are told
then. So the order among running jobs changes at few moments only, and no policy ever sees the truth, but of
jobs that report how far they are.
"""

from abc import ABC, abstractmethod
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from math import exp, inf
from random import Random
from typing import Any

from dally.jobs.job import Job
from dally.jobs.knowledge import Knowledge, Known
from dally.policies.common.ranking import Ranking
from dally.state import JobState

_HOUR_S, _DAY_S = 3600.0, 86_400.0
LIMITS_S = (
    *(600.0, 1800.0),
    *(hours * _HOUR_S for hours in (1, 2, 4, 8, 12)),
    *(days * _DAY_S for days in (1, 2, 3, 7, 14, 30)),
)
"""The limits that users ask for, seconds; the last is the cap."""
AT_CAP = 0.05
"""Share of the jobs whose users ask for the cap."""
LEAST_ACCURATE = 0.05
"""The least part of its limit that a job takes."""
NEWCOMER_S = 3600.0
"""What a job is expected to take of which nothing is known."""
AGES_S = tuple(NEWCOMER_S * (4**number - 1) / 3 for number in range(32))
"""What jobs are taken to last of which only the age is known: an hour, 5, 21, 85 and so on."""


@dataclass(frozen=True, slots=True)
class Lessons:
    """What beliefs rest on.

    Attributes:
        knowledge: What is gone by: of auto, limits or history.
        ended: How many jobs have ended of which was learnt.
        since_s: Since when auto goes by that; None: from the beginning, or it is no choice.
        right: In which share of the pairs of ended jobs limits and history told which is the longer; of auto.
        limit_used: What part of their limits the last jobs took in the median; None if nobody knows.
    """

    knowledge: Knowledge
    ended: int = 0
    since_s: float | None = None
    right: Mapping[Knowledge, float] = field(default_factory=dict)
    limit_used: float | None = None


class Beliefs(ABC):
    """What is believed of the jobs of a cluster, kept up to date as they come, run and end.

    Attributes:
        is_saved: Whether nothing has happened since somebody who keeps snapshots set this.
    """

    def __init__(self) -> None:
        self.is_saved = False
        self._revisions = Ranking()

    @abstractmethod
    def believe(self, job: JobState, done_s: float) -> tuple[float, float]:
        """What a job's whole work is taken to be that has done so much of it, and up to how much that holds.

        All in ideal seconds; the first is no less than `done_s`, the second greater, inf for good.
        """

    def came(self, job: JobState) -> None:
        """A job waits, or came back with a past."""
        self._revise(job, job.work_before_s)

    def runs(self, job: JobState) -> None:
        """A job runs, or goes on at another pace."""
        self.rests(job)
        if job.held_s < inf:
            self._revisions.add(job, job.worked_s(job.held_s))

    def rests(self, job: JobState) -> None:
        """A job does not run now, so time revises nothing of it."""
        if job in self._revisions:
            self._revisions.remove(job)

    def stopped(self, job: JobState) -> None:
        """A job lost its GPUs; it may have outlived a belief while it wrote its checkpoint."""
        self.rests(job)
        while job.held_s <= job.work_before_s:
            self._outlived(job, job.work_before_s)

    def ended(self, job: JobState, work_s: float, now: float) -> Iterable[JobState]:
        """A job has ended with so much done; those of whom something else is believed now."""
        self.left(job)
        return ()

    def teach(self, job: Job, work_s: float, now: float) -> None:  # noqa: B027  most learn nothing
        """A job did so much work before anybody watched."""

    @abstractmethod
    def lessons(self) -> Lessons:
        """What all this rests on."""

    def left(self, job: JobState) -> None:
        """A job is gone."""
        self.is_saved = False
        self.rests(job)

    def due(self, now: float) -> Iterator[JobState]:
        """Revise the beliefs that running jobs have outlived by `now`; those jobs."""
        while self._revisions and self._revisions.first_key() <= now:
            job = self._revisions.at(0)
            self._outlived(job, job.work_s(now))
            self.runs(job)
            yield job

    def next_due_s(self) -> float:
        """When the next belief has to be revised; inf if none has."""
        return self._revisions.first_key() if self._revisions else inf

    def snapshot(self) -> dict[str, Any]:
        """What was learnt of jobs that have ended, as plain data."""
        return {}

    def restore(self, learnt: Mapping[str, Any]) -> None:  # noqa: B027  most have learnt nothing
        """Take back what `snapshot` gave, before jobs are submitted again."""

    def _outlived(self, job: JobState, work_s: float) -> None:
        """A belief of a job is over."""
        self._revise(job, max(job.held_s, work_s))

    def _revise(self, job: JobState, done_s: float) -> None:
        self.is_saved = False
        job.believe(*self.believe(job, done_s))


class Told(Beliefs):
    """Each job has a number of its own: true, true but for an error, or its limit.

    A job that outlives it is taken to need as much again, and so on: as good as any other rule where nothing
    else is known, and the number of revisions stays small.
    """

    def __init__(self, known: Known) -> None:
        super().__init__()
        self._known = known

    def believe(self, job: JobState, done_s: float) -> tuple[float, float]:
        """The number, doubled as often as the job has outlived it."""
        known, asked = self._known, job.job
        if known.knowledge is Knowledge.LIMITS:
            whole_s = limit_s(asked, known.seed)
        elif known.error:
            whole_s = asked.duration_s * exp(known.error * _draws(asked, known.seed).gauss(0.0, 1.0))
        else:
            return asked.duration_s, inf
        while whole_s <= done_s:
            whole_s *= 2
        return whole_s, whole_s

    def lessons(self) -> Lessons:
        """Nothing is learnt."""
        return Lessons(self._known.knowledge)


class Unknown(Beliefs):
    """A job is taken to end at the next of a few ages, each four times as far from the last as that was.

    Those that have run least go first, as is best where running times spread widely (Nuyens and Wierman, The
    Foreground-Background queue, Performance Evaluation 65, 2008). Where they do not spread so widely that
    makes long jobs of like age take turns, and all of them end late. With few ages jobs of like age go one
    after another, as in a multi-level feedback queue.
    """

    def believe(self, job: JobState, done_s: float) -> tuple[float, float]:
        """The next of the ages, until then."""
        age_s = AGES_S[bisect_right(AGES_S, done_s)]
        return age_s, age_s

    def lessons(self) -> Lessons:
        """Nothing is learnt."""
        return Lessons(Knowledge.NONE)


def limit_s(job: Job, seed: int) -> float:
    """What a user asks for: the job's time limit, if it has one, else one drawn for it, seconds.

    Drawn, the job takes a part of it that is uniform on [.05, 1], and it is rounded up to what users write;
    a share of users asks for the most there is. Never less than the job takes, or it would not have ended.
    Source: Tsafrir, Etsion and Feitelson, Backfilling Using System-Generated Predictions Rather than User
    Runtime Estimates, IEEE TPDS 18(6), 2007, after the same authors' model of user estimates, JSSPP 2005.
    """
    if job.time_limit_s is not None:
        return max(job.time_limit_s, job.duration_s)
    draws = _draws(job, seed)
    asked_s = job.duration_s / draws.uniform(LEAST_ACCURATE, 1.0)
    place = bisect_left(LIMITS_S, asked_s)
    if place == len(LIMITS_S) or draws.random() < AT_CAP:
        return max(LIMITS_S[-1], job.duration_s)
    return LIMITS_S[place]


def _draws(job: Job, seed: int) -> Random:
    """A source of numbers of the job's own, whatever other jobs there are."""
    return Random(f"{seed} {job.job_id}")
