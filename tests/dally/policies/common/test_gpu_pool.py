"""Jobs that are admitted together fit together, however the machines that they accept overlap."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dally.jobs.job import Job
from dally.policies.common.gpu_pool import Accepted, MachineGpus, Pool, Room

GPUS = {"m0": ("v100", 1), "m1": ("p100", 1), "m2": ("v100", 2), "m3": ("p100", 2)}
NAMES = sorted(GPUS)
TYPES = ("p100", "v100")
Asked = tuple[int, Accepted | None, str | None]
"""GPUs that a job needs, the machines that it names, and the type."""


class Machines(MachineGpus):
    """The machines above, all free."""

    def __init__(self) -> None:
        self._least = 1
        self._of_type = {kind: Accepted(name for name in NAMES if GPUS[name][0] == kind) for kind in TYPES}

    def on(self, accepted: Accepted) -> int:
        return sum(GPUS[name][1] for name in accepted)


def admitted(asked: Sequence[Asked]) -> list[Asked]:
    machines = Machines()
    room = Room(Pool(6, {kind: machines.on(Accepted(machines._of_type[kind])) for kind in TYPES}), machines)
    return [
        (gpus, names, kind)
        for number, (gpus, names, kind) in enumerate(asked)
        if room.admits(Job(f"j{number}", 0.0, gpus, 1.0, machines=names, gpu_type=kind))
    ]


def test_machines_that_two_jobs_share_count_once() -> None:
    first, second = (3, Accepted({"m0", "m2"}), None), (3, Accepted({"m1", "m2"}), None)
    assert admitted([first, second]) == [first]
    assert len(admitted([first, (1, Accepted({"m1", "m2"}), None)])) == 2


def test_a_job_that_joins_two_others_competes_with_both() -> None:
    first, second = (2, Accepted({"m0", "m1"}), None), (2, Accepted({"m2"}), None)
    assert admitted([first, second, (1, Accepted({"m1", "m2"}), None)]) == [first, second]
    assert len(admitted([first, second, (1, Accepted({"m1", "m3"}), None)])) == 3


def test_of_the_machines_that_a_job_names_only_those_of_its_type_count() -> None:
    assert admitted([(3, Accepted({"m2", "m3"}), "v100")]) == []
    assert len(admitted([(2, Accepted({"m2", "m3"}), "v100")])) == 1


@pytest.mark.parametrize("turned", [False, True])
def test_a_job_of_a_type_takes_from_machines_that_others_name(turned: bool) -> None:
    asked: list[Asked] = [(3, None, "v100"), (1, Accepted({"m2"}), None)]
    assert len(admitted(asked[::-1] if turned else asked)) == 1


@given(
    st.lists(
        st.tuples(
            st.integers(1, 3),
            st.none() | st.sets(st.sampled_from(NAMES), min_size=1).map(Accepted),
            st.sampled_from((None, *TYPES)),
        ),
        max_size=5,
    )
)
def test_what_is_admitted_asks_for_no_more_than_its_machines_have(asked: Sequence[Asked]) -> None:
    found, machines = admitted(asked), Machines()
    accepts = [
        Accepted(NAMES) if accepted is None else accepted
        for gpus, names, kind in found
        for accepted in [machines.accepted(Job("j", 0.0, gpus, 1.0, machines=names, gpu_type=kind))]
    ]
    assert sum(gpus for gpus, _, _ in found) <= machines.on(Accepted().union(*accepts))
