"""Real GPUs for the sizes of a schedule."""

import pytest

from dally.cluster.topology import Allocation
from dally.jobs.job import Job, JobKind
from dally.policies.ones.placement import SchedulePlacement
from dally.profiles.costs import CostModel
from dally.state import ClusterState
from dally.testing.worlds import racks


@pytest.mark.parametrize(
    ("accepted", "places"),
    [("r0m0", {"e": ((0, 2),), "f": ((0, 2),)}), ("r0m1", {})],
)
def test_no_job_shrinks_for_one_that_does_not_accept_its_machine(
    accepted: str, places: dict[str, Allocation]
) -> None:
    cluster = racks([[4, 4]])
    state = ClusterState(cluster, CostModel(cluster))
    elastic = Job("e", 0, 2, 100, kind=JobKind.ELASTIC, min_gpus=1, max_gpus=4)
    for job, place in ((elastic, ((0, 4),)), (Job("wide", 0, 4, 100), ((1, 4),))):
        state.submit(job, 0.0)
        state.start(job.job_id, place, 0.0, 0.0, 1.0)
    state.submit(Job("f", 0, 2, 100, machines=frozenset({accepted})), 0.0)
    with state.free.trial():
        placed = SchedulePlacement(state, 10.0)
        placed.change([(state.jobs["e"], 2)])
        placed.start([(state.jobs["f"], 2)])
        placed.keep()
    assert placed.places == places
