"""Counting fragments in trees of any depth."""

from dally.cluster.topology import Allocation, Topology
from dally.jobs.job import Job
from dally.policies.monkeytree.rack_fragments import RackFragments
from dally.profiles.costs import CostModel
from dally.state import ClusterState, JobState
from dally.testing.worlds import racks


def running(state: ClusterState, name: str, place: Allocation) -> JobState:
    state.submit(Job(name, 0.0, sum(gpus for _, gpus in place), 100.0), 0.0)
    return state.start(name, place, 0.0, 0.0, 1.0)


def counted(topology: Topology, *places: Allocation) -> dict[str, int]:
    """Fragments by rack of gangs on these places."""
    state, fragments = ClusterState(topology, CostModel(topology)), RackFragments(topology)
    for number, place in enumerate(places):
        fragments.add(running(state, f"j{number}", place))
    return {topology.domains[rack].name: count for rack, count in fragments.counts.items() if count}


def test_only_gangs_over_several_racks_have_fragments() -> None:
    one_machine, one_rack, two_racks = ((0, 1),), ((0, 1), (1, 1)), ((1, 1), (2, 1))
    assert counted(racks([[4, 4], [4, 4]]), one_machine, one_rack) == {}
    assert counted(racks([[4, 4], [4, 4]]), one_machine, one_rack, two_racks) == {"r0": 1, "r1": 1}


def test_racks_below_pods_count_wherever_the_gang_goes_on() -> None:
    assert counted(racks([[4], [4], [4], [4]], depth=4), ((0, 1), (2, 1)), ((0, 1), (1, 1))) == {
        "r0": 2,
        "r1": 1,
        "r2": 1,
    }


def test_machines_on_one_switch_share_no_uplink() -> None:
    assert counted(racks([[4, 4], [4, 4]], depth=2), ((0, 1), (2, 1))) == {}


def test_who_is_gone_does_not_count() -> None:
    topology = racks([[4], [4]])
    state, fragments = ClusterState(topology, CostModel(topology)), RackFragments(topology)
    job = running(state, "a", ((0, 1), (1, 1)))
    first = fragments.racks[0]
    fragments.add(job)
    assert fragments.jobs([first]) == [job]
    state.stop("a", 1.0, 0.0)
    fragments.remove(job)
    assert not fragments.jobs([first])
    assert not fragments.counts[first]
