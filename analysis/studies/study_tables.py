"""Tables of a study: policies beside the first one, setting by setting, each class of knowledge by itself."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import exp, log

from dally.markdown import table
from dally.words import duration
from simulator.sweep.groups import Mean, RunGroup, mean

JCT, WAIT_P99 = "jct_mean_s", "queue_p99_s"
JCT_MARGIN, WAIT_MARGIN = 1.01, 1.1
"""The first policy is behind where its mean JCT, or its p99 wait, is more than so many times the best one."""

_KNOWLEDGE = ("knowledge", "estimate_error")
_HEADINGS = {
    "exact": "knows running times exactly",
    "limits": "knows what users ask for",
    "history": "knows how long jobs took that have ended",
    "none": "knows nothing of running times",
}
_NOT_ENDED = "did not end"
_OTHER_JOBS = "lost other jobs"
_LEAST_S = 1.0
"""Waits of less are none."""
Effects = Mapping[str, tuple[str, str]]
"""Named pairs of policies, of which the second is compared with the first."""


@dataclass(frozen=True, slots=True)
class Case:
    """Policies beside each other on the same jobs and cluster.

    Attributes:
        name: The setting, and those of its values that tell it from others.
        knows: What all of them know of running times.
        groups: The runs of each policy; differences are from the first.
    """

    name: str
    knows: str
    groups: Mapping[str, RunGroup]

    @property
    def first(self) -> RunGroup:
        """The runs of the first policy, which the others are compared with."""
        return next(iter(self.groups.values()))


def cases(groups: Sequence[Sequence[RunGroup]]) -> dict[str, list[Case]]:
    """The cases by class of knowledge."""
    firsts = [each[0].task for each in groups]
    found: dict[str, list[Case]] = {}
    for each in groups:
        task = each[0].task
        alike = [other.values for other in firsts if other.setting == task.setting]
        varied = [
            f"{key} {value}"
            for key, value in task.values.items()
            if key not in _KNOWLEDGE and any(other.get(key) != value for other in alike)
        ]
        name = ", ".join(filter(None, [task.setting, *varied])) or task.inputs.trace
        case = Case(name, str(task.inputs.knows), {group.task.policy: group for group in each})
        found.setdefault(case.knows, []).append(case)
    return found


def ratios(own: Sequence[Case]) -> dict[str, list[Mean | None]]:
    """By policy but the first, its mean JCT over the first one's in each case; None where there is none."""
    policies = dict.fromkeys(policy for case in own for policy in case.groups)
    return {
        policy: [case.groups[policy].against(case.first) if policy in case.groups else None for case in own]
        for policy in policies
        if any(policy in case.groups and case.groups[policy] is not case.first for case in own)
    }


def geometric(found: Sequence[Mean | None]) -> tuple[float, float | None, float | None]:
    """Geometric mean of ratios, and the 95 % interval over the cases; without one where there is one case."""
    over = mean([log(ratio.value) for ratio in found if ratio is not None])
    if over.half is None:
        return exp(over.value), None, None
    return exp(over.value), exp(over.value - over.half), exp(over.value + over.half)


def overview(own: Sequence[Case]) -> str:
    """Mean JCT of the first policy in each case, and how far the others' are from it."""
    columns = [["setting", *(case.name for case in own), "all settings"]]
    columns.append([f"`{own[0].first.task.policy}`", *(_time(case.first, JCT) for case in own), ""])
    for policy, found in ratios(own).items():
        cells = [
            "" if policy not in case.groups else _against(case.groups[policy], case.first, ratio)
            for case, ratio in zip(own, found, strict=True)
        ]
        columns.append([f"`{policy}`", *cells, _over_all(found)])
    wide = len(columns) > len(own) + 2
    header, *rows = columns if wide else zip(*columns, strict=True)
    return table(header, rows)


def _over_all(found: Sequence[Mean | None]) -> str:
    count = sum(ratio is not None for ratio in found)
    if not count:
        return ""
    value, low, high = geometric(found)
    if low is None or high is None:
        return f"{100 * (value - 1):+.1f} %"
    missing = "" if count == len(found) else f", {count} settings"
    return f"{100 * (value - 1):+.1f} % ({100 * (low - 1):+.1f} to {100 * (high - 1):+.1f}{missing})"


def _change(ratio: Mean) -> str:
    """More or less than the first, with half the interval; marked where there is none."""
    change = f"{100 * (ratio.value - 1):+.1f}"
    return f"{change} % (one run)" if ratio.half is None else f"{change} ±{100 * ratio.half:.1f} %"


def _against(group: RunGroup, first: RunGroup, ratio: Mean | None) -> str:
    """More or less than another group, or why that cannot be told."""
    if ratio is not None:
        return _change(ratio)
    return _NOT_ENDED if group.unfinished or first.unfinished else _OTHER_JOBS


def _time(group: RunGroup, name: str) -> str:
    """A figure of time in words, mean over the seeds."""
    return duration(group.mean(name).value)


def behind(own: Sequence[Case]) -> str:
    """Where the first policy's mean JCT or p99 wait is not the best, or nearly so."""
    rows = []
    for case in own:
        found = [_beaten(case, JCT, JCT_MARGIN), _beaten(case, WAIT_P99, WAIT_MARGIN)]
        if any(found):
            rows.append([case.name, *found])
    if not rows:
        return "In no setting."
    return table(["setting", "mean JCT, the best", "p99 wait, the best"], rows)


def _beaten(case: Case, name: str, margin: float) -> str:
    ended = [group for group in case.groups.values() if group.has_jobs_of(case.first)]
    best = min(ended, key=lambda group: group.mean(name).value, default=case.first)
    ours, theirs = case.first.mean(name).value, best.mean(name).value
    if ours <= margin * max(theirs, _LEAST_S):
        return ""
    more = f" ({100 * (ours / theirs - 1):+.1f} %)" if theirs else ""
    return f"{duration(ours)}{more}, {duration(theirs)} `{best.task.policy}`"


def effect_table(own: Sequence[Case], effects: Effects) -> str:
    """What each named step from a policy to another changes the mean JCT by."""
    rows = []
    for case in own:
        cells = []
        for before, after in effects.values():
            there = before in case.groups and after in case.groups
            ratio = case.groups[after].against(case.groups[before]) if there else None
            cells.append(_against(case.groups[after], case.groups[before], ratio) if there else "")
        rows.append([case.name, *cells])
    heads = [f"{name}: `{before}` to `{after}`" for name, (before, after) in effects.items()]
    return table(["setting", *heads], rows)


_DETAILS = (
    "setting", "policy", "mean JCT", "against the first", "wait: mean", "p50", "p90", "p95", "p99", "longest",
    "waited over ten times its length", "makespan", "preemptions", "restarts of GPU time", "runs",
)  # fmt: skip
_WAITS = ("queue_mean_s", "queue_median_s", "queue_p90_s", "queue_p95_s", WAIT_P99, "longest_wait_s")


def details(own: Sequence[Case]) -> str:
    """A row for each policy in each case: completion times, waits, and what was stopped."""
    rows = []
    for case in own:
        for policy, group in case.groups.items():
            ratio = group.against(case.first)
            runs = "one run" if len(group.by_seed) == 1 else f"{len(group.by_seed)} seeds"
            rows.append(
                [
                    case.name,
                    f"`{policy}`",
                    _time(group, JCT),
                    "" if group is case.first or ratio is None else _change(ratio),
                    *(duration(group.mean(name).value) for name in _WAITS),
                    f"{100 * group.mean('starved').value:.1f} %",
                    duration(group.mean("makespan_s").value),
                    f"{group.mean('preemptions').value:,.0f}",
                    f"{100 * group.mean('restart_share').value:.2f} %",
                    f"{runs}, {_NOT_ENDED}" if group.unfinished else runs,
                ]
            )
    return table(_DETAILS, rows)


def class_table(found: Mapping[str, Sequence[Case]]) -> str:
    """The first policy by class of knowledge, and how much of the way from none to exact history goes."""
    firsts = {(knows, case.name): case.first for knows, own in found.items() for case in own}
    rows = []
    for name in dict.fromkeys(name for _, name in firsts):
        there = {knows: firsts[knows, name] for knows in found if (knows, name) in firsts}
        exact, cells = there.get("exact"), [name]
        for group in map(there.get, found):
            ratio = group.against(exact) if group and exact and group is not exact else None
            over = f" ({_change(ratio)})" if ratio else ""
            cells.append(f"{_time(group, JCT)}{over} / {_time(group, WAIT_P99)}" if group else "")
        for figure in (JCT, WAIT_P99):
            alike = {knows: group for knows, group in there.items() if exact and group.has_jobs_of(exact)}
            means = {knows: group.mean(figure).value for knows, group in alike.items()}
            closed = ""
            if {"none", "history", "exact"} <= means.keys() and means["none"] > means["exact"]:
                part = (means["none"] - means["history"]) / (means["none"] - means["exact"])
                closed = f"{100 * part:.0f} %"
            cells.append(closed)
        rows.append(cells)
    heads = [f"{knows}: mean JCT (over exact) / p99 wait" for knows in found]
    return table(["setting", *heads, "history closes, of mean JCT", "of p99 wait"], rows)


SECTIONS = ("overview", "effects", "classes", "behind", "details")


def sections(found: Mapping[str, Sequence[Case]], effects: Effects) -> Iterator[tuple[str, str]]:
    """The tables for sections of a page, by class of knowledge; it may lack some."""
    yield "overview", _by_class(found, overview)
    if effects:
        yield "effects", _by_class(found, lambda own: effect_table(own, effects))
    if len(found) > 1:
        yield "classes", class_table(found)
    yield "behind", _by_class(found, behind)
    yield "details", _by_class(found, details)


def _by_class(found: Mapping[str, Sequence[Case]], make: Callable[[Sequence[Case]], str]) -> str:
    def heading(knows: str) -> str:
        name, _, error = knows.partition(" ± ")
        return _HEADINGS[name] + (f", with a log-normal error of sigma {error}" if error else "")

    return "\n\n".join(
        f"**{knows}**: everybody {heading(knows)}.\n\n{make(own)}" for knows, own in found.items()
    )
