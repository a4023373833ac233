"""What gloo takes to send from all to all: by hand for few ranks, and never less than the links allow."""

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dally.profiles.gloo_exchange import exchange_time


def test_two_ranks_send_one_after_the_other() -> None:
    # The later one is asked already; what it asks for itself goes behind what it sends.
    assert exchange_time([(0, 1)], (0, 1), (1.0, 1.0)) == pytest.approx(2.0)


def test_the_last_of_four_ranks_gets_two_thirds_only_after_it_has_sent() -> None:
    # Measured between four hosts at 80 Mb/s, 2.36 MB out of each: 0.40 s, where 0.246 s would do for them.
    assert exchange_time([range(4)], range(4), [1.0] * 4) == pytest.approx(1 + 2 / 3)


def test_two_pairs_on_hosts_of_their_own_do_not_share_links() -> None:
    assert exchange_time([(0, 1), (2, 3)], range(4), [1.0] * 4) == pytest.approx(2.0)


def test_what_stays_in_a_place_takes_no_time() -> None:
    assert exchange_time([range(4)], [0] * 4, [1.0] * 4) == 0.0


@settings(max_examples=50, deadline=None)
@given(
    st.sampled_from([(0, 1, 2, 3), (0, 0, 1, 1), (0, 1, 1, 1), (0, 0, 1, 2)]),
    st.lists(st.floats(0.25, 4), min_size=4, max_size=4),
)
def test_no_link_carries_more_than_it_can(places: Sequence[int], given_loads: list[float]) -> None:
    loads = [load * 4 / sum(given_loads) for load in given_loads]
    least = 0.0
    for place in set(places):
        here = [loads[rank] for rank in range(4) if places[rank] == place]
        got, sent = sum(here) * (4 - len(here)) / 3, (4 - sum(here)) * len(here) / 3
        least = max(least, got, sent)
    assert least * (1 - 1e-9) <= exchange_time([range(4)], places, loads) <= 4 * least
