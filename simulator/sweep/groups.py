"""Runs that differ in their seeds only: means with confidence intervals, and ratios to another policy."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import chain
from math import atan, cos, pi, sin, sqrt
from statistics import fmean, stdev

from dally.words import plural
from simulator.sweep.plan import SweepTask
from simulator.sweep.work import Result

_CONFIDENCE = 0.95


@dataclass(frozen=True, slots=True)
class Mean:
    """A mean, and half the width of its 95 % confidence interval; None if it is of one value."""

    value: float
    half: float | None


def mean(values: Sequence[float]) -> Mean:
    """Mean and 95 % confidence interval of independent values, by Student's t."""
    count = len(values)
    if count < 2:
        return Mean(fmean(values), None)
    return Mean(fmean(values), _student_t(count - 1) * stdev(values) / sqrt(count))


@cache
def _student_t(freedom: int) -> float:
    """What Student's t stays below in size with `_CONFIDENCE`, by bisection.

    The probability is that of Abramowitz and Stegun, 26.7.3 and 26.7.4, which is exact.
    """
    low, high = 0.0, 100.0
    for _ in range(60):
        middle = (low + high) / 2
        angle = atan(middle / sqrt(freedom))
        odd = freedom % 2
        term = cos(angle) if odd else 1.0
        total = term if freedom > 1 else 0.0
        for power in range(2 + odd, freedom - 1, 2):
            term *= (power - 1) / power * cos(angle) ** 2
            total += term
        inside = 2 / pi * (angle + sin(angle) * total) if odd else sin(angle) * total
        low, high = (middle, high) if inside < _CONFIDENCE else (low, middle)
    return (low + high) / 2


def ratio_of_means(pairs: Sequence[tuple[float, float]]) -> Mean:
    """The mean of the first over the mean of the second, and half its 95 % interval.

    The pairs are independent of each other. The error of a ratio R is that of the mean of what it leaves
    over, first - R * second (Cochran, Sampling Techniques, 1977, section 6.3), here by Student's t.
    """
    firsts, seconds = zip(*pairs, strict=True)
    base = fmean(seconds)
    ratio = fmean(firsts) / base
    left = mean([first - ratio * second for first, second in pairs]).half
    return Mean(ratio, None if left is None else left / base)


def figures(result: Result) -> dict[str, float]:
    """The figures of a run, flat: the mean in `jct_s` becomes `jct_mean_s`, placements `starts_rack`, ..."""
    flat: dict[str, float] = {}
    for name, value in result["summary"].items():
        if name == "placements":
            flat |= {f"starts_{level}": count for level, count in value.items()}
        elif isinstance(value, Mapping):
            unit = "_s" if name.endswith("_s") else ""
            flat |= {f"{name.removesuffix('_s')}_{stat}{unit}": each for stat, each in value.items()}
        else:
            flat[name] = value
    return flat


Case = tuple[object, ...]
"""Setting and values of the options: within one, policies are compared."""


@dataclass(frozen=True, slots=True)
class RunGroup:
    """The runs of one policy in one case.

    Attributes:
        task: One of them.
        by_seed: The figures of each.
        blocks: Mean JCT of each, by blocks of jobs in order of submission, seconds.
        lost: The jobs of each that failed, by id.
        unfinished: Runs with jobs that could not end.
    """

    task: SweepTask
    by_seed: dict[int, dict[str, float]] = field(default_factory=dict)
    blocks: dict[int, list[float]] = field(default_factory=dict)
    lost: dict[int, frozenset[str]] = field(default_factory=dict)
    unfinished: list[int] = field(default_factory=list)

    def names(self) -> Iterator[str]:
        """The figures that any run has."""
        yield from dict.fromkeys(name for run in self.by_seed.values() for name in run)

    def mean(self, name: str) -> Mean:
        """A figure over the seeds; only starts at a level can be missing, and then there were none."""
        return mean([run.get(name, 0) for run in self.by_seed.values()])

    def ratio(self, first: "RunGroup", name: str) -> Mean | None:
        """The mean over seeds of a figure over another group's of the same seed; None if undefined.

        Left out are seeds of which other jobs completed, or a run did not end.
        """
        ratios = [
            run.get(name, 0) / base
            for seed, run in self.by_seed.items()
            if self._same_jobs(first, seed) and (base := first.by_seed[seed].get(name))
        ]
        return mean(ratios) if ratios else None

    def _same_jobs(self, first: "RunGroup", seed: int) -> bool:
        """Whether runs of both groups with this seed ended, and the same jobs completed."""
        if seed in self.unfinished or seed in first.unfinished or seed not in first.by_seed:
            return False
        return self.lost[seed] == first.lost[seed]

    def has_jobs_of(self, first: "RunGroup") -> bool:
        """Whether the same jobs completed in the runs of both groups with each seed."""
        return self.by_seed.keys() == first.by_seed.keys() and all(
            self._same_jobs(first, seed) for seed in self.by_seed
        )

    def losses(self, first: "RunGroup") -> Iterator[str]:
        """For each seed with which other jobs failed than in another group, which policy lost how many."""
        for seed, lost in self.lost.items():
            other = first.lost.get(seed, lost)
            if lost != other:
                yield (
                    f"seed {seed}: {self.task.policy} lost {plural(len(lost), 'job')}, {first.task.policy} "
                    f"{plural(len(other), 'job')}, not the same ones"
                )

    def against(self, first: "RunGroup") -> Mean | None:
        """Mean JCT over another group's, by pairs of the same jobs; None if others completed, or none ended.

        Seeds draw other jobs where the workload is generated: pairs are blocks of each seed then. Of a trace
        they only draw models, so that the seeds' runs are alike: pairs are blocks, means over the seeds.
        """
        seeds = [seed for seed, blocks in self.blocks.items() if blocks and first.blocks.get(seed)]
        if not seeds or self.unfinished or first.unfinished:
            return None
        if not all(self._same_jobs(first, seed) for seed in seeds):
            return None
        own, other = [self.blocks[seed] for seed in seeds], [first.blocks[seed] for seed in seeds]
        if not self.task.generated:
            own = [[fmean(values) for values in zip(*own, strict=True)]]
            other = [[fmean(values) for values in zip(*other, strict=True)]]
        return ratio_of_means(list(zip(chain(*own), chain(*other), strict=True)))


def grouped(found: Iterable[tuple[SweepTask, Result]]) -> dict[Case, list[RunGroup]]:
    """The groups by case, in the order of the policies."""
    groups: dict[tuple[Case, str], RunGroup] = {}
    for task, result in found:
        case: Case = (task.setting, *task.values.items())
        group = groups.setdefault((case, task.policy), RunGroup(task))
        group.by_seed[task.inputs.seed] = figures(result)
        group.lost[task.inputs.seed] = frozenset(result.get("lost", ()))
        group.blocks[task.inputs.seed] = [block["jct_mean_s"] for block in result.get("blocks", [])]
        if not result["complete"]:
            group.unfinished.append(task.inputs.seed)
    cases: dict[Case, list[RunGroup]] = {}
    for (case, _), group in groups.items():
        cases.setdefault(case, []).append(group)
    return cases
