"""Prices computed by hand."""

import numpy as np
import pytest

from dally.policies.hadar.market import Demands, PriceRange, price_range
from dally.testing.worlds import racks
from tests.dally.policies.hadar.markets import market

DEMANDS = Demands(
    best=np.array([1.0, 0.8]),
    worst=np.array([0.1, 0.06]),
    gpus=np.array([2.0, 1.0]),
    rounds=np.array([10.0, 50.0]),
    types=np.array([[True, True, False], [False, True, False]]),
)


def test_the_range_goes_from_the_least_to_the_most_that_those_who_accept_a_type_would_pay() -> None:
    prices = price_range(DEMANDS, gpus=20)
    # eta = max(10 * 2, 50 * 1) / 20 = 2.5; the jobs pay least 0.1 / (10 * 20) and 0.06 / (10 * 50).
    assert prices.lowest.tolist() == pytest.approx([0.0005, 0.00012, 1.0])
    assert prices.highest.tolist() == pytest.approx([0.5, 0.8, 1.0])
    assert prices.alpha == pytest.approx(np.log(0.8 / 0.00012))


def test_on_a_large_cluster_eta_is_one_so_that_the_least_stays_below_the_most() -> None:
    prices = price_range(DEMANDS, gpus=10_000)
    assert prices.lowest.tolist() == pytest.approx([0.1 / 80, 0.06 / 200, 1.0])
    assert (prices.lowest <= prices.highest).all()


def test_a_price_rises_by_equal_factors_from_the_first_gpu_to_the_last() -> None:
    on_offer = market(racks([[4]]), lowest=1e-4)
    seen = []
    for _ in range(4):
        seen.append(on_offer.cheapest)
        on_offer.take(((0, 1),))
    assert seen == pytest.approx([1e-4, 1e-3, 1e-2, 1e-1])
    assert on_offer.cheapest == float("inf")
    on_offer.take(((0, 4),), -1)
    assert on_offer.cheapest == seen[0]


def test_alpha_is_at_least_one() -> None:
    assert PriceRange(np.array([1.0]), np.array([1.5])).alpha == 1.0


def test_a_floor_raises_the_lowest_price_and_never_above_the_highest() -> None:
    prices = price_range(DEMANDS, gpus=20, floor=0.1)
    assert prices.lowest.tolist() == pytest.approx([0.05, 0.08, 1.0])
    assert price_range(DEMANDS, gpus=20, floor=1.0).lowest.tolist() == prices.highest.tolist()
