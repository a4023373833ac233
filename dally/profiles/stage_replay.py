"""Replays a pipeline: stages that wait for each other's messages, and messages that share links."""

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from heapq import heappop, heappush
from math import inf

from dally.profiles.connections import Connections, Moment
from dally.profiles.event_replay import Transfer


class _Stage:
    """How far the compute of a stage is, and which calls and waits it has before it."""

    def __init__(self, calls: Iterable[tuple[float, bool, int]], compute_s: float) -> None:
        self.calls = deque(sorted(calls))
        self._compute_s = compute_s
        self._clock_s = self._now_s = 0.0  # where it last had to wait: its own clock, and when it went on
        self._waits: list[tuple[float, Moment]] = []
        self._last: list[Moment] = []  # what is waited for at the end

    def wait(self, clock_s: float, moment: Moment) -> None:
        """Do not go on there before this."""
        if clock_s < self._compute_s:
            heappush(self._waits, (clock_s, moment))
        else:
            self._last.append(moment)

    def next_s(self, at_s: Mapping[Moment, float]) -> float:
        """When it makes its next call; infinite: it has none, or waits for what has not come."""
        return self._reach(self.calls[0][0], at_s) if self.calls else inf

    def end_s(self, at_s: Mapping[Moment, float]) -> float:
        """When all is computed and done."""
        return max([self._reach(self._compute_s, at_s), *(at_s[moment] for moment in self._last)])

    def _reach(self, clock_s: float, at_s: Mapping[Moment, float]) -> float:
        while self._waits and self._waits[0][0] <= clock_s:
            wait_s, moment = self._waits[0]
            if moment not in at_s:
                return inf
            heappop(self._waits)
            if at_s[moment] > self._now_s + (wait_s - self._clock_s):
                self._clock_s, self._now_s = wait_s, at_s[moment]
        return self._now_s + (clock_s - self._clock_s)


def replay_stages_s(
    transfers: Iterable[Transfer], stages: Sequence[tuple[float, float]], by_gloo: bool = False
) -> float:
    """When all stages of a pipeline are done, seconds; they begin together.

    A message begins when its sender has handed it over and the stage that gets it has asked for it, or
    without that if NCCL's buffer holds all of it; messages between the same two stages follow one another,
    others share the links of a stage in equal parts, as TCP connections do.

    Args:
        transfers: Of all stages.
        stages: Compute of each until its last call, and after that, seconds.
        by_gloo: Whether gloo carries messages, and not NCCL: see `Connections`.
    """
    numbered = list(transfers)
    calls: list[list[tuple[float, bool, int]]] = [[] for _ in stages]
    for number, each in enumerate(numbered):
        calls[each.stage].append((each.ready_s, False, number))
        if each.to >= 0:
            calls[each.to].append((each.needed_s, True, number))
    waiting = [_Stage(own, compute_s) for own, (compute_s, _) in zip(calls, stages, strict=True)]
    connections = Connections(numbered, by_gloo)
    coming_s = [stage.next_s(connections.at_s) for stage in waiting]
    while True:
        call_s, carried_s = min(coming_s, default=inf), connections.next_s()
        if carried_s <= call_s and carried_s < inf:
            connections.advance(carried_s)
            coming_s = [stage.next_s(connections.at_s) for stage in waiting]
        elif call_s < inf:
            connections.advance(call_s)
            place = coming_s.index(call_s)
            _, receives, number = waiting[place].calls.popleft()
            each = numbered[number]
            if receives:
                connections.ask(number)
            else:
                connections.send(number)
            if receives or each.to < 0:
                waiting[place].wait(each.needed_s, (number, True))
            elif each.sent_s < inf:
                waiting[place].wait(each.sent_s, (number, False))
            coming_s = [stage.next_s(connections.at_s) for stage in waiting]
        elif late := [number for number in range(len(numbered)) if (number, True) not in connections.at_s]:
            connections.force(late[0])  # messages wait for each other, as no program sends them
        else:
            break
    return max(
        stage.end_s(connections.at_s) + after_s for stage, (_, after_s) in zip(waiting, stages, strict=True)
    )
