"""Iterations with another local batch than the profile's, by hand."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dally.profiles.iteration import predict
from dally.profiles.schema import BatchTime, Point
from tests.dally.profiles.test_iteration import COMPUTE, NO_WINDOW, point, profile, reduced, shape


def test_a_smaller_batch_hides_less_and_a_larger_one_more() -> None:
    known = profile(rack=[point(2, 4, curve=[reduced(400, 2.0)])], buckets=())
    exposed = [predict(known, shape(4, 4), batch=batch).exposed_s for batch in (0.5, 1.0, 2.0)]
    assert exposed == pytest.approx([2.0 - 0.75, 2.0 - 1.5, 0.0])
    replayed = profile(rack=[point(2, 4, curve=[reduced(100, 1.0), reduced(300, 2.0)])])
    half = predict(replayed, shape(4, 4), batch=0.5)
    # ready at 0.75 and 1.25; done at 1.75 and 3.75, then half of the step.
    assert (half.iteration_s, half.exposed_s) == pytest.approx((4.0, 4.0 - 1.75))


def test_a_measured_iteration_with_another_batch_hides_as_much_more_or_less() -> None:
    known = profile(rack=[point(2, 4, 5.2, [reduced(400, 2.0)])], buckets=())
    # 4.0 is predicted of it with its own batch, 1.75 + 1.25 with half of it.
    assert predict(known, shape(4, 4), batch=0.5).iteration_s == pytest.approx(5.2 - 4.0 + 3.0)


def test_a_share_of_compute_that_is_fixed_stays_with_or_without_learning() -> None:
    known = profile(compute=replace(COMPUTE, fixed_s=1.5))
    assert predict(known, shape(1), batch=0.5).iteration_s == pytest.approx(2.5)


def test_other_batches_that_were_measured_count_before_the_fixed_share() -> None:
    batches = (BatchTime(8, 2.0), BatchTime(64, 11.5))
    known = profile(compute=replace(COMPUTE, fixed_s=1.5, other_batches=batches), local_batch=32)
    times = {size: predict(known, shape(1), batch=size / 32).iteration_s for size in (4, 8, 16, 32, 48, 64)}
    assert times == pytest.approx({4: 1.75, 8: 2.0, 16: 2.5, 32: 3.5, 48: 7.5, 64: 11.5})


def test_what_gpus_of_one_machine_lose_to_each_other_goes_with_the_batch_up_to_a_tenth() -> None:
    """3.5 s become 3.75 on two GPUs; with twice the batch 7.0 become 7.5."""
    known = profile(machine=[point(1, 2, 3.75)], buckets=(), grad_bytes=None, compute=NO_WINDOW)
    assert predict(known, shape(2), batch=2.0).iteration_s == pytest.approx(7.5)
    much = profile(machine=[point(1, 2, 35.0)], buckets=(), grad_bytes=None, compute=NO_WINDOW)
    assert predict(much, shape(2), batch=2.0).iteration_s == pytest.approx(35.0, rel=0.01), "communication"


@given(
    st.sampled_from([(point(2, 2, 5.0),), (point(2, 1, 4.0), point(2, 4, 8.0), point(4, 1, 4.5))]),
    st.lists(st.integers(1, 4), min_size=1, max_size=6),
    st.floats(0.1, 10),
    st.floats(0.1, 10),
    st.booleans(),
)
def test_a_larger_batch_never_shortens_an_iteration_nor_lengthens_the_wait(
    known: Sequence[Point], machines: list[int], one: float, two: float, window: bool
) -> None:
    compute = COMPUTE if window else NO_WINDOW
    spread = shape(*sorted(machines, reverse=True))
    small, large = (
        predict(profile(rack=known, compute=compute, buckets=()), spread, batch=batch)
        for batch in sorted((one, two))
    )
    assert small.iteration_s <= large.iteration_s * (1 + 1e-9)
    assert large.exposed_s <= small.exposed_s + 1e-9
