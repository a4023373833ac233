"""Which segments a site with blocks should set: rules held against each other on its own history."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

import numpy as np
from numpy.typing import NDArray

from analysis.advise.effects import EVEN
from analysis.advise.simulated import Floats, SimulatedTimes
from analysis.advise.site import Site, several_machines
from dally.errors import InputError
from dally.jobs.segment_rule import NO_SEGMENTS, STATIC_SEGMENTS, SegmentRule
from simulator.sweep.groups import Mean, ratio_of_means

RULES = (
    NO_SEGMENTS,
    SegmentRule(((32, 4),)),
    SegmentRule(((128, 8), (32, 4))),
    STATIC_SEGMENTS,
    SegmentRule(((0, 16),)),
)
"""Those to try, the loosest first: none; a quarter of a rack at most; half of one; NVIDIA's; and the whole
job, or as much of it as 16 machines hold."""

BLOCKS = 10
"""Parts of the history, in order of submission, from which intervals come."""


@dataclass(frozen=True)
class RuleTimes:
    """What became of the jobs under a rule, under the first case.

    Attributes:
        rule: The rule.
        today: Under today's scheduler.
        dally: Under the chosen setting of Dally.
    """

    rule: SegmentRule
    today: SimulatedTimes
    dally: SimulatedTimes

    def under(self, scheduler: str) -> SimulatedTimes:
        """What became of them under `today` or `dally`."""
        return self.today if scheduler == "today" else self.dally


SCHEDULERS = ("today", "dally")


def check_blocks(site: Site) -> None:
    """Refuse to compare rules where none could matter.

    Raises:
        InputError: All machines are in one block, or no job has several machines that are known.
    """
    topology = site.topology
    if len(topology.level_domains[1]) < 2:
        raise InputError(
            f"--segments: cluster {topology.name} has all machines in one {topology.levels[1]}, and segments "
            "need several blocks"
        )
    if not concerned(site).any():
        raise InputError("--segments: no job of the history has the same number of GPUs on several machines")


def concerned(site: Site) -> NDArray[np.bool_]:
    """Which jobs have several machines, in the history's order: rules are for these."""
    return np.array([several_machines(past.job) for past in site.history.jobs])


def jct_change(found: SimulatedTimes, base: SimulatedTimes, inside: NDArray[np.bool_] | None = None) -> Mean:
    """The mean completion time over another's of the same jobs, with half a 95 % interval over the history.

    Args:
        found: What became of the jobs.
        base: The same under what it is compared with.
        inside: The jobs that count; None: all.
    """
    every = np.arange(len(found.jct_s)) if inside is None else np.flatnonzero(inside)
    parts = [part for part in np.array_split(every, BLOCKS) if len(part)]
    return ratio_of_means(
        [(fmean(found.jct_s[part].tolist()), fmean(base.jct_s[part].tolist())) for part in parts]
    )


def with_interval(ratio: Mean) -> str:
    """A ratio as a change, with half its interval: -6 ±4 %."""
    around = "" if ratio.half is None else f" ±{100 * ratio.half:.0f}"
    return f"{100 * (ratio.value - 1):+.0f}{around} %"


def advised(rules: Sequence[RuleTimes], scheduler: str) -> SegmentRule:
    """The rule to set: that with the least mean completion time, if it is surely better than no segments.

    A rule forbids placements for as long as it stands. So it must gain more than 1 %, and more than its
    interval is wide; of rules that are as good within 1 %, the loosest is taken.

    Args:
        rules: The loosest first; the first is no segments.
        scheduler: `today` or `dally`.
    """
    base = rules[0].under(scheduler)
    found = [(each.rule, jct_change(each.under(scheduler), base)) for each in rules[1:]]
    better = [
        (rule, change.value)
        for rule, change in found
        if change.value < 1 - EVEN and change.half is not None and change.value + change.half < 1
    ]
    if not better:
        return rules[0].rule
    least = min(value for _, value in better)
    return next(rule for rule, value in better if value <= least * (1 + EVEN))


def gpu_s(site: Site, found: SimulatedTimes) -> float:
    """The GPU time that jobs held, seconds: more where they ran farther apart, or were stopped."""
    gpus: Floats = np.array([past.job.gpus for past in site.history.jobs], dtype=float)
    return float((gpus * (found.jct_s - found.wait_s)).sum())
