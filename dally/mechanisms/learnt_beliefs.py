"""How long jobs take by those like them that have ended: an index from the distribution of the work left.

The index is Gittins's: the least, over all spans, of the work that a job is expected to get in such a span
over the chance that it ends within it. To serve the least index first is best where sizes are unknown and
their distribution is known; with a falling rate of ending it is least attained service, with known sizes
least remaining time (Gittins, Glazebrook and Weber, Multi-armed Bandit Allocation Indices, 2011; Scully,
Harchol-Balter and Scheller-Wolf, The Gittins Policy is Nearly Optimal in the M/G/k under Extremely General
Conditions, SIGMETRICS 2021).
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from math import ceil, inf
from typing import Any

from dally.knowledge import Knowledge, Known
from dally.mechanisms.beliefs import NEWCOMER_S, Beliefs, limit_s
from dally.state import JobState

FIRST_S = 30.0
EDGES_S = (0.0, *(FIRST_S * 2 ** (number / 2) for number in range(36)), inf)
"""Ages between which the rate of ending is taken to be even; two an octave, up to 64 days."""
BINS = len(EDGES_S) - 1
PARENT_JOBS = 3.0
"""Jobs that the guess from a wider group counts for in a narrower one."""
REFIT = 1.1
"""A group is looked at again when so many times as many of its jobs have ended."""
WORTH_TELLING = 0.1
"""What is believed to be left must change by such a part for others to be told."""

Likeness = tuple[str, ...]
"""What the jobs of a group have in common: nothing, the user, the GPUs too; or the limit."""


class Group:
    """How jobs that have something in common ended: of those that came to each age, how many ended there.

    Attributes:
        exposed: (bins,) jobs that reached the end of a bin or ended in it.
        ends: (bins,) jobs that ended in it.
        ended: All that ended.
        fits: How often the rates were worked out.
    """

    __slots__ = ("_next_fit", "_parent", "_rates", "ended", "ends", "exposed", "fits")

    def __init__(self, exposed: Sequence[int] = (0,) * BINS, ends: Sequence[int] = (0,) * BINS) -> None:
        self.exposed, self.ends = [*exposed], [*ends]
        self.ended = sum(self.ends)
        self.fits = 0
        self._next_fit = 0
        self._rates: Sequence[float] = ()
        self._parent: Sequence[float] = ()

    @property
    def is_due(self) -> bool:
        """Whether so many have ended that the rates are to be worked out again."""
        return self.ended >= self._next_fit

    def rates(self, parent: Sequence[float]) -> Sequence[float]:
        """(bins,) the chance to end in each bin if reached; a wider group's where few were seen."""
        if self.is_due or self._parent is not parent:
            counts = zip(self.ends, self.exposed, parent, strict=True)
            self._rates = [(end + PARENT_JOBS * rate) / (seen + PARENT_JOBS) for end, seen, rate in counts]
            self._next_fit = max(self.ended + 1, ceil(REFIT * self.ended))
            self._parent = parent
            self.fits += 1
        return self._rates


class Learnt(Beliefs):
    """What is left of a job is its index, by the jobs of its user on as many GPUs, or those with its limit.

    Each group is smoothed towards the wider one, all jobs towards those of which nothing is known. Running
    jobs count as far as they came, those that ended till there. Nothing is ever unlearnt. Limits that say
    nothing, all alike, make one group of all jobs, and do no harm.

    Args:
        known: History, or limits.
    """

    def __init__(self, known: Known) -> None:
        super().__init__()
        self._known = known
        self._groups: dict[Likeness, Group] = {}
        self._present: dict[Likeness, dict[int, JobState]] = {}
        self._tables: dict[Likeness, tuple[int, Sequence[float]]] = {}
        self._restored: dict[str, tuple[float, float]] = {}

    def believe(self, job: JobState, done_s: float) -> tuple[float, float]:
        """Its index at the last of the ages that it has passed, until the next."""
        place = bisect_right(EDGES_S, done_s) - 1
        return self._table(job)[place], EDGES_S[place + 1]

    def came(self, job: JobState) -> None:
        """It is believed what was before a restart, else what its likes took."""
        for like in self._likes(job)[1:]:
            self._present.setdefault(like, {})[job.order] = job
        if (known := self._restored.pop(job.job_id, None)) is not None:
            job.expected_s, job.held_s = known
        else:
            super().came(job)

    def due(self, now: float) -> Iterator[JobState]:
        """Running jobs that come to the end of a bin teach that they did."""
        while self._revisions and self._revisions.first_key() <= now:
            job = self._revisions.at(0)
            reached = bisect_left(EDGES_S, job.held_s)
            for group in self._chain(job):
                group.exposed[reached - 1] += 1
            self._revise(job, job.held_s)
            self.runs(job)
            yield job

    def ended(self, job: JobState, work_s: float) -> Iterable[JobState]:
        """Its likes may do as it did; those of the widest group of which that says something new."""
        place = min(bisect_right(EDGES_S, work_s), BINS) - 1
        reached = min(bisect_left(EDGES_S, job.held_s) - 1, place)
        for group in self._chain(job):
            for passed in range(reached, place + 1):
                group.exposed[passed] += 1
            group.ends[place] += 1
            group.ended += 1
        self.left(job)
        likes = self._likes(job)[1:]
        widest = next((like for like in likes if self._groups[like].is_due), None)
        return () if widest is None else [*self._changed(widest)]

    def left(self, job: JobState) -> None:
        """It is gone."""
        super().left(job)
        for like in self._likes(job)[1:]:
            del self._present[like][job.order]
            if not self._present[like]:
                del self._present[like]

    def snapshot(self) -> dict[str, Any]:
        """The counts of each group, and what is believed of each job, as plain data."""
        groups = [[*like, group.exposed, group.ends] for like, group in sorted(self._groups.items())]
        present = (jobs for like, jobs in self._present.items() if len(like) == 1)
        believed = {job.job_id: [job.expected_s, job.held_s] for jobs in present for job in jobs.values()}
        return {"groups": groups, "believed": dict(sorted(believed.items()))}

    def restore(self, learnt: Mapping[str, Any]) -> None:
        """Take back what `snapshot` gave."""
        self._groups = {tuple(like): Group(exposed, ends) for *like, exposed, ends in learnt["groups"]}
        self._restored = {job_id: (whole, held) for job_id, (whole, held) in learnt["believed"].items()}

    def _changed(self, like: Likeness) -> Iterator[JobState]:
        """Revise the jobs of a group; those whose work left is not nearly what it was."""
        for job in self._present.get(like, {}).values():
            reached_s = EDGES_S[bisect_left(EDGES_S, job.held_s) - 1]
            expected_s, held_s = self.believe(job, reached_s)
            if abs(expected_s - job.expected_s) > WORTH_TELLING * (job.expected_s - reached_s):
                job.expected_s, job.held_s = expected_s, held_s
                yield job

    def _likes(self, job: JobState) -> Sequence[Likeness]:
        """The groups of a job, the widest first."""
        if self._known.knowledge is Knowledge.LIMITS:
            return (), (f"{limit_s(job.job, self._known.seed):g} s",)
        return (), (job.job.user,), (job.job.user, str(job.job.gpus))

    def _chain(self, job: JobState) -> list[Group]:
        return [self._groups.setdefault(like, Group()) for like in self._likes(job)]

    def _table(self, job: JobState) -> Sequence[float]:
        """(bins,) what the whole work of such a job is taken to be that has reached each bin."""
        like = self._likes(job)[-1]
        rates: Sequence[float] = _UNKNOWN
        fits = 0
        for group in self._chain(job):
            rates = group.rates(rates)
            fits += group.fits
        known, table = self._tables.get(like, (-1, ()))
        if known != fits:
            table = whole_work_s(rates)
            self._tables[like] = fits, table
        return table


def whole_work_s(rates: Sequence[float]) -> Sequence[float]:
    """(bins,) begin of each bin and the Gittins index there, seconds; at least the end of the bin.

    From the last bin on, spans are joined as long as the next one is worth more: then the first span of each
    bin is the best.

    Args:
        rates: (bins,) the chance to end in each bin if reached, from 0 to less than 1.
    """
    spans: list[tuple[float, float, float]] = []
    whole_s: list[float] = []
    for place in reversed(range(BINS)):
        begin_s, end_s = EDGES_S[place], min(EDGES_S[place + 1], 2 * EDGES_S[place] or FIRST_S)
        chance = rates[place]
        takes_s, stays = (end_s - begin_s) * (1 - chance / 2), 1 - chance
        while spans and spans[-1][0] * chance < takes_s * spans[-1][1]:
            next_s, next_chance, next_stays = spans.pop()
            takes_s += stays * next_s
            chance += stays * next_chance
            stays *= next_stays
        spans.append((takes_s, chance, stays))
        whole_s.append(max(begin_s + takes_s / chance, end_s))
    return whole_s[::-1]


def _lomax_rates() -> Sequence[float]:
    """(bins,) of jobs of which nothing is known: the rates of a Lomax distribution of shape 2."""
    stay = [(1 + edge_s / NEWCOMER_S) ** -2.0 for edge_s in EDGES_S[:-1]]
    stay.append((1 + 2 * EDGES_S[-2] / NEWCOMER_S) ** -2.0)
    return [1 - later / now for now, later in pairwise(stay)]


_UNKNOWN = _lomax_rates()
