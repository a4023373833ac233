"""The tables of the page of advice."""

from collections.abc import Sequence

import numpy as np

from analysis.advise.advice import PolicyComparison, RatioEffects
from analysis.advise.calibration import Calibration
from analysis.advise.effects import EVEN, Effect, sizes_of
from analysis.advise.segments import SCHEDULERS, RuleTimes, concerned, gpu_s, jct_change, with_interval
from analysis.advise.simulated import SimulatedTimes
from analysis.advise.site import Site
from analysis.report.tables import Cell, ReportTable
from dally.words import change, duration, share
from simulator.sweep.groups import Mean

_VERDICTS = {"gain": "better", "lose": "worse", "even": "", "depends": ""}


def calibration_table(found: Calibration) -> ReportTable:
    """Real and simulated waits by the GPUs that jobs ask for."""
    headings = [
        ("jobs", "those whose start the history tells"),
        ("real wait", "from submission, or from when Slurm might have started it, to the start; mean"),
        ("median", "of the real waits"),
        ("simulated", "the same in the simulation of today's scheduler; mean"),
        ("median", "of the simulated waits"),
        ("off by", "mean size of the error of a start"),
    ]
    every = np.ones(len(found.gpus), dtype=bool)
    classes = {"all jobs": every, **sizes_of(found.gpus.astype(int).tolist())}
    rows = []
    for name, inside in classes.items():
        real_s, wait_s = found.real_wait_s[inside], found.wait_s[inside]
        texts = [
            f"{int(inside.sum()):,}",
            duration(float(real_s.mean())),
            duration(float(np.median(real_s))),
            duration(float(wait_s.mean())),
            duration(float(np.median(wait_s))),
            duration(float(np.abs(wait_s - real_s).mean())),
        ]
        rows.append((name, [Cell(text) for text in texts]))
    return ReportTable(headings, rows)


def headline_table(today: str, found: PolicyComparison) -> ReportTable:
    """Today's scheduler and Dally in numbers, under the first case."""
    pair = found.pairs[0]
    headings = [
        ("mean", "from submission to end"),
        ("median", "half of the jobs ended within"),
        ("99th pct", "99 % of the jobs ended within"),
        ("mean", "without GPUs, over a job's whole life"),
        ("99th pct", "99 % of the jobs waited less"),
        ("makespan", "from the first submission to the last end"),
        ("preempted", "how often GPUs were taken from running jobs"),
    ]
    rows = [
        (f"today: {today}", _headline(pair.today, None)),
        (found.chosen.policy, _headline(pair.dally, pair.today)),
    ]
    return ReportTable(headings, rows, [("completion time", 3), ("waiting", 2), ("", 2)])


def _headline(outcome: SimulatedTimes, base: SimulatedTimes | None) -> list[Cell]:
    times_s, base_s = _times_s(outcome), _times_s(base) if base else [0.0] * 6
    cells = [
        _compared(time_s, other_s) if base else Cell(duration(time_s))
        for time_s, other_s in zip(times_s, base_s, strict=True)
    ]
    return [*cells, Cell(f"{outcome.preemptions:,}")]


def _times_s(outcome: SimulatedTimes) -> list[float]:
    jct_s, wait_s = outcome.jct_s, outcome.wait_s
    return [
        float(jct_s.mean()),
        float(np.median(jct_s)),
        float(np.quantile(jct_s, 0.99)),
        float(wait_s.mean()),
        float(np.quantile(wait_s, 0.99)),
        outcome.makespan_s,
    ]


def settings_table(found: PolicyComparison) -> ReportTable:
    """The settings tried, against today's scheduler, under the first case."""
    headings = [
        ("completion", "mean completion time"),
        ("waiting", "mean time without GPUs"),
        ("99th pct", "99 % of the jobs waited less"),
        ("sooner", "share of the jobs that end sooner than today by more than 1 %"),
        ("later", "share of the jobs that end later than today by more than 1 %"),
        ("preempted", "how often GPUs were taken from running jobs"),
    ]
    base = found.pairs[0].today
    rows = []
    for setting, outcome in found.settings:
        ratio = outcome.jct_s / base.jct_s
        cells = [
            *_against(outcome, base),
            Cell(share(float(np.mean(ratio < 1 - EVEN)))),
            Cell(share(float(np.mean(ratio > 1 + EVEN)))),
            Cell(f"{outcome.preemptions:,}"),
        ]
        rows.append((setting.policy, cells))
    return ReportTable(headings, rows)


def ratio_table(found: PolicyComparison) -> ReportTable:
    """The chosen setting with each priority ratio, against today's scheduler, and who pays for it."""
    headings = [
        ("completion", "mean completion time"),
        ("waiting", "mean time without GPUs"),
        ("99th pct", "99 % of the jobs waited less"),
        ("losers", "groups and users whose jobs end later on average than today by more than 1 %"),
        ("who loses most", "of these, in all: how much later its jobs end on average"),
        ("share moved", "of a week's GPU time, at most: percentage points of a group or user, and whose"),
    ]
    base = found.pairs[0].today
    return ReportTable(headings, [(f"{each.ratio:g}", _ratio(each, base)) for each in found.ratios])


def _ratio(each: RatioEffects, base: SimulatedTimes) -> list[Cell]:
    losers = each.effects.losers
    return [
        *_against(each.outcome, base),
        Cell(f"{len(losers):,}"),
        Cell(f"{losers[0].name}, {change(1 + losers[0].change, 1)}" if losers else "nobody"),
        Cell(f"{100 * each.moved.size:.1f}", each.moved.name) if each.moved else Cell(""),
    ]


def segments_table(site: Site, today: str, found: PolicyComparison) -> ReportTable:
    """Both schedulers under rules that set segments, against the same scheduler without segments."""
    headings = [
        ("completion", "mean completion time of all jobs"),
        ("several machines", "mean completion time of the jobs with several machines"),
        ("GPU time", "GPU-hours that all jobs held"),
    ]
    rows = [
        (
            str(each.rule),
            [cell for scheduler in SCHEDULERS for cell in _ruled(site, each, found.rules[0], scheduler)],
        )
        for each in found.rules
    ]
    groups = [(f"today: {today}", len(headings)), (found.chosen.policy, len(headings))]
    return ReportTable([*headings, *headings], rows, groups)


def _ruled(site: Site, each: RuleTimes, first: RuleTimes, scheduler: str) -> list[Cell]:
    times, base = each.under(scheduler), first.under(scheduler)
    wide = concerned(site)
    means_s = [float(times.jct_s.mean()), float(times.jct_s[wide].mean())]
    held_s = gpu_s(site, times)
    if each is first:
        return [*(Cell(duration(mean_s)) for mean_s in means_s), Cell(f"{held_s / 3600:,.0f}")]
    changes = [jct_change(times, base), jct_change(times, base, wide)]
    return [
        *(Cell(duration(mean_s), *_surely(ratio)) for mean_s, ratio in zip(means_s, changes, strict=True)),
        Cell(f"{held_s / 3600:,.0f}", change(held_s, gpu_s(site, base))),
    ]


def _surely(ratio: Mean) -> tuple[str, str]:
    """A change with its interval, and whether it is better or worse beyond that."""
    half = ratio.half or 0.0
    verdict = "better" if ratio.value + half < 1 else "worse" if ratio.value - half > 1 else ""
    return with_interval(ratio), verdict


def _against(outcome: SimulatedTimes, base: SimulatedTimes) -> list[Cell]:
    """Mean completion time, mean wait and the longest waits, against those of another."""
    return [
        _compared(float(outcome.jct_s.mean()), float(base.jct_s.mean())),
        _compared(float(outcome.wait_s.mean()), float(base.wait_s.mean())),
        _compared(float(np.quantile(outcome.wait_s, 0.99)), float(np.quantile(base.wait_s, 0.99))),
    ]


def effect_table(effects: Sequence[Effect]) -> ReportTable:
    """A row for each group of jobs: completion times and waits under today's scheduler and Dally."""
    headings = [
        ("jobs", "how many"),
        ("GPU-hours", "that they really took"),
        ("today", "mean, simulated"),
        ("Dally", "mean; small: the difference"),
        ("range", "lowest and highest difference over all that was assumed of the jobs' models"),
        ("today", "mean time without GPUs, simulated"),
        ("Dally", "mean time without GPUs"),
        ("sooner", "share of the jobs that end sooner by more than 1 %"),
        ("later", "share of the jobs that end later by more than 1 %"),
    ]
    groups = [("", 2), ("completion time", 3), ("waiting", 2), ("jobs that end", 2)]
    return ReportTable(headings, [(each.name, _effect(each)) for each in effects], groups)


def _effect(each: Effect) -> list[Cell]:
    least, most = change(1 + each.least, 1), change(1 + each.most, 1)
    return [
        Cell(f"{each.jobs:,}"),
        Cell(f"{each.gpu_h:,.0f}" if each.gpu_h >= 10 else f"{each.gpu_h:.2g}"),
        Cell(duration(each.today_s)),
        Cell(duration(each.dally_s), change(each.dally_s, each.today_s), _VERDICTS[each.verdict]),
        Cell(f"{least} to {most}" if least != most else ""),
        Cell(duration(each.today_wait_s)),
        Cell(duration(each.dally_wait_s)),
        Cell(share(each.sooner)),
        Cell(share(each.later)),
    ]


def _compared(value: float, base: float) -> Cell:
    ratio = value / base if base else 1.0
    verdict = "better" if ratio < 1 - EVEN / 2 else "worse" if ratio > 1 + EVEN / 2 else ""
    return Cell(duration(value), change(value, base), verdict)
