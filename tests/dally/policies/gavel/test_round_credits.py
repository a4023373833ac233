"""Turns approach the shares, and what was promised before counts where shares tie."""

import json

from hypothesis import given
from hypothesis import strategies as st

from dally.policies.gavel.round_credits import RoundCredits


def played(shares: dict[str, float], rounds: int) -> RoundCredits:
    """Rounds on one pool with room for one job at a time."""
    credits = RoundCredits(1).renewed({job: [share] for job, share in shares.items()})
    for _ in range(rounds):
        order, _ = credits.order([*shares])[0]
        credits.add_round({[*shares][order[0]]: 0})
    return credits


def test_rounds_are_given_as_shares_say() -> None:
    credits = played({"a": 0.5, "b": 0.3, "c": 0.2}, 100)
    assert [credits.of(job).turns for job in "abc"] == [[50], [30], [20]]


@given(weights=st.lists(st.integers(1, 20), min_size=1, max_size=6), rounds=st.integers(1, 150))
def test_no_job_is_far_from_its_share_at_any_time(weights: list[int], rounds: int) -> None:
    shares = {str(job): weight / sum(weights) for job, weight in enumerate(weights)}
    credits = played(shares, rounds)
    for job, share in shares.items():
        assert abs(credits.of(job).turns[0] - rounds * share) < 2
        assert credits.owed(job, 0) == rounds * share - credits.of(job).turns[0]


def test_on_ties_the_job_that_is_owed_goes_first_then_the_one_that_came_first() -> None:
    credits = played({"a": 0.5, "b": 0.5}, 1)
    renewed = credits.renewed({"a": [0.5], "b": [0.5], "c": [0.5]})
    order, sharing = renewed.order(["a", "b", "c"])[0]
    assert [["a", "b", "c"][place] for place in order] == ["b", "c", "a"]
    assert sharing == 3
    assert RoundCredits(1).order(["x", "y"]) == [([0, 1], 0)]


def test_a_job_without_credit_has_no_claim() -> None:
    credits = RoundCredits(2).renewed({"a": [0.0, 0.1]})
    assert credits.order(["new", "a"]) == [([0, 1], 0), ([1, 0], 1)]
    assert "new" not in credits


def test_credits_survive_as_plain_data_and_the_forgotten_do_not() -> None:
    credits = played({"a": 0.7, "b": 0.3}, 5)
    credits.forget("b")
    other = RoundCredits(1)
    other.restore(json.loads(json.dumps(credits.snapshot())))
    assert other.snapshot() == credits.snapshot()
    assert "a" in other
    assert "b" not in other
