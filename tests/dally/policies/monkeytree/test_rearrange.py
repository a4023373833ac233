"""New places for gangs: what they must keep to, and that two fragments a rack can always be had."""

from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dally.cluster.topology import Allocation, Topology
from dally.jobs.job import Job
from dally.policies.monkeytree.rack_fragments import RackFragments, split_racks
from dally.policies.monkeytree.rearrange import Rearranged, Rearrangement
from dally.profiles.costs import CostModel
from dally.state import ClusterState
from dally.testing.worlds import racks


class FragmentedCluster:
    """Running gangs on given places."""

    def __init__(self, topology: Topology) -> None:
        self.state = ClusterState(topology, CostModel(topology))
        self.fragments = RackFragments(topology)

    def run(
        self,
        name: str,
        place: Allocation,
        share: int | None = None,
        machines: frozenset[str] | None = None,
    ) -> None:
        self.ask(name, sum(gpus for _, gpus in place), share, machines)
        self.fragments.add(self.state.start(name, place, 0.0, 0.0, 1.0))

    def ask(
        self, name: str, gpus: int, share: int | None = None, machines: frozenset[str] | None = None
    ) -> None:
        self.state.submit(Job(name, 0.0, gpus, 100.0, gpus_per_machine=share, machines=machines), 0.0)

    def rearranged(
        self, bound: int, starts: dict[str, Allocation] | None = None, still: Sequence[str] = ()
    ) -> Rearranged | None:
        search = Rearrangement(
            self.state, self.fragments, starts or {}, bound, lambda job: job.job_id not in still
        )
        return search.best()


def scattered() -> FragmentedCluster:
    """Two gangs of four, each on one machine of the first rack and one outside."""
    cluster = FragmentedCluster(racks([[2, 2], [2, 2], [2, 2]]))
    cluster.run("a", ((0, 2), (2, 2)))
    cluster.run("b", ((1, 2), (4, 2)))
    return cluster


def test_without_too_many_nothing_is_asked() -> None:
    assert scattered().rearranged(bound=2) is None


def test_who_may_not_move_stays() -> None:
    found = scattered().rearranged(bound=1, still=["a"])
    assert found is not None
    assert found.places == {"b": ((4, 2), (5, 2))}
    assert (found.before, found.after) == ({6: 2}, {6: 1})
    assert scattered().rearranged(bound=1, still=["a", "b"]) is None


def test_a_start_takes_other_gpus_before_anybody_moves() -> None:
    cluster = FragmentedCluster(racks([[2, 2], [2, 2], [2, 2]]))
    cluster.run("a", ((0, 2), (2, 1)))
    cluster.ask("new", 4)
    found = cluster.rearranged(bound=1, starts={"new": ((1, 2), (4, 2))})
    assert found is not None
    assert found.places == {"new": ((4, 2), (5, 2))}


@pytest.mark.parametrize(("share", "place"), [(None, ((4, 2), (6, 1), (7, 1))), (2, None)])
def test_a_gang_with_a_share_of_each_machine_needs_whole_shares(
    share: int | None, place: Allocation | None
) -> None:
    """Two GPUs are free in the last rack, on two machines, and nowhere else."""
    cluster = FragmentedCluster(racks([[2, 2]] * 4))
    cluster.run("a", ((0, 2), (2, 2)))
    cluster.run("b", ((1, 2), (4, 2)), share)
    for machine, gpus in ((3, 2), (5, 2), (6, 1), (7, 1)):
        cluster.run(f"on{machine}", ((machine, gpus),))
    found = cluster.rearranged(bound=1, still=["a"])
    assert (found and found.places) == (place and {"b": place})


@pytest.mark.parametrize(("gpu_types", "place"), [(("x", "y"), None), (("x",), ((5, 2), (6, 2)))])
def test_a_gang_stays_on_its_gpu_type(gpu_types: Sequence[str], place: Allocation | None) -> None:
    """What is free beside it in the last rack is of the other type, if there are two."""
    cluster = FragmentedCluster(racks([[2, 2, 2], [2, 2], [2, 2]], gpu_types))
    cluster.run("a", ((0, 2), (3, 2)))
    cluster.run("b", ((2, 2), (5, 2)))
    cluster.run("c", ((1, 2),))
    found = cluster.rearranged(bound=1, still=["a"])
    assert (found and found.places) == (place and {"b": place})


@pytest.mark.parametrize(("accepted", "place"), [("r0m1 r2m0", None), ("r0m1 r2m0 r2m1", ((4, 2), (5, 2)))])
def test_a_gang_goes_only_to_machines_that_it_accepts(accepted: str, place: Allocation | None) -> None:
    cluster = FragmentedCluster(racks([[2, 2], [2, 2], [2, 2]]))
    cluster.run("a", ((0, 2), (2, 2)))
    cluster.run("b", ((1, 2), (4, 2)), machines=frozenset(accepted.split()))
    found = cluster.rearranged(bound=1, still=["a"])
    assert (found and found.places) == (place and {"b": place})


@pytest.mark.parametrize("still", [[], ["wide"]])
def test_a_few_racks_are_enough(still: Sequence[str]) -> None:
    """Of 20 racks eight are looked at; the wide gang is on all of them and stays a fragment in each."""
    cluster = FragmentedCluster(racks([[4, 4]] * 20))
    cluster.run("wide", tuple((machine, 2) for machine in range(0, 40, 2)))
    cluster.run("a", ((1, 3), (3, 1)))
    found = cluster.rearranged(bound=1, still=still)
    assert found is not None
    assert found.places == {"a": ((1, 4),)}


@st.composite
def crowds(draw: st.DrawFn) -> FragmentedCluster:
    """Racks of four machines of two GPUs, filled with gangs on whatever machines."""
    count = draw(st.integers(3, 6))
    cluster = FragmentedCluster(racks([[2] * 4] * count))
    machines = draw(st.permutations(range(4 * count)))
    number = 0
    while machines:
        size = draw(st.integers(1, 6))
        taken, machines = machines[:size], machines[size:]
        cluster.run(f"j{number}", tuple(sorted((machine, draw(st.integers(1, 2))) for machine in taken)))
        number += 1
    return cluster


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(cluster=crowds())
def test_every_rack_can_be_brought_to_two_fragments(cluster: FragmentedCluster) -> None:
    """The bound of the publication: gangs behind one another leave each rack two, one at either end."""
    found = cluster.rearranged(bound=2)
    places = {} if found is None else dict(found.places)
    jobs, free = cluster.state.jobs, cluster.state.free
    for name in places:
        free.give(jobs[name].allocation)
    for name, place in places.items():
        assert sum(gpus for _, gpus in place) == jobs[name].job.gpus
        free.take(place)
    after = Counter(
        rack
        for name, job in jobs.items()
        for rack in split_racks(cluster.fragments.shares(places.get(name, job.allocation)))
    )
    assert max(after.values(), default=0) <= 2
