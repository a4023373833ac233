"""Slurm's backfill: every job that is tested and cannot start is promised whole machines for later.

Source: Slurm 22.05, `_attempt_backfill`, `_add_reservation` in src/plugins/sched/backfill/backfill.c and
`_will_run_test` in src/plugins/select/cons_common/job_test.c; slurm.conf(5), SchedulerParameters.
"""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import floor, inf

from dally.cluster.free import FreeGpus
from dally.cluster.topology import Allocation
from dally.jobs.job import Gang
from dally.policies.common.backfill import Release

_FIRST_WINDOW_S = 30.0
"""Ends of running jobs so close together are taken as one; each time that this is no use, twice as close."""
_OVERDUE_S = 1.0
"""A running job that is past its limit is taken to end so soon: its GPUs are not free yet."""


@dataclass(frozen=True, slots=True)
class JobToTest:
    """A job to test.

    Attributes:
        gang: The GPUs that it wants.
        limit_s: How long it may hold them.
        choose: Which it gets, of the GPUs left on each machine; None if it does not take any of these.
        level: The highest level that it accepts: jobs of one gang and level are given the same.
        first: GPUs that are free now, and that it takes unless they are promised; None if it is to choose.
    """

    gang: Gang
    limit_s: float
    choose: Callable[[Sequence[int]], Allocation | None]
    level: int = 0
    first: Allocation | None = None


@dataclass(frozen=True, slots=True)
class PlannedStart:
    """When a job can start, and on which GPUs."""

    start_s: float
    allocation: Allocation


class NodeSpace:
    """Which machines are promised, from when to when: slots of time, each with a bit set of machines.

    Args:
        begin_s: Where the first slot begins.
        end_s: Where the last one ends.
    """

    def __init__(self, begin_s: float, end_s: float) -> None:
        self._begins_s, self._closed = [begin_s], [0]
        self.end_s = end_s

    def window(self, begin_s: float, end_s: float) -> tuple[int, float | None]:
        """The machines promised at some time between, and when a promise ends that may help, if ever.

        That is the first slot behind which a machine is free that was promised until then.
        """
        closed, later_s = 0, None
        for place in range(bisect_right(self._begins_s, begin_s) - 1, len(self._begins_s)):
            here = self._closed[place]
            if later_s is None and place + 1 < len(self._closed):
                opened = (closed | here) & ~self._closed[place + 1]
                later_s = self._begins_s[place + 1] if opened else None
            if self._begins_s[place] > end_s:
                break
            closed |= here
        return closed, later_s

    def overlaps(self, machines: int, begin_s: float, end_s: float) -> bool:
        """Whether one of the machines is promised some time between."""
        first = max(0, bisect_right(self._begins_s, begin_s) - 1)
        last = bisect_left(self._begins_s, end_s)
        return any(closed & machines for closed in self._closed[first:last])

    def promise(self, machines: int, begin_s: float, end_s: float) -> None:
        """Promise machines to a job for so long."""
        first, last = self._cut(max(begin_s, self._begins_s[0])), self._cut(end_s)
        for place in range(first, last):
            self._closed[place] |= machines

    def _cut(self, at_s: float) -> int:
        """The slot that begins at a moment, cut if there is none; the number of slots if it is past them."""
        if at_s >= self.end_s:
            return len(self._begins_s)
        place = bisect_left(self._begins_s, at_s)
        if place == len(self._begins_s) or self._begins_s[place] != at_s:
            self._begins_s.insert(place, at_s)
            self._closed.insert(place, self._closed[place - 1])
        return place


class BackfillPlanner:
    """One pass of backfill.

    Args:
        free: What is free now; starts from here on are counted here.
        releases: When running jobs end at the latest, soonest first, and what they hold.
        now: The moment of the pass.
        window_s: How far ahead promises are made, Slurm's `bf_window`.
        resolution_s: They begin and end at multiples of this, rounded down, Slurm's `bf_resolution`.
    """

    def __init__(
        self,
        free: FreeGpus,
        releases: Iterable[Release],
        now: float,
        window_s: float,
        resolution_s: float,
    ) -> None:
        self._free, self._now = free, now
        self._left = [free.on(machine) for machine in range(len(free.topology.machines))]
        self._releases = list(releases)
        self._resolution_s = resolution_s
        self._space = NodeSpace(now, now + window_s)
        self._refused: dict[tuple[str | None, frozenset[str] | None], int] = {}
        self._not_now: set[tuple[Gang, int, int]] = set()
        self.promises = 0

    def test(self, asked: JobToTest, promises: bool = True) -> PlannedStart | None:
        """When a job can start; if that is later, the machines are promised to it. None: that is unknown.

        Args:
            asked: The job.
            promises: Whether it is promised anything; if not, only a start right now counts.
        """
        begin_s: float = self._now
        if asked.first is not None:
            promised, _ = self._space.window(begin_s, begin_s + asked.limit_s)
            if not promised & self._machines(asked.first):
                return PlannedStart(begin_s, asked.first)
        while True:
            closed, later_s = self._space.window(begin_s, begin_s + asked.limit_s)
            found = self._soonest(asked, closed, promises)
            if found is not None:
                start_s = max(found.start_s, begin_s)
                if start_s <= self._now:
                    return found
                if later_s is None or start_s <= later_s:
                    later_s = self._promise(asked, PlannedStart(start_s, found.allocation))
                    if later_s is None:
                        return PlannedStart(start_s, found.allocation)
            if later_s is None or later_s <= begin_s or not promises:
                return None
            begin_s = later_s

    def started(self, allocation: Allocation, end_s: float) -> None:
        """Take GPUs for a job that starts now and ends then at the latest."""
        for machine, gpus in self._free.taken_by(allocation):
            self._left[machine] -= gpus
        self._not_now.clear()
        insort(self._releases, (end_s, allocation), key=lambda release: release[0])

    def _promise(self, asked: JobToTest, planned: PlannedStart) -> float | None:
        """Promise machines to a job; when to try again if they are promised to another."""
        if planned.start_s > self._space.end_s:
            return None
        step_s = self._resolution_s
        begin_s = _floor(planned.start_s, step_s)
        end_s = _floor(min(planned.start_s + asked.limit_s, self._space.end_s + step_s), step_s)
        machines = self._machines(planned.allocation)
        if self._space.overlaps(machines, begin_s, end_s):
            return planned.start_s
        self._space.promise(machines, begin_s, max(end_s, max(begin_s, self._now) + step_s))
        self.promises += 1
        return None

    def _soonest(self, asked: JobToTest, closed: int, ahead: bool) -> PlannedStart | None:
        """The first moment, now or as running jobs end, at which machines that are not closed hold a job."""
        key, barred = (asked.gang, asked.level, closed), closed
        chooses = asked.gang.gpu_type is not None or asked.gang.machines is not None
        if chooses and not asked.gang.whole_blocks:  # which must see what is used beside its machines
            barred |= self._refused_by(asked.gang)
        if not ahead and key in self._not_now:
            return None
        left, held, rest = self._left.copy(), asked.gang.held, barred
        while rest:  # no GPUs on these machines, the lowest bit first
            left[(rest & -rest).bit_length() - 1] = 0
            rest &= rest - 1
        units = sum(left) if asked.gang.per_machine is None else sum(map(held, left))
        if units >= asked.gang.units:
            allocation = asked.choose(left)
            if allocation is not None:
                return PlannedStart(self._now, allocation)
        self._not_now.add(key)
        if not ahead:
            return None
        for end_s, gains in self._ends_together(barred):
            for machine, gpus in gains:
                units += held(left[machine] + gpus) - held(left[machine])
                left[machine] += gpus
            allocation = asked.choose(left) if units >= asked.gang.units else None
            if allocation is not None:
                return PlannedStart(max(end_s, self._now + _OVERDUE_S), allocation)
        return None

    def _ends_together(self, barred: int) -> Iterator[tuple[float, list[tuple[int, int]]]]:
        """Ends of running jobs that are taken as one, by the last of them, and what comes free with them."""
        window_s, barrier_s, gains = _FIRST_WINDOW_S, None, list[tuple[int, int]]()
        for (end_s, released), (next_s, _) in pairwise([*self._releases, (inf, ())]):
            if end_s == inf:
                return
            before = len(gains)
            for part in self._free.taken_by(released):
                if not barred >> part[0] & 1:
                    gains.append(part)
            if len(gains) == before:
                continue
            if barrier_s is None:
                barrier_s = _floor(end_s, _FIRST_WINDOW_S) + _FIRST_WINDOW_S
            if next_s > barrier_s + window_s:
                yield end_s, gains
                window_s, gains = 2 * window_s, []
                while barrier_s + window_s < next_s < inf:
                    window_s *= 2

    def _machines(self, allocation: Allocation) -> int:
        return _bits(machine for machine, _ in self._free.taken_by(allocation))

    def _refused_by(self, gang: Gang) -> int:
        """The machines that a gang does not accept."""
        key = gang.gpu_type, gang.machines
        if key not in self._refused:
            machines, accepts = range(len(self._left)), self._free.accepts
            self._refused[key] = _bits(each for each in machines if not accepts(gang, each))
        return self._refused[key]


def _floor(moment_s: float, step_s: float) -> float:
    return floor(moment_s / step_s) * step_s


def _bits(machines: Iterable[int]) -> int:
    return sum(1 << machine for machine in machines)
