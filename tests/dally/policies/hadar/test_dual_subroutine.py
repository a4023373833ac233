"""Who gets GPUs: the exact choice against trying everything, and the greedy one against it."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dally.policies.hadar.dual_subroutine import BidQueue, decide_exactly, decide_greedily
from dally.policies.hadar.find_alloc import Bid, Bidder, find_alloc
from dally.policies.hadar.market import Market
from tests.dally.policies.hadar.markets import bidder, market, typed


@dataclass(frozen=True)
class PricedCase:
    """Machines of `typed`, and jobs as (GPUs, worth, cost of distance)."""

    machines: tuple[int, ...]
    jobs: tuple[tuple[int, float, float], ...]

    def market(self) -> Market:
        return market(typed(*self.machines))

    def bidders(self, on_offer: Market) -> list[Bidder]:
        found = [bidder(on_offer, gpus, worth, apart=apart) for gpus, worth, apart in self.jobs]
        return sorted(found, key=lambda each: -each.ceiling / each.gpus)


CASES = st.builds(
    PricedCase,
    st.lists(st.integers(1, 3), min_size=1, max_size=4).map(tuple),
    st.lists(
        st.tuples(st.integers(1, 4), st.floats(0.01, 1), st.sampled_from([1.0, 0.6])), min_size=1, max_size=6
    ).map(tuple),
)


def greedily(on_offer: Market, bidders: Sequence[Bidder]) -> dict[int, Bid]:
    gpus, ceilings = (np.array([getattr(each, name) for each in bidders]) for name in ("gpus", "ceiling"))
    return decide_greedily(on_offer, BidQueue(gpus, ceilings, gpus), bidders.__getitem__)


def total(bids: dict[int, Bid]) -> float:
    return sum(bid.payoff for bid in bids.values())


def most(on_offer: Market, bidders: Sequence[Bidder]) -> float:
    """The greatest sum of payoffs over all ways to take or skip each job in turn."""
    if not bidders:
        return 0.0
    skipped = most(on_offer, bidders[1:])
    bid = find_alloc(on_offer, bidders[0])
    if bid is None or bid.payoff <= 0:
        return skipped
    on_offer.take(bid.allocation)
    taken = bid.payoff + most(on_offer, bidders[1:])
    on_offer.take(bid.allocation, -1)
    return max(taken, skipped)


@settings(max_examples=60, deadline=None)
@given(case=CASES)
def test_the_exact_choice_is_as_good_as_trying_everything(case: PricedCase) -> None:
    on_offer = case.market()
    bidders = case.bidders(on_offer)
    expected = most(on_offer, bidders)
    assert total(decide_exactly(on_offer, bidders)) == pytest.approx(expected)


@settings(max_examples=60, deadline=None)
@given(case=CASES)
def test_the_greedy_choice_is_never_better_than_the_exact_one(case: PricedCase) -> None:
    exact, greedy = case.market(), case.market()
    best = total(decide_exactly(exact, case.bidders(exact)))
    assert total(greedily(greedy, case.bidders(greedy))) <= best + 1e-9


@settings(max_examples=60, deadline=None)
@given(case=CASES)
def test_no_gpu_is_given_twice(case: PricedCase) -> None:
    for decide in (decide_exactly, greedily):
        on_offer = case.market()
        bids = decide(on_offer, case.bidders(on_offer))
        given = np.zeros(len(case.machines), dtype=np.int64)
        for bid in bids.values():
            for machine, gpus in bid.allocation:
                given[machine] += gpus
        assert (on_offer.left == np.array(case.machines) - given).all()
        assert (on_offer.left >= 0).all()


def test_the_exact_choice_skips_a_job_that_is_worth_more_a_gpu_but_blocks_a_better_one() -> None:
    """Two GPUs: one for 0.6, or both for 1; the first earns more a GPU, the second more in all."""
    case = PricedCase((2,), ((1, 0.6, 1.0), (2, 1.0, 1.0)))
    assert [*greedily(case.market(), case.bidders(case.market()))] == [0]
    assert [*decide_exactly(case.market(), case.bidders(case.market()))] == [1]


def test_a_job_that_does_not_pay_the_price_waits() -> None:
    """The last of four GPUs costs 1e-4 ** (1/4) = 0.1."""
    on_offer = market(typed(4), left=[1])
    assert greedily(on_offer, [bidder(on_offer, 1, worth=0.09)]) == {}
    assert len(greedily(on_offer, [bidder(on_offer, 1, worth=0.11)])) == 1


def test_who_finds_no_room_does_not_keep_others_from_it() -> None:
    on_offer = market(typed(2, 2), left=[1, 1])
    pairs = [bidder(on_offer, 2, 1.0, speeds={"fast": 1.0}), bidder(on_offer, 2, 0.9, speeds={"fast": 1.0})]
    single = bidder(on_offer, 1, 0.4, speeds={"fast": 1.0})
    assert [*greedily(on_offer, [*pairs, single])] == [2]
