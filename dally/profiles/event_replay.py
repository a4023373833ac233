"""Replays an iteration: compute that waits for communication, and communication that waits for compute."""

from collections import defaultdict, deque
from collections.abc import Iterable, Sequence
from heapq import heappop, heappush
from math import inf
from typing import NamedTuple


class Transfer(NamedTuple):
    """One collective of an iteration; times are on the clock of compute, which stands still while it waits.

    Attributes:
        ready_s: When compute hands it over, seconds from the start of the iteration.
        needed_s: When compute cannot go on without it, not before `ready_s`; infinite: at the end.
        seconds: How long it takes.
        links: Which links carry it: transfers over the same ones follow one another, others pass beside them.
        stage: The pipeline stage that does it.
        to: The stage that gets it, on whose clock `needed_s` is; -1 if it is no message.
    """

    ready_s: float
    needed_s: float
    seconds: float
    links: int = 0
    stage: int = 0
    to: int = -1


def replay_s(transfers: Iterable[Transfer], compute_s: float) -> float:
    """When compute is done, and all that it needs until then, seconds.

    Each transfer begins as it is ready and the one before it on its links is done.

    Args:
        transfers: In the order of `ready_s`.
        compute_s: Compute alone, seconds.
    """
    clock_s = now_s = 0.0  # where compute last had to wait: its own clock, and when it went on
    free_s: dict[int, float] = {}
    needed: list[tuple[float, float]] = []
    last_s = 0.0  # when the last transfer is done that is needed at the end
    for ready_s, needed_s, seconds, links, _, _ in transfers:
        while needed and needed[0][0] <= ready_s:
            at_s, done_s = heappop(needed)
            if done_s > now_s + (at_s - clock_s):
                clock_s, now_s = at_s, done_s
        begun_s, free_at_s = now_s + (ready_s - clock_s), free_s.get(links, 0.0)
        free_s[links] = done_s = (begun_s if begun_s > free_at_s else free_at_s) + seconds
        if needed_s < compute_s:
            heappush(needed, (needed_s, done_s))
        elif done_s > last_s:
            last_s = done_s
    for at_s, done_s in sorted(needed):
        if done_s > now_s + (at_s - clock_s):
            clock_s, now_s = at_s, done_s
    return max(now_s + (compute_s - clock_s), last_s)


class _StageClock:
    """How far the compute of a stage is, and what it has yet to wait for."""

    def __init__(self, compute_s: float) -> None:
        self._compute_s = compute_s
        self._clock_s = self._now_s = self._last_s = 0.0
        self._needed: list[tuple[float, float]] = []

    def reach(self, clock_s: float) -> float:
        """When compute is so far."""
        while self._needed and self._needed[0][0] <= clock_s:
            at_s, done_s = heappop(self._needed)
            if done_s > self._now_s + (at_s - self._clock_s):
                self._clock_s, self._now_s = at_s, done_s
        return self._now_s + (clock_s - self._clock_s)

    def wait(self, clock_s: float, done_s: float) -> None:
        """Do not go on there before something is done."""
        if clock_s < self._compute_s:
            heappush(self._needed, (clock_s, done_s))
        else:
            self._last_s = max(self._last_s, done_s)

    def end_s(self) -> float:
        """When all is computed and done."""
        return max(self.reach(self._compute_s), self._last_s)


def replay_stages_s(transfers: Iterable[Transfer], stages: Sequence[tuple[float, float]]) -> float:
    """When all stages of a pipeline are done, seconds; they begin together.

    A message begins when its sender has handed it over, the stage that gets it has asked for it and the links
    of both are free: so do NCCL and gloo. The sender computes on meanwhile.

    Args:
        transfers: Of all stages.
        stages: Compute of each until its last call, and after that, seconds.
    """
    numbered = dict(enumerate(transfers))
    calls: list[list[tuple[float, bool, int]]] = [[] for _ in stages]
    for number, each in numbered.items():
        calls[each.stage].append((each.ready_s, False, number))
        if each.to >= 0:
            calls[each.to].append((each.needed_s, True, number))
    queues = [deque(sorted(each)) for each in calls]
    clocks = [_StageClock(compute_s) for compute_s, _ in stages]
    handed_s: dict[int, float] = {}
    free_s: dict[tuple[int, int, bool], float] = defaultdict(float)

    def next_s(stage: int) -> float:
        """When a stage makes its next call; infinite: there is none, or its message was not handed over."""
        if not queues[stage]:
            return inf
        clock_s, receives, number = queues[stage][0]
        now_s = clocks[stage].reach(clock_s)
        return max(now_s, handed_s.get(number, inf)) if receives else now_s

    coming_s = [next_s(stage) for stage in range(len(stages))]
    while any(queues):
        now_s = min(coming_s)
        if now_s == inf:  # messages wait for each other, as no program sends them: the first passes
            stage = next(number for number, queue in enumerate(queues) if queue)
            handed_s[queues[stage][0][2]] = 0.0
        else:
            stage = coming_s.index(now_s)
            _, receives, number = queues[stage].popleft()
            each = numbered[number]
            if each.to >= 0 and not receives:
                handed_s[number] = now_s
                coming_s[each.to] = next_s(each.to)
            else:
                lanes = [(each.stage, each.links, True)]
                if receives:
                    lanes.append((stage, each.links, False))
                done_s = max(now_s, *(free_s[lane] for lane in lanes)) + each.seconds
                free_s.update(dict.fromkeys(lanes, done_s))
                clocks[stage].wait(each.needed_s, done_s)
        coming_s[stage] = next_s(stage)
    return max(clock.end_s() + after_s for clock, (_, after_s) in zip(clocks, stages, strict=True))
