import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dally.profiles.schema import Bucket
from profiler.rank.steps import Iteration, median_buckets, slowest
from profiler.rank.training import compute_of, fixed_s, other_batches
from profiler.spec import MeasurementSpec
from tests.profiler.rank.ranks import finish, ranks
from workloads.settings import Backend

MOMENTS = st.lists(st.floats(0, 100), min_size=6, max_size=6).map(sorted)


def iteration(forward_s: float, ready_s: tuple[float, ...], backward_s: float, end_s: float) -> Iteration:
    buckets = tuple(Bucket(100, moment) for moment in ready_s)
    return Iteration(forward_s, backward_s, end_s, buckets)


def test_the_gang_reaches_each_moment_with_its_slowest_rank() -> None:
    one = iteration(1.0, (2.0, 5.0), 6.0, 8.0)
    two = iteration(1.5, (3.0, 4.0), 7.0, 7.5)
    assert slowest([one, two]) == iteration(1.5, (3.0, 5.0), 7.0, 8.0)


@given(st.lists(MOMENTS, min_size=1, max_size=5))
def test_buckets_of_the_gang_become_ready_in_order(gang: list[list[float]]) -> None:
    seen = [iteration(moments[0], tuple(moments[1:4]), moments[4], moments[5]) for moments in gang]
    ready = [bucket.ready_s for bucket in slowest(seen).buckets]
    assert ready == sorted(ready)


def test_compute_is_what_iterations_take_without_communication() -> None:
    alone = iteration(1.0, (), 3.0, 3.5)
    silent = iteration(1.0, (1.5, 3.0), 3.1, 3.6)
    compute = compute_of([alone], [silent], None)
    assert (compute.fwd_s, compute.bwd_s, compute.step_s) == (1.0, 2.0, 0.5)
    assert compute.window_s == pytest.approx(1.6)
    assert compute.contention_factor is None


def test_contention_is_how_much_later_the_last_bucket_is_ready_with_communication() -> None:
    alone = iteration(1.0, (), 3.0, 3.5)
    silent = iteration(1.0, (1.5, 3.0), 3.0, 3.5)
    full = iteration(1.0, (1.5, 4.0), 9.0, 9.5)
    assert compute_of([alone], [silent] * 3, [full] * 3).contention_factor == pytest.approx(1.5)


@pytest.mark.parametrize("ready_s", [2.0, 3.0, 3.3])
def test_what_lies_within_the_scatter_of_backward_is_no_contention(ready_s: float) -> None:
    alone = iteration(1.0, (), 3.0, 3.5)
    silent = [iteration(1.0, (1.5, last_s), 3.5, 4.0) for last_s in (2.8, 3.0, 3.4)]
    full = iteration(1.0, (1.5, ready_s), 9.0, 9.5)
    assert compute_of([alone], silent, [full] * 3).contention_factor == 1.0


def test_what_does_not_go_with_the_batch_is_where_the_line_meets_batch_0() -> None:
    assert fixed_s({64: 0.030 + 64e-3, 32: 0.030 + 32e-3}, 64) == pytest.approx(0.030)
    assert fixed_s({64: 0.030 + 64e-3, 32: 0.030 + 32e-3, 8: 0.030 + 8e-3}, 64) == pytest.approx(0.030)


def test_a_fixed_part_is_neither_negative_nor_the_whole() -> None:
    assert fixed_s({64: 0.100, 32: 0.020}, 64) == 0.0
    assert fixed_s({64: 0.100, 32: 0.120}, 64) == pytest.approx(0.099)


def test_one_batch_tells_of_no_fixed_part() -> None:
    assert fixed_s({64: 0.1}, 64) == 0.0


@pytest.mark.parametrize(
    ("asked", "local_batch", "others"), [((), 64, (32,)), ((), 1, ()), ((16, 64, 8), 64, (16, 8))]
)
def test_the_other_batches_are_those_asked_for_or_half(
    asked: tuple[int, ...], local_batch: int, others: tuple[int, ...]
) -> None:
    assert other_batches(MeasurementSpec((), Backend.GLOO, more_local_batches=asked), local_batch) == others


@pytest.fixture(scope="module")
def compared() -> dict[str, Any]:
    """What differs between training with the recorder as hook and training without a hook, on two ranks."""
    with ranks(2, ("tests.profiler.rank.hook_program",)) as started:
        ended = finish(started)
    assert [status for status, _, _ in ended] == [0, 0], ended
    found = json.loads(ended[0][1])
    assert isinstance(found, dict)
    return found


def test_the_recorded_layout_is_the_one_ddp_chose_for_itself(compared: dict[str, Any]) -> None:
    assert compared["recorded"] == compared["ddp"]
    assert len(compared["recorded"]) > 2


def test_gradients_are_those_of_ddp_without_a_hook(compared: dict[str, Any]) -> None:
    assert compared["same_gradients"] is True


def test_the_layout_has_the_median_ready_time_of_each_bucket() -> None:
    iterations = [
        Iteration(0.5, 9.0, 9.5, (Bucket(400, ready_s), Bucket(100, ready_s + 1)))
        for ready_s in (1.0, 2.0, 6.0)
    ]
    assert median_buckets(iterations) == (Bucket(400, 2.0), Bucket(100, 3.0))


def test_iterations_with_other_buckets_are_not_mixed() -> None:
    with pytest.raises(ValueError, match="shorter"):
        median_buckets([iteration(1.0, (1.0,) * count, 2.0, 2.5) for count in (2, 1)])
