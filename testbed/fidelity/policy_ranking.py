"""Whether the simulator puts policies in the order in which reality puts them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, combinations, pairwise


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

    Args:
        real: Figure of each policy.
        simulated: The same policies.
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


def _sign(value: float) -> int:
    return (value > 0) - (value < 0)
