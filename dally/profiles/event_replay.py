"""Replays an iteration: compute that waits for communication, and communication that waits for compute."""

from collections.abc import Iterable
from heapq import heappop, heappush
from math import inf
from typing import NamedTuple


class CrossedLinks(NamedTuple):
    """Links that a message crosses on its way out of one domain and into another.

    Attributes:
        level: Of the domains, counted from machines.
        left: The domain that it leaves.
        entered: The one that it enters.
        use: What part of these links it takes over what it takes of a machine's.
    """

    level: int
    left: int
    entered: int
    use: float


class Transfer(NamedTuple):
    """One collective of an iteration; times are on the clock of compute, which stands still while it waits.

    Attributes:
        ready_s: When compute hands it over, seconds from the start of the iteration.
        needed_s: When compute cannot go on without it, not before `ready_s`; infinite: at the end.
        seconds: How long it takes.
        links: Which links carry it: transfers over the same ones follow one another, others pass beside them.
        stage: The pipeline stage that does it.
        to: The stage that gets it, on whose clock `needed_s` is; -1 if it is no message.
        sent_s: When the stage that sends a message cannot go on before it is sent; infinite: it never waits.
        share: Part of the links of its stage that it takes alone; less than 1 if links farther on are slower.
        held: The last part of a message, for which its sender does not wait: its kernel, or NCCL, holds that.
        crossed_links: Those of a message that messages of other stages may cross, too.
    """

    ready_s: float
    needed_s: float
    seconds: float
    links: int = 0
    stage: int = 0
    to: int = -1
    sent_s: float = inf
    share: float = 1.0
    held: float = 0.0
    crossed_links: tuple[CrossedLinks, ...] = ()


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
    for ready_s, needed_s, seconds, links, *_ in transfers:
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
