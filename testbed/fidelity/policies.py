"""Several policies that ran the same workload: side by side, and whether the simulator ranks them rightly."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from testbed.fidelity.comparison import Comparison
from testbed.fidelity.policy_ranking import PolicyRanking, rank
from testbed.fidelity.report_tables import METRICS, ComparisonTable, Metric, percent, relative
from testbed.running.folder import WORKLOAD

RANKED = tuple(metric for metric in METRICS if metric.name in ("JCT mean", "makespan"))
"""What policies are ranked by."""


def side_by_side(comparisons: Sequence[Comparison]) -> ComparisonTable:
    """Completion times and makespans of the policies, real and simulated."""
    header = [
        *("policy", "jobs", "JCT mean", "sim.", "error", "makespan", "sim.", "error"),
        *("network", "sim.", "error of a job", "by chance", "running, given places"),
    ]
    return ComparisonTable(
        "Policies",
        "Seconds; error of a job: mean absolute error of its completion time; by chance: how far simulations "
        "whose running times vary as real ones did are apart.",
        header,
        [_row(comparison) for comparison in comparisons],
    )


def rankings(comparisons: Sequence[Comparison]) -> dict[str, PolicyRanking]:
    """The rankings by each figure; none for one run, runs of other workloads, or one policy twice."""
    workloads = {(item.run.folder / WORKLOAD).read_bytes() for item in comparisons}
    specs = {item.run.policy for item in comparisons}
    if len(comparisons) < 2 or len(workloads) > 1 or len(specs) < len(comparisons):
        return {}
    return {metric.name: _ranked(comparisons, metric) for metric in RANKED}


def ranking_words(comparisons: Sequence[Comparison]) -> list[str]:
    """Whether the simulator ranks the policies as reality does, a sentence for each figure."""
    found = rankings(comparisons)
    if not found:
        return ["The runs are not of one workload under different policies, so they are not ranked."]
    return [_told(name, ranking) for name, ranking in found.items()]


def as_data(comparisons: Sequence[Comparison]) -> dict[str, Any]:
    """The rankings, for programs."""
    return {name: asdict(ranking) for name, ranking in rankings(comparisons).items()}


def _told(name: str, ranking: PolicyRanking) -> str:
    if ranking.real == ranking.simulated:
        return f"{name}: the simulator ranks the policies as reality does ({ranking.real})."
    wrong = ", ".join(f"{better} before {worse}" for better, worse in ranking.swapped)
    missed = f"; it has the wrong way round: {wrong}" if wrong else "; no pair is the wrong way round"
    return (
        f"{name}: really {ranking.real}; simulated {ranking.simulated} "
        f"(Kendall's tau {ranking.tau:.2f}{missed})."
    )


def _ranked(comparisons: Sequence[Comparison], metric: Metric) -> PolicyRanking:
    return rank(
        {item.run.policy: metric.value(item.real) for item in comparisons},
        {item.run.policy: metric.value(item.simulated) for item in comparisons},
    )


def _row(comparison: Comparison) -> list[str]:
    real, simulated = comparison.real, comparison.simulated
    errors = (comparison.job_error, comparison.chance.job_error, comparison.run_error)
    pairs = [(real.jct_s.mean, simulated.jct_s.mean), (real.makespan_s, simulated.makespan_s)]
    cells = [
        text
        for one, other in pairs
        for text in (f"{one:,.1f}", f"{other:,.1f}", percent(relative(other, one)))
    ]
    return [
        *(comparison.run.policy, f"{len(comparison.jobs)}/{len(comparison.jobs) + len(comparison.left_out)}"),
        *(*cells, f"{real.comm_s.mean:,.1f}", f"{simulated.comm_s.mean:,.1f}"),
        *(f"{error:.1%}" for error in errors),
    ]
