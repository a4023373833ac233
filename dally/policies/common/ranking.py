"""Jobs kept sorted by a rank that changes only when told: queues of waiting and orders of running jobs."""

from collections.abc import Iterator
from math import inf

from sortedcontainers import SortedList

from dally.state import JobState

Rank = tuple[float, ...]
"""The priority of a job, lower first; its last number is the order of arrival, which breaks ties."""


class Ranking:
    """Jobs sorted by rank; adding, removing and finding the first cost the logarithm of their number."""

    __slots__ = ("_jobs", "_rank_of", "_ranks")

    def __init__(self) -> None:
        self._ranks: SortedList[Rank] = SortedList()
        self._rank_of: dict[int, Rank] = {}
        self._jobs: dict[float, JobState] = {}

    def __len__(self) -> int:
        return len(self._ranks)

    def __contains__(self, job: JobState) -> bool:
        return job.order in self._rank_of

    def __iter__(self) -> Iterator[JobState]:
        jobs = self._jobs
        return (jobs[rank[-1]] for rank in self._ranks)

    def __reversed__(self) -> Iterator[JobState]:
        jobs = self._jobs
        return (jobs[rank[-1]] for rank in reversed(self._ranks))

    def items(self) -> Iterator[tuple[float, JobState]]:
        """The first number of each rank, with its job."""
        jobs = self._jobs
        return ((rank[0], jobs[rank[-1]]) for rank in self._ranks)

    def add(self, job: JobState, *key: float) -> None:
        """Insert a job that is not in it; ties of the key go by arrival."""
        rank = (*key, job.order)
        self._ranks.add(rank)
        self._rank_of[job.order] = rank
        self._jobs[job.order] = job

    def remove(self, job: JobState) -> None:
        """Take a job out."""
        self._ranks.remove(self._rank_of.pop(job.order))
        del self._jobs[job.order]

    def move(self, job: JobState, *key: float) -> None:
        """Give a job that is in it another place."""
        self.remove(job)
        self.add(job, *key)

    def rank(self, job: JobState) -> Rank:
        """The rank of a job that is in it."""
        return self._rank_of[job.order]

    def at(self, place: int) -> JobState:
        """The job at a place, 0 for the first."""
        return self._jobs[self._ranks[place][-1]]

    def next_key(self, after: float) -> float:
        """The least first number of a rank that is greater than `after`; inf if there is none."""
        place = self._ranks.bisect_right((after, inf))
        return self._ranks[place][0] if place < len(self._ranks) else inf

    def first_key(self) -> float:
        """The first number of the first rank."""
        return self._ranks[0][0]
