"""What would have changed, and for whom: all jobs, those of a size, of a group, of a user."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from analysis.advise.history import SiteHistory
from analysis.advise.simulated import Floats, SimulatedTimes

EVEN = 0.01
"""Times that differ by no more than this share count as the same."""

MOST = 10
"""Groups and users that are shown by name, those with most GPU time; the others are put together."""

OTHER = "other"

Members = NDArray[np.bool_]


@dataclass(frozen=True)
class SimulatedPair:
    """Today's scheduler and Dally under one case, with one seed."""

    today: SimulatedTimes
    dally: SimulatedTimes


@dataclass(frozen=True, slots=True)
class Effect:
    """What would have changed for some jobs; means in seconds, of the first pair where nothing else is said.

    Attributes:
        name: Of the group, user or size of these jobs.
        jobs: How many.
        gpu_h: The GPU-hours that they really took.
        today_s: Mean completion time under today's scheduler.
        dally_s: The same under Dally.
        today_wait_s: Mean time without GPUs under today's scheduler.
        dally_wait_s: The same under Dally.
        change: Mean completion time under Dally over that today, less 1.
        least: The lowest change of all pairs.
        most: The highest.
        sooner: Share of the jobs that end sooner.
        later: Share of the jobs that end later.
    """

    name: str
    jobs: int
    gpu_h: float
    today_s: float
    dally_s: float
    today_wait_s: float
    dally_wait_s: float
    change: float
    least: float
    most: float
    sooner: float
    later: float

    @property
    def verdict(self) -> str:
        """Whether they gain whatever is assumed, lose, stay even, or that depends."""
        if self.most < -EVEN:
            return "gain"
        if self.least > EVEN:
            return "lose"
        return "even" if self.least >= -EVEN and self.most <= EVEN else "depends"


@dataclass(frozen=True, slots=True)
class Effects:
    """Which jobs would have gained and which lost.

    Attributes:
        whole: All jobs.
        sizes: By the GPUs that jobs ask for.
        groups: By group, those with most GPU time first.
        users: By user, likewise.
        losers: All groups and users whose jobs end later under the first pair, by the time lost in all.
    """

    whole: Effect
    sizes: Sequence[Effect]
    groups: Sequence[Effect]
    users: Sequence[Effect]
    losers: Sequence[Effect]


def effects(history: SiteHistory, pairs: Sequence[SimulatedPair]) -> Effects:
    """Compare Dally with today's scheduler.

    Args:
        history: The jobs.
        pairs: Simulations under all cases and seeds; the first is the one that means are of.
    """
    jobs = [past.job for past in history.jobs]
    gpu_h = np.array([job.gpus * job.duration_s / 3600 for job in jobs])
    sizes = sizes_of([job.gpus for job in jobs])
    groups = _members([job.group for job in jobs])
    users = _members([job.user for job in jobs])

    def told(members: Mapping[str, Members]) -> list[Effect]:
        return [_effect(name, inside, gpu_h, pairs) for name, inside in members.items()]

    everybody = told({f"group {name}": inside for name, inside in groups.items() if name})
    everybody += told({f"user {name}": inside for name, inside in users.items() if name})
    losers = [each for each in everybody if each.change > EVEN]
    return Effects(
        _effect("all jobs", np.ones(len(jobs), dtype=bool), gpu_h, pairs),
        told(sizes),
        told(_largest(groups, gpu_h, "groups")),
        told(_largest(users, gpu_h, "users")),
        sorted(losers, key=lambda each: each.jobs * (each.today_s - each.dally_s)),
    )


def sizes_of(gpus: Sequence[int]) -> dict[str, Members]:
    """Classes of jobs by their GPUs: 1, 2, 3 to 4, 5 to 8 and so on, the smallest first."""

    def name(count: int) -> str:
        high = 1 << (count - 1).bit_length()
        return {1: "1 GPU", 2: "2 GPUs"}.get(high, f"{high // 2 + 1} to {high} GPUs")

    classes = _members([name(count) for count in gpus])
    return dict(sorted(classes.items(), key=lambda item: int(item[0].partition(" ")[0])))


def _members(names: Sequence[str]) -> dict[str, Members]:
    every = np.array(names)
    return {str(name): every == name for name in np.unique(every)}


def _largest(members: Mapping[str, Members], gpu_h: Floats, what: str) -> dict[str, Members]:
    """The members with most GPU time by name, and all others together; empty where no job names one."""
    named = {name: inside for name, inside in members.items() if name}
    order = sorted(named, key=lambda name: (-gpu_h[named[name]].sum(), name))
    shown = {name: named[name] for name in order[: MOST if len(order) > MOST + 1 else len(order)]}
    rest = [named[name] for name in order[len(shown) :]]
    return {**shown, **({f"{OTHER} {len(rest)} {what}": np.logical_or.reduce(rest)} if rest else {})}


def _effect(name: str, inside: Members, gpu_h: Floats, pairs: Sequence[SimulatedPair]) -> Effect:
    today, dally = pairs[0].today, pairs[0].dally
    changes = [_change(pair, inside) for pair in pairs]
    ratio = dally.jct_s[inside] / today.jct_s[inside]
    return Effect(
        name,
        int(inside.sum()),
        float(gpu_h[inside].sum()),
        float(today.jct_s[inside].mean()),
        float(dally.jct_s[inside].mean()),
        float(today.wait_s[inside].mean()),
        float(dally.wait_s[inside].mean()),
        changes[0],
        min(changes),
        max(changes),
        float(np.mean(ratio < 1 - EVEN)),
        float(np.mean(ratio > 1 + EVEN)),
    )


def _change(pair: SimulatedPair, inside: Members) -> float:
    return float(pair.dally.jct_s[inside].mean() / pair.today.jct_s[inside].mean()) - 1


def changes_by_case(pairs: Sequence[SimulatedPair]) -> Iterator[tuple[str, list[float]]]:
    """For each case its name and the change of the mean completion time with each seed."""
    found: dict[str, list[float]] = {}
    for pair in pairs:
        assert pair.today.task.case is not None
        every = np.ones(len(pair.today.jct_s), dtype=bool)
        found.setdefault(pair.today.task.case.name, []).append(_change(pair, every))
    yield from found.items()
