"""What FIND_ALLOC finds on clusters small enough to see what is best."""

import pytest

from dally.cluster.topology import Allocation
from dally.policies.hadar.find_alloc import find_alloc
from dally.testing.worlds import racks
from tests.dally.policies.hadar.markets import bidder, market, typed


def test_a_job_takes_the_fastest_type_while_it_has_room() -> None:
    on_offer = market(typed(1, 1, 1))
    for expected in (((0, 1),), ((1, 1),), ((2, 1),)):
        bid = find_alloc(on_offer, bidder(on_offer, 1))
        assert bid is not None
        assert bid.allocation == expected
        on_offer.take(bid.allocation)
    assert find_alloc(on_offer, bidder(on_offer, 1)) is None


def test_the_price_is_that_of_the_gpus_before_they_are_taken() -> None:
    on_offer = market(typed(4, 4, 4), left=[2, 4, 4])
    bid = find_alloc(on_offer, bidder(on_offer, 2))
    assert bid is not None
    assert bid.price == pytest.approx(2 * 1e-4**0.5)
    assert bid.payoff == pytest.approx(1 - 2e-2)


def test_equal_gpus_are_taken_where_they_are_cheapest() -> None:
    on_offer = market(racks([[4, 4, 4]]), left=[1, 3, 2])
    bid = find_alloc(on_offer, bidder(on_offer, 1, speeds={"a": 1.0}))
    assert bid is not None
    assert bid.allocation == ((1, 1),)


def test_a_gang_mixes_types_if_that_is_faster_than_the_slow_type_alone() -> None:
    on_offer = market(typed(2, 2, 4))
    bid = find_alloc(on_offer, bidder(on_offer, 4))
    assert bid is not None
    assert bid.allocation == ((0, 2), (1, 2))
    assert bid.utility == 0.5


def test_a_gang_stays_together_on_a_slower_type_if_distance_costs_more() -> None:
    on_offer = market(typed(2, 2, 4))
    bid = find_alloc(on_offer, bidder(on_offer, 4, apart=0.4))
    assert bid is not None
    assert bid.allocation == ((2, 4),)


def test_a_gang_fills_the_server_with_most_and_puts_the_rest_where_it_is_cheapest() -> None:
    on_offer = market(racks([[8, 8, 8]]), left=[4, 7, 7])
    near = find_alloc(on_offer, bidder(on_offer, 8, apart=0.9, speeds={"a": 1.0}))
    assert near is not None
    assert near.allocation == ((1, 7), (2, 1))


@pytest.mark.parametrize(("apart", "allocation"), [(1.0, ((1, 2), (2, 2))), (0.5, ((0, 4),))])
def test_one_dear_server_or_two_cheap_ones_by_what_distance_costs(
    apart: float, allocation: Allocation
) -> None:
    on_offer = market(racks([[16, 4, 4]]), left=[4, 2, 2])
    bid = find_alloc(on_offer, bidder(on_offer, 4, apart=apart, speeds={"a": 1.0}))
    assert bid is not None
    assert bid.allocation == allocation


def test_a_gang_too_large_for_a_server_goes_to_the_best_fitting_rack() -> None:
    on_offer = market(racks([[4, 4, 4], [4, 4], [2, 2]]))
    bid = find_alloc(on_offer, bidder(on_offer, 6, speeds={"a": 1.0}))
    assert bid is not None
    assert bid.allocation == ((3, 4), (4, 2))


def test_shares_of_a_gang_are_equal_if_it_asks_for_that() -> None:
    on_offer = market(racks([[3, 2, 2]]))
    bid = find_alloc(on_offer, bidder(on_offer, 4, speeds={"a": 1.0}, per_machine=2))
    assert bid is not None
    assert [gpus for _, gpus in bid.allocation] == [2, 2]
    assert find_alloc(on_offer, bidder(on_offer, 6, speeds={"a": 1.0}, per_machine=3)) is None


def test_types_that_a_job_does_not_accept_are_not_taken() -> None:
    on_offer = market(typed(4, 1, 4))
    assert find_alloc(on_offer, bidder(on_offer, 2, speeds={"mid": 0.5})) is None


def test_a_running_job_does_not_move_for_a_lower_price() -> None:
    on_offer = market(racks([[4, 4]]), left=[1, 4])
    held = ((0, 1),)
    on_offer.occupy(held)
    on_offer.vacate(held)
    bid = find_alloc(on_offer, bidder(on_offer, 1, held=held, speeds={"a": 1.0}))
    assert bid is not None
    assert bid.allocation == held


def test_a_running_job_moves_to_a_type_whose_speed_is_worth_the_restart() -> None:
    on_offer = market(typed(1, 1))
    bid = find_alloc(on_offer, bidder(on_offer, 1, held=((1, 1),)))
    assert bid is not None
    assert bid.allocation == ((0, 1),)
    slightly = {"fast": 1.0, "mid": 0.95}
    bid = find_alloc(on_offer, bidder(on_offer, 1, held=((1, 1),), speeds=slightly))
    assert bid is not None
    assert bid.allocation == ((1, 1),)


def test_what_others_run_on_is_taken_only_if_it_is_faster() -> None:
    same = market(racks([[2, 2]]), left=[2, 1])
    same.occupy(((0, 2),))
    bid = find_alloc(same, bidder(same, 1, speeds={"a": 1.0}))
    assert bid is not None
    assert bid.allocation == ((1, 1),)
    faster = market(typed(1, 1))
    faster.occupy(((0, 1),))
    bid = find_alloc(faster, bidder(faster, 1))
    assert bid is not None
    assert bid.allocation == ((0, 1),)


def test_one_that_shares_its_block_with_nobody_bids_only_where_nobody_else_is_and_takes_all_of_it() -> None:
    topology, speeds = racks([[2, 2], [2, 2], [2, 2]]), {"a": 1.0}
    on_offer = market(topology, left=[2, 1, 2, 2, 2, 2])
    bid = find_alloc(on_offer, bidder(on_offer, 1, speeds=speeds, whole_blocks=True))
    assert bid is not None
    assert bid.allocation == ((2, 1),)
    on_offer.take(bid.allocation)
    assert on_offer.left.tolist() == [2, 1, 0, 0, 2, 2]
    assert not on_offer.holds(bid.allocation)
    on_offer.take(bid.allocation, -1)
    assert on_offer.holds(bid.allocation)
    on_offer.take(((2, 1),))
    on_offer.take(((5, 1),))
    assert find_alloc(on_offer, bidder(on_offer, 1, speeds=speeds, whole_blocks=True)) is None
