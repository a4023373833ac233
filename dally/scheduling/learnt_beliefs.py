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
from dataclasses import dataclass, field
from itertools import pairwise
from math import ceil, inf
from typing import Any

from dally.jobs.job import Job
from dally.jobs.knowledge import Knowledge, Known
from dally.scheduling.belief_choice import Choice, Ended
from dally.scheduling.beliefs import NEWCOMER_S, Beliefs, Lessons, limit_s
from dally.scheduling.likeness import Likeness, by_history, by_limit, is_of_user, limit_of
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

HALF_LIFE_JOBS = 20
"""A job counts half in a group of its user's jobs once so many more of them have ended."""

MOST_GROUPS = 10_000
"""Groups that are remembered; those of which no job has come for longest are forgotten."""


class JobGroup:
    """How jobs that have something in common ended: of those that came to each age, how many ended there.

    Attributes:
        exposed: (bins,) jobs that reached the end of a bin or ended in it.
        ends: (bins,) jobs that ended in it.
        ended: All that ended.
        fades: A job counts less as others end.
        fits: How often the rates were worked out.
    """

    __slots__ = ("_next_fit", "_parent", "_rates", "ended", "ends", "exposed", "fades", "fits")

    def __init__(
        self, fades: bool, exposed: Sequence[float] = (), ends: Sequence[float] = (), ended: int = 0
    ) -> None:
        self.fades = fades
        self.exposed = [*exposed, *(0.0 for _ in range(BINS - len(exposed)))]
        self.ends = [*ends, *(0.0 for _ in range(BINS - len(ends)))]
        self.ended = ended
        self.fits = 0
        self._next_fit = 0
        self._rates: Sequence[float] = ()
        self._parent: Sequence[float] = ()

    @property
    def is_due(self) -> bool:
        """Whether so many have ended that the rates are to be worked out again."""
        return self.ended >= self._next_fit

    def add(self, reached: int, place: int) -> None:
        """A job ended in a bin; it has counted already in those before `reached`."""
        if self.fades:
            self.exposed = [round(_FADED * count, _PLACES) for count in self.exposed]
            self.ends = [round(_FADED * count, _PLACES) for count in self.ends]
        for passed in range(reached, place + 1):
            self.exposed[passed] += 1
        self.ends[place] += 1
        self.ended += 1

    def rates(self, parent: Sequence[float]) -> Sequence[float]:
        """(bins,) the chance to end in each bin if reached; a wider group's where few were seen."""
        if self.is_due or self._parent is not parent:
            counts = zip(self.ends, self.exposed, parent, strict=True)
            self._rates = [(end + PARENT_JOBS * rate) / (seen + PARENT_JOBS) for end, seen, rate in counts]
            self._next_fit = max(self.ended + 1, ceil(REFIT * self.ended))
            self._parent = parent
            self.fits += 1
        return self._rates

    def as_data(self) -> tuple[Sequence[float], Sequence[float], int]:
        """What builds it again."""
        return _cut(self.exposed), _cut(self.ends), self.ended


_FADED = 0.5 ** (1 / HALF_LIFE_JOBS)
_PLACES = 4

Chains = Mapping[Knowledge, Sequence[Likeness]]
"""The groups of a job, the widest first, by what is known of it."""


@dataclass(slots=True)
class Present:
    """A job that waits or runs, its groups, and what each side believed of it at its start."""

    job: JobState
    chains: Chains
    believed_s: Mapping[Knowledge, float] = field(default_factory=dict)


class Learnt(Beliefs):
    """What is left of a job is its index, by jobs like it, or by those with its limit.

    Each group is smoothed towards the wider one, all jobs towards those of which nothing is known. Running
    jobs count as far as they came, those that ended till there. By limits, a job is sure to end at its limit:
    so they tell short jobs apart before any has ended. Limits that say nothing, all alike, make one group of
    all jobs, and do no harm.

    Args:
        known: History, limits, or auto: both are learnt, and the one is believed that told truer so far.
    """

    def __init__(self, known: Known) -> None:
        super().__init__()
        self._known = known
        self._choice = Choice() if known.knowledge is Knowledge.AUTO else None
        self._groups: dict[Likeness, JobGroup] = {}
        self._present: dict[int, Present] = {}
        self._members: dict[Likeness, dict[int, JobState]] = {}
        self._tables: dict[Likeness, tuple[int, Sequence[float]]] = {}
        self._restored: dict[str, Sequence[Any]] = {}

    def believe(self, job: JobState, done_s: float) -> tuple[float, float]:
        """The index of a job at the last of the ages that it has passed, until the next."""
        place = bisect_right(EDGES_S, done_s) - 1
        present = self._present.get(job.order)
        chains = self._chains(job.job) if present is None else present.chains
        return self._table(self._believed_chain(chains))[place], EDGES_S[place + 1]

    def came(self, job: JobState) -> None:
        """A job arrived: what was believed before a restart holds, else what jobs like it took."""
        present = self._present[job.order] = Present(job, self._chains(job.job))
        for like in _narrow(present.chains):
            self._members.setdefault(like, {})[job.order] = job
        if (known := self._restored.pop(job.job_id, None)) is None:
            super().came(job)
            return
        expected_s, held_s, *believed_s = known
        job.believe(expected_s, held_s)
        present.believed_s = dict(zip(present.chains, believed_s, strict=False)) if believed_s else {}

    def runs(self, job: JobState) -> None:
        """A job runs: what each source believes now will be compared with how long it takes."""
        super().runs(job)
        present = self._present[job.order]
        if self._choice is not None and not present.believed_s:
            present.believed_s = self._at_start(present.chains)

    def ended(self, job: JobState, work_s: float, now: float) -> Iterable[JobState]:
        """A job has ended, and jobs like it may do as it did.

        Returns:
            The jobs whose belief changed: those of the widest group of which its end says something new;
            all, if from now on the other source is believed.
        """
        present = self._present[job.order]
        reached = bisect_left(EDGES_S, job.held_s) - 1
        self.left(job)
        if self._take_in(job.job, present, reached, work_s, now):
            return [*self._changed(each.job for each in self._present.values())]
        chain = self._believed_chain(present.chains)[1:]
        widest = next((like for like in chain if self._groups[like].is_due), None)
        return () if widest is None else [*self._changed(self._members.get(widest, {}).values())]

    def teach(self, job: Job, work_s: float, now: float) -> None:
        """A job took so long before anybody watched."""
        self._take_in(job, Present(JobState(job, -1, now), self._chains(job)), 0, work_s, now)

    def left(self, job: JobState) -> None:
        """A job has left: forget it."""
        super().left(job)
        for like in _narrow(self._present.pop(job.order).chains):
            del self._members[like][job.order]
            if not self._members[like]:
                del self._members[like]

    def lessons(self) -> Lessons:
        """How many have ended, and what is believed for that."""
        ended = self._group(()).ended
        if self._choice is None:
            return Lessons(self._known.knowledge, ended)
        choice = self._choice
        return Lessons(choice.best, ended, choice.since_s, choice.shares(), choice.limit_used())

    def snapshot(self) -> dict[str, Any]:
        """The counts of each group, and what is believed of each job, as plain data."""
        believed = dict(self._restored) | {
            each.job.job_id: [each.job.believed_s, each.job.held_s, *each.believed_s.values()]
            for each in self._present.values()
        }
        groups = [[like, *group.as_data()] for like, group in self._groups.items()]
        choice = {} if self._choice is None else {"choice": self._choice.snapshot()}
        return {"knowledge": self._known.knowledge, "groups": groups, "believed": believed, **choice}

    def restore(self, learnt: Mapping[str, Any]) -> None:
        """Take back what `snapshot` gave; of those who knew something else, only how jobs ended."""
        groups = ((tuple(like), counts) for like, *counts in learnt["groups"])
        self._groups = {like: JobGroup(is_of_user(like), *counts) for like, counts in groups}
        if learnt["knowledge"] == self._known.knowledge:
            self._restored = dict(learnt["believed"])
            if self._choice is not None:
                self._choice.restore(learnt["choice"])

    def _outlived(self, job: JobState, work_s: float) -> None:
        """A job that comes to the end of a bin teaches that it did."""
        reached = bisect_left(EDGES_S, job.held_s)
        for like in _all(self._present[job.order].chains):
            self._group(like).exposed[reached - 1] += 1
        self._revise(job, job.held_s)

    def _take_in(self, job: Job, ended: Present, reached: int, work_s: float, now: float) -> bool:
        """Learn from a job that has ended; whether the other side is believed from now on."""
        believed_s = ended.believed_s or self._at_start(ended.chains)
        place = min(bisect_right(EDGES_S, work_s), BINS) - 1
        for like in _all(ended.chains):
            group = self._groups.pop(like, None) or JobGroup(is_of_user(like))
            self._groups[like] = group  # now the last to be forgotten
            group.add(min(reached, place), place)
        while len(self._groups) > MOST_GROUPS:
            oldest = next(like for like in self._groups if like)
            del self._groups[oldest]
            self._tables.pop(oldest, None)
        if self._choice is None:
            return False
        limited = limit_s(job, self._known.seed)
        return self._choice.judge(Ended(work_s, believed_s, limited), now)

    def _changed(self, jobs: Iterable[JobState]) -> Iterator[JobState]:
        """Revise some jobs; those whose work left is not nearly what it was."""
        for job in jobs:
            reached_s = EDGES_S[bisect_left(EDGES_S, job.held_s) - 1]
            expected_s, held_s = self.believe(job, reached_s)
            if abs(expected_s - job.believed_s) > WORTH_TELLING * (job.believed_s - reached_s):
                job.believe(expected_s, held_s)
                yield job

    def _chains(self, job: Job) -> Chains:
        """The groups of a job on each side that is learnt."""
        chains: dict[Knowledge, Sequence[Likeness]] = {}
        if self._known.knowledge is not Knowledge.HISTORY:
            chains[Knowledge.LIMITS] = by_limit(limit_s(job, self._known.seed))
        if self._known.knowledge is not Knowledge.LIMITS:
            chains[Knowledge.HISTORY] = by_history(job)
        return chains

    def _believed_chain(self, chains: Chains) -> Sequence[Likeness]:
        return chains[self._known.knowledge if self._choice is None else self._choice.best]

    def _at_start(self, chains: Chains) -> Mapping[Knowledge, float]:
        """What each side believes of a job that has done nothing; nobody asks where there is no choice."""
        if self._choice is None:
            return {}
        return {side: self._table(chain)[0] for side, chain in chains.items()}

    def _group(self, like: Likeness) -> JobGroup:
        group = self._groups.get(like)
        if group is None:  # `setdefault` would build one each time: that took half of a simulation
            group = self._groups[like] = JobGroup(is_of_user(like))
        return group

    def _table(self, chain: Sequence[Likeness]) -> Sequence[float]:
        """(bins,) what the whole work of such a job is taken to be that has reached each bin."""
        rates: Sequence[float] = _UNKNOWN
        fits = 0
        for like in chain:
            group = self._group(like)
            rates = group.rates(rates)
            fits += group.fits
        known, table = self._tables.get(chain[-1], (-1, ()))
        if known != fits:
            limit_s = limit_of(chain[-1])
            table = whole_work_s(rates if limit_s is None else _within(limit_s, rates))
            self._tables[chain[-1]] = fits, table
        return table


def _all(chains: Chains) -> Iterable[Likeness]:
    """All groups of a job, each once."""
    return dict.fromkeys(like for chain in chains.values() for like in chain)


def _narrow(chains: Chains) -> Iterator[Likeness]:
    """All groups of a job but that of all jobs."""
    return (like for chain in chains.values() for like in chain[1:])


def _cut(counts: Sequence[float]) -> Sequence[float]:
    """Counts without the noughts at the end, from which it looks: of most groups few are others."""
    cut = [*counts]
    while cut and not cut[-1]:
        cut.pop()
    return cut


def _within(limit_s: float, rates: Sequence[float]) -> Sequence[float]:
    """(bins,) chances to end of jobs that are ended at their limit, whatever others did."""
    last = max(bisect_left(EDGES_S, limit_s), 1) - 1
    return [*rates[:last], 1.0, *rates[last + 1 :]]


def whole_work_s(rates: Sequence[float]) -> Sequence[float]:
    """(bins,) begin of each bin and the Gittins index there, seconds; at least the end of the bin.

    From the last bin on, spans are joined as long as the next one is worth more: then the first span of each
    bin is the best.

    Args:
        rates: (bins,) the chance to end in each bin if reached, more than 0 and at most 1.
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
