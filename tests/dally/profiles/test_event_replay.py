from collections.abc import Sequence
from math import inf

from hypothesis import given, settings
from hypothesis import strategies as st

from dally.profiles.event_replay import Transfer, replay_s
from dally.profiles.iteration import buckets_s
from dally.profiles.schema import Bucket, Compute

TIMES = st.floats(0, 1e4)


def test_what_is_needed_at_once_adds_to_compute() -> None:
    assert replay_s([Transfer(1.0, 1.0, 0.5), Transfer(2.0, 2.0, 0.25)], 3.0) == 3.75


def test_what_is_needed_later_is_hidden_as_far_as_compute_lasts() -> None:
    assert replay_s([Transfer(1.0, 2.0, 0.5)], 3.0) == 3.0
    assert replay_s([Transfer(1.0, 2.0, 1.5)], 3.0) == 3.5
    assert replay_s([Transfer(1.0, inf, 5.0)], 3.0) == 6.0


def test_a_wait_delays_what_becomes_ready_after_it() -> None:
    # Compute waits from 1.0 to 2.0; so the second is ready at 3.0, not at 2.0, and done at 4.5.
    assert replay_s([Transfer(1.0, 1.0, 1.0), Transfer(2.0, inf, 1.5)], 2.5) == 4.5


def test_the_same_links_carry_one_after_another_and_others_beside() -> None:
    one = Transfer(0.0, inf, 2.0, links=0)
    assert replay_s([one, Transfer(0.0, inf, 2.0, links=0)], 1.0) == 4.0
    assert replay_s([one, Transfer(0.0, inf, 2.0, links=1)], 1.0) == 2.0


def test_what_is_called_first_may_be_needed_last() -> None:
    # The gather behind the gradients waits for these on the wire, and compute for it: 0.5 + 2 + 1 is over.
    assert replay_s([Transfer(0.5, inf, 2.0), Transfer(1.0, 1.0, 1.0)], 1.5) == 4.0


def version_1_s(compute: Compute, buckets: Sequence[Bucket], allreduce_s: Sequence[float]) -> float:
    """The replay of buckets that profiles of version 1 had before events."""
    factor, fwd_s, done_s = compute.contention_factor or 1.0, compute.fwd_s or 0.0, 0.0
    for bucket, seconds in zip(buckets, allreduce_s, strict=True):
        ready_s = fwd_s + (bucket.ready_s - fwd_s) * factor if bucket.ready_s > fwd_s else bucket.ready_s
        done_s = max(ready_s, done_s) + seconds
    return max(fwd_s + compute.bwd_s * factor, done_s) + (compute.step_s or 0.0)


@settings(max_examples=300)
@given(
    st.builds(
        Compute,
        fwd_s=st.none() | TIMES,
        bwd_s=st.floats(1e-6, 1e4),
        step_s=st.none() | TIMES,
        window_s=st.none(),
        contention_factor=st.none() | st.floats(1, 3),
    ),
    st.lists(st.tuples(TIMES, TIMES), max_size=8),
)
def test_buckets_are_replayed_to_the_bit_as_version_1_did(
    compute: Compute, timed: list[tuple[float, float]]
) -> None:
    timed.sort()
    buckets = [Bucket(number + 1, ready_s) for number, (ready_s, _) in enumerate(timed)]
    seconds = [each for _, each in timed]
    found = buckets_s(compute, buckets, lambda size: seconds[int(size) - 1])
    assert found == version_1_s(compute, buckets, seconds)


transfers = st.lists(
    st.builds(
        lambda ready_s, after_s, seconds, links: Transfer(ready_s, ready_s + after_s, seconds, links),
        TIMES,
        TIMES | st.just(inf),
        TIMES,
        st.integers(0, 2),
    ),
    max_size=8,
).map(sorted)


@given(transfers, TIMES, st.floats(1, 5))
def test_nothing_gets_faster_by_slower_links_and_nothing_beats_compute(
    timed: list[Transfer], compute_s: float, factor: float
) -> None:
    alone_s = replay_s(timed, compute_s)
    slower_s = replay_s([each._replace(seconds=each.seconds * factor) for each in timed], compute_s)
    assert compute_s * (1 - 1e-12) <= alone_s <= slower_s * (1 + 1e-12)
    assert alone_s <= (compute_s + sum(each.ready_s + each.seconds for each in timed)) * (1 + 1e-12)
