"""The placement of a round: shares before what is left, wide gangs together, running jobs stay."""

from dally.cluster.topology import Allocation, Topology
from dally.jobs.job import Job
from dally.policies.common.rounds import handed_out
from dally.policies.gavel.round_credits import RoundCredits
from dally.policies.gavel.round_placement import Pools, RoundPlacement, RoundTable
from dally.profiles.costs import CostModel
from dally.state import ClusterState
from dally.testing.worlds import racks


def placed(
    state: ClusterState, shares: dict[str, list[float]], types: tuple[int, ...] = (0, 1), first: bool = True
) -> dict[str, Allocation]:
    """What jobs that are equally fast on all types get in one round."""
    pools = Pools(state.topology)
    credits = RoundCredits(len(pools.names)).renewed(shares)
    with handed_out(state) as free:
        jobs = [*state.jobs.values()]
        speeds = {each.job_id: [1.0] * len(pools.types) for each in jobs}
        placement = RoundPlacement(
            free, pools, RoundTable(jobs, speeds, free), credits, lambda place, pool: ""
        )
        placement.place_mixed(due=True)
        placement.place_by_type(types, first)
        placement.place_mixed(due=False)
        return {name: target.allocation for name, target in placement.targets.items()}


def world(*jobs: Job, topology: Topology | None = None) -> ClusterState:
    cluster = racks([[4, 4]], ("a", "b")) if topology is None else topology
    state = ClusterState(cluster, CostModel(cluster))
    for job in jobs:
        state.submit(job, 0.0)
    return state


def test_gpus_left_over_are_for_jobs_whose_share_is_not_elsewhere() -> None:
    state = world(Job("x", 0, 1, 100))
    assert placed(state, {"x": [0.0, 1.0, 0.0]}) == {"x": ((1, 1),)}
    assert placed(state, {"x": [0.0, 1.0, 0.0]}, first=False) == {"x": ((0, 1),)}


def test_a_job_without_any_share_gets_what_is_left() -> None:
    state = world(Job("x", 0, 4, 100), Job("y", 0, 4, 100), Job("z", 0, 1, 100))
    shares = {"x": [1.0, 0.0, 0.0], "y": [0.0, 0.0, 0.0], "z": [0.0, 0.0, 0.0]}
    assert placed(state, shares) == {"x": ((0, 4),), "y": ((1, 4),)}


def test_a_job_that_is_to_run_where_it_runs_keeps_its_gpus() -> None:
    cluster = racks([[2, 2]])
    state = world(Job("x", 0, 1, 100), Job("y", 0, 1, 100), topology=cluster)
    state.start("x", ((1, 1),), 0.0, 0.0, 1.0)
    assert placed(state, {}, types=(0,)) == {"x": ((1, 1),), "y": ((1, 1),)}


def test_if_jobs_that_stay_leave_no_place_for_a_gang_it_is_placed_first() -> None:
    """Each machine has one GPU taken; a gang of four on one machine needs one of them whole."""
    cluster = racks([[4, 4]])
    gang = Job("gang", 0, 4, 100, gpus_per_machine=4)
    state = world(Job("x", 0, 1, 100), Job("y", 0, 1, 100), gang, topology=cluster)
    state.start("x", ((0, 1),), 0.0, 0.0, 1.0)
    state.start("y", ((1, 1),), 0.0, 0.0, 1.0)
    assert placed(state, {}, types=(0,)) == {"gang": ((0, 4),), "x": ((1, 1),), "y": ((1, 1),)}


def test_a_gang_wider_than_any_type_goes_first_when_it_is_due_and_else_last() -> None:
    wide, small = Job("wide", 0, 6, 100), Job("small", 0, 3, 100)
    state = world(small, wide)
    assert "small" not in placed(state, {"small": [1.0, 0.0, 0.0], "wide": [0.0, 0.0, 0.6]})
    assert "wide" not in placed(state, {"small": [1.0, 0.0, 0.0], "wide": [0.0, 0.0, 0.4]})


def test_jobs_that_accept_the_same_machine_only_leave_the_others_to_the_rest() -> None:
    narrow = [Job(f"n{number}", number, 4, 100, machines=frozenset({"r0m0"})) for number in range(3)]
    state = world(*narrow, Job("x", 3, 4, 100), topology=racks([[4, 4, 4]]))
    shares = {"n0": [0.9, 0.0], "n1": [0.8, 0.0], "n2": [0.7, 0.0], "x": [0.1, 0.0]}
    assert placed(state, shares, types=(0,)) == {"n0": ((0, 4),), "x": ((1, 4),)}
