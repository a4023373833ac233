"""A gang over several GPU types: its iteration from those of the types."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dally.profiles.gang_iteration import split_by_speed, split_evenly
from dally.profiles.iteration import Prediction


def part(compute_s: float, exposed_s: float, note: str = "") -> Prediction:
    return Prediction(compute_s + exposed_s, exposed_s, exposed_s, 8, "replay", bool(note), note)


PARTS = st.lists(
    st.tuples(st.floats(0.01, 10), st.floats(0, 5), st.integers(1, 8)), min_size=1, max_size=4
).map(lambda drawn: [(part(compute_s, exposed_s), gpus) for compute_s, exposed_s, gpus in drawn])


def test_even_batches_run_at_the_slowest_ones_pace() -> None:
    assert split_evenly([part(1.0, 0.5), part(4.0, 0.1)]) == part(4.0, 0.1)


def test_batches_by_speed_compute_for_the_harmonic_mean() -> None:
    """2 GPUs of 1 s and 1 of 4 s: 3 / (2 + 1/4) s, and the fast type has 8/9 of the batch."""
    found = split_by_speed([part(1.0, 0.9), part(4.0, 0.0, "far")], [2, 1])
    assert found.exposed_s == pytest.approx(0.9 * 8 / 9)
    assert found.iteration_s - found.exposed_s == pytest.approx(3 / 2.25)
    assert (found.extrapolated, found.note) == (True, "far")


@given(PARTS)
def test_batches_by_speed_are_never_slower_than_even_ones_nor_faster_than_the_fastest_type(
    parts: list[tuple[Prediction, int]],
) -> None:
    predictions = [prediction for prediction, _ in parts]
    found = split_by_speed(predictions, [gpus for _, gpus in parts]).iteration_s
    assert found <= split_evenly(predictions).iteration_s * (1 + 1e-9)
    assert found >= min(prediction.iteration_s for prediction in predictions) * (1 - 1e-9)


@given(PARTS)
def test_types_that_are_alike_split_alike_both_ways(parts: list[tuple[Prediction, int]]) -> None:
    alike = [parts[0][0] for _ in parts]
    found = split_by_speed(alike, [gpus for _, gpus in parts])
    assert found.iteration_s == pytest.approx(split_evenly(alike).iteration_s)
