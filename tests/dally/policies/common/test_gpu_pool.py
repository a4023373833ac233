"""Jobs that are admitted together fit together, however the machines that they accept overlap."""

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from dally.jobs.job import Job
from dally.policies.common.gpu_pool import Accepted, Pool, Room

GPUS = {"m0": 1, "m1": 1, "m2": 2, "m3": 2}
NAMES = sorted(GPUS)


def on(accepted: Accepted) -> int:
    return sum(GPUS[name] for name in accepted)


def admitted(asked: Sequence[tuple[int, Accepted]]) -> list[tuple[int, Accepted]]:
    room = Room(Pool(sum(GPUS.values()), {}), on)
    return [
        (gpus, machines)
        for number, (gpus, machines) in enumerate(asked)
        if room.admits(Job(f"j{number}", 0.0, gpus, 1.0, machines=machines))
    ]


def test_machines_that_two_jobs_share_count_once() -> None:
    first, second = (3, Accepted({"m0", "m2"})), (3, Accepted({"m1", "m2"}))
    assert admitted([first, second]) == [first]
    assert admitted([first, (1, Accepted({"m1", "m2"}))]) == [first, (1, Accepted({"m1", "m2"}))]


def test_a_job_that_joins_two_others_competes_with_both() -> None:
    first, second = (2, Accepted({"m0", "m1"})), (2, Accepted({"m2"}))
    assert admitted([first, second, (1, Accepted({"m1", "m2"}))]) == [first, second]
    assert len(admitted([first, second, (1, Accepted({"m1", "m3"}))])) == 3


@given(
    st.lists(
        st.tuples(st.integers(1, 3), st.sets(st.sampled_from(NAMES), min_size=1).map(Accepted)),
        max_size=5,
    )
)
def test_what_is_admitted_asks_for_no_more_than_its_machines_have(
    asked: Sequence[tuple[int, Accepted]],
) -> None:
    found = admitted(asked)
    assert sum(gpus for gpus, _ in found) <= on(Accepted().union(*(machines for _, machines in found)))
