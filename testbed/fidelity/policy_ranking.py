"""Several policies that ran the same workload: side by side, and whether the simulator ranks them rightly."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, combinations, pairwise

from dally.words import share
from testbed.fidelity.comparison import Comparison
from testbed.fidelity.report_tables import METRICS, ComparisonTable, percent, relative
from testbed.running.folder import WORKLOAD


@dataclass(frozen=True, slots=True)
class PolicyRanking:
    """Policies by one figure of merit, less is better.

    Attributes:
        real: How reality ranks them, as `in_order` writes it.
        simulated: How the simulator does.
        tau: Kendall's tau-a: 1 if every pair has the same order in both, -1 if none has.
        swapped: Pairs that the simulator has the wrong way round, the really better one first.
    """

    real: str
    simulated: str
    tau: float
    swapped: Sequence[tuple[str, str]]


def rank(real: Mapping[str, float], simulated: Mapping[str, float]) -> PolicyRanking:
    """Rank at least two policies.

    Kendall's tau-a (Kendall, Biometrika 1938): pairs in the same order less pairs in opposite order, over
    all pairs; a pair that is equal in one of the two counts as neither.
    """
    signs = {
        (one, other): _sign(real[other] - real[one]) * _sign(simulated[other] - simulated[one])
        for one, other in combinations(real, 2)
    }
    swapped = [tuple(sorted(pair, key=real.__getitem__)) for pair, sign in signs.items() if sign < 0]
    return PolicyRanking(
        real=in_order(real),
        simulated=in_order(simulated),
        tau=sum(signs.values()) / len(signs),
        swapped=[(better, worse) for better, worse in swapped],
    )


def in_order(values: Mapping[str, float]) -> str:
    """The policies, best first: `a < b = c`, with = between those that are equal."""
    names = sorted(values, key=values.__getitem__)
    signs = [" = " if values[one] == values[other] else " < " for one, other in pairwise(names)]
    return "".join(chain.from_iterable(zip(names, [*signs, ""], strict=True)))


def rankings(comparisons: Sequence[Comparison]) -> dict[str, PolicyRanking]:
    """The rankings by mean completion time and by makespan.

    There are none for one run, runs of different workloads, or two runs of one policy.
    """
    workloads = {(item.run.folder / WORKLOAD).read_bytes() for item in comparisons}
    specs = {item.run.policy for item in comparisons}
    if len(comparisons) < 2 or len(workloads) > 1 or len(specs) < len(comparisons):
        return {}
    return {
        metric.name: rank(
            {item.run.policy: metric.value(item.real) for item in comparisons},
            {item.run.policy: metric.value(item.simulated) for item in comparisons},
        )
        for metric in METRICS
        if metric.name in ("JCT mean", "makespan")
    }


def ranking_sentences(comparisons: Sequence[Comparison]) -> list[str]:
    """Whether the simulator ranks the policies as reality does, a sentence for each figure."""
    sentences = []
    for name, ranking in rankings(comparisons).items():
        if ranking.real == ranking.simulated:
            sentences.append(f"{name}: the simulator ranks the policies as reality does ({ranking.real}).")
            continue
        wrong = ", ".join(f"{better} before {worse}" for better, worse in ranking.swapped)
        missed = f"; it has the wrong way round: {wrong}" if wrong else "; no pair is the wrong way round"
        sentences.append(
            f"{name}: really {ranking.real}; simulated {ranking.simulated} "
            f"(Kendall's tau {ranking.tau:.2f}{missed})."
        )
    return sentences or ["The runs are not of one workload under different policies, so they are not ranked."]


def side_by_side(comparisons: Sequence[Comparison]) -> ComparisonTable:
    """Completion times and makespans of the policies, real and simulated."""
    header = [
        *("policy", "jobs", "JCT mean", "sim.", "error", "makespan", "sim.", "error"),
        *("network", "sim.", "error of a job", "by chance", "running, given places"),
    ]
    rows = []
    for item in comparisons:
        real, simulated = item.real, item.simulated
        row = [item.run.policy, f"{len(item.jobs)}/{len(item.jobs) + len(item.left_out)}"]
        for one, other in (
            (real.jct_s.mean, simulated.jct_s.mean),
            (real.makespan_s, simulated.makespan_s),
        ):
            row += [f"{one:,.1f}", f"{other:,.1f}", percent(relative(other, one))]
        row += [f"{real.comm_s.mean:,.1f}", f"{simulated.comm_s.mean:,.1f}"]
        rows.append(
            [*row, *(share(error, 1) for error in (item.job_error, item.chance.job_error, item.run_error))]
        )
    note = (
        "Seconds; error of a job: mean absolute error of its completion time; by chance: how far simulations "
        "whose running times vary as real ones did are apart."
    )
    return ComparisonTable("Policies", note, header, rows)


def _sign(value: float) -> int:
    return (value > 0) - (value < 0)
