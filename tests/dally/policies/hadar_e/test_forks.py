"""Where copies of forked jobs go."""

from collections.abc import Mapping, Sequence
from math import log1p

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from dally.policies.hadar.market import Market
from dally.policies.hadar_e.forks import Forker, Machines, spread_copies
from dally.testing.worlds import racks
from tests.dally.policies.hadar.markets import market

SPEED = (1.0, 0.5, 0.25)


def forker(
    most: int = 9,
    worth: float = 1.0,
    current: Sequence[int] = (),
    speeds: Sequence[float] = SPEED,
    gpus: int = 1,
) -> Forker:
    """A job on machines of such speeds, worth less for each unit of speed more; a restart costs a tenth."""

    def utility(machines: Machines) -> float:
        restart = 0.9 if current and machines != frozenset(current) else 1.0
        return worth * restart * log1p(sum(speeds[machine] for machine in machines))

    accepted = np.ones(len(speeds), dtype=bool)
    return Forker(gpus, most, range(len(set(speeds))), accepted, frozenset(current), utility)


def singles(left: Mapping[int, int]) -> Market:
    """Machines with one GPU of a type each, of which some are left."""
    topology = racks([[1] * len(SPEED)], [f"t{number}" for number in range(len(SPEED))])
    return market(topology, [left.get(machine, 0) for machine in range(len(SPEED))], lowest=1e-9)


def test_a_lone_job_gets_all_machines() -> None:
    assert spread_copies(singles({1: 1, 2: 1}), [forker()], [0]) == [frozenset({0, 1, 2})]


def test_no_job_has_more_copies_than_it_may() -> None:
    assert spread_copies(singles({1: 1, 2: 1}), [forker(most=2)], [0]) == [frozenset({0, 1})]


def test_a_copy_goes_to_the_job_that_gains_most_by_it() -> None:
    """Half a unit of speed is worth more to the job that has a quarter than to the one that has one."""
    assert spread_copies(singles({1: 1}), [forker(), forker()], [0, 2]) == [
        frozenset({0}),
        frozenset({1, 2}),
    ]


def test_copies_stay_where_they_run_if_all_is_as_good() -> None:
    jobs = [forker(current=(0, 1)), forker(current=(2,))]
    assert spread_copies(singles({1: 1}), jobs, [0, 2]) == [frozenset({0, 1}), frozenset({2})]


def test_a_job_whose_first_copy_would_move_stays_with_all_of_its_copies_if_that_is_worth_more() -> None:
    much_faster = forker(current=(1, 2), most=2)
    assert spread_copies(singles({1: 1, 2: 1}), [much_faster], [0]) == [frozenset({0, 1})]
    hardly_faster = forker(current=(1, 2), most=2, speeds=(1.0, 0.99, 0.98))
    assert spread_copies(singles({1: 1, 2: 1}), [hardly_faster], [0]) == [frozenset({1, 2})]


def test_copies_whose_price_exceeds_their_gain_are_not_made() -> None:
    assert spread_copies(singles({1: 1, 2: 1}), [forker(worth=1e-10)], [0]) == [frozenset({0})]


@settings(max_examples=50, deadline=None)
@given(
    left=st.lists(st.integers(0, 4), min_size=6, max_size=6),
    jobs=st.lists(st.tuples(st.integers(1, 4), st.integers(1, 3)), min_size=1, max_size=5),
)
def test_copies_fit_and_each_job_keeps_its_first(left: list[int], jobs: list[tuple[int, int]]) -> None:
    speeds = [1.0, 0.5] * 3
    on_offer = market(racks([[4] * 6], ("a", "b")), left, lowest=1e-9)
    forkers = [forker(most, speeds=speeds, gpus=gpus) for most, gpus in jobs]
    first = [place % 6 for place in range(len(jobs))]
    copies = spread_copies(on_offer, forkers, first)
    used = [0] * 6
    for machines, mine, (most, gpus) in zip(copies, first, jobs, strict=True):
        assert mine in machines
        assert len(machines) <= most
        for machine in machines - {mine}:
            used[machine] += gpus
    assert all(taken <= there for taken, there in zip(used, left, strict=True))
