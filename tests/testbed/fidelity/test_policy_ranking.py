"""Policies are ranked as Kendall's tau counts it, and swapped pairs are named."""

from testbed.fidelity.policy_ranking import rank


def test_the_same_order_has_tau_1_and_no_swapped_pair() -> None:
    ranking = rank({"a": 1.0, "b": 2.0, "c": 3.0}, {"a": 10.0, "b": 11.0, "c": 50.0})
    assert (ranking.tau, ranking.swapped) == (1.0, [])
    assert ranking.real == ranking.simulated == "a < b < c"


def test_swapped_pairs_are_named_with_the_really_better_one_first() -> None:
    ranking = rank({"a": 3.0, "b": 2.0, "c": 1.0}, {"a": 3.0, "b": 1.0, "c": 2.0})
    assert ranking.swapped == [("c", "b")]
    assert ranking.tau == (2 - 1) / 3


def test_the_opposite_order_has_tau_minus_1() -> None:
    assert rank({"a": 1.0, "b": 2.0}, {"a": 2.0, "b": 1.0}).tau == -1.0


def test_equal_ones_are_shown_as_equal_and_count_neither_way() -> None:
    ranking = rank({"a": 1.0, "b": 1.0, "c": 2.0}, {"a": 1.0, "b": 2.0, "c": 3.0})
    assert ranking.real == "a = b < c"
    assert (ranking.tau, ranking.swapped) == (2 / 3, [])
