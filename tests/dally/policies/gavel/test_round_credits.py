"""Turns approach the shares, and what was promised before counts where shares tie."""

import json

from dally.policies.gavel.turns import Turns
from hypothesis import given
from hypothesis import strategies as st


def played(shares: dict[str, float], rounds: int) -> Turns:
    """Rounds on one pool with room for one job at a time."""
    turns = Turns(1).renewed({job: [share] for job, share in shares.items()})
    for _ in range(rounds):
        order, _ = turns.order([*shares])[0]
        turns.held({[*shares][order[0]]: 0})
    return turns


def test_rounds_are_given_as_shares_say() -> None:
    turns = played({"a": 0.5, "b": 0.3, "c": 0.2}, 100)
    assert [turns.of(job).turns for job in "abc"] == [[50], [30], [20]]


@given(weights=st.lists(st.integers(1, 20), min_size=1, max_size=6), rounds=st.integers(1, 150))
def test_nobody_is_far_from_its_share_at_any_time(weights: list[int], rounds: int) -> None:
    shares = {str(job): weight / sum(weights) for job, weight in enumerate(weights)}
    turns = played(shares, rounds)
    for job, share in shares.items():
        assert abs(turns.of(job).turns[0] - rounds * share) < 2
        assert turns.owed(job, 0) == rounds * share - turns.of(job).turns[0]


def test_on_ties_who_is_owed_goes_first_then_who_came_first() -> None:
    turns = played({"a": 0.5, "b": 0.5}, 1)
    renewed = turns.renewed({"a": [0.5], "b": [0.5], "c": [0.5]})
    order, sharing = renewed.order(["a", "b", "c"])[0]
    assert [["a", "b", "c"][place] for place in order] == ["b", "c", "a"]
    assert sharing == 3
    assert Turns(1).order(["x", "y"]) == [([0, 1], 0)]


def test_a_job_without_an_account_has_no_claim() -> None:
    turns = Turns(2).renewed({"a": [0.0, 0.1]})
    assert turns.order(["new", "a"]) == [([0, 1], 0), ([1, 0], 1)]
    assert "new" not in turns


def test_accounts_survive_as_plain_data_and_the_forgotten_do_not() -> None:
    turns = played({"a": 0.7, "b": 0.3}, 5)
    turns.forget("b")
    other = Turns(1)
    other.restore(json.loads(json.dumps(turns.snapshot())))
    assert other.snapshot() == turns.snapshot()
    assert "a" in other
    assert "b" not in other
