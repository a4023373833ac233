"""The nodes that a waiting job asks for, where Slurm shows an estimate."""

import pytest

from slurm_plugin.client.fewest_nodes import with_fewest_nodes
from slurm_plugin.client.slurm import SlurmJob, SlurmNode, State

NODES = [
    SlurmNode("n1", True, "idle", 8, 0, ("gpu", "small"), cpus=16),
    SlurmNode("n2", True, "idle", 8, 0, ("gpu",), cpus=64),
]


def shown(min_nodes: int, tasks: int, cpus: int, **more: object) -> int:
    """The nodes of a job of which Slurm shows so many."""
    values = {"partition": "gpu", "min_nodes": min_nodes, "tasks": tasks, "cpus_per_task": cpus, **more}
    job = SlurmJob("1", 0.0, State.PENDING, **values)  # type: ignore[arg-type]
    return with_fewest_nodes([job], NODES)[0].min_nodes


@pytest.mark.parametrize(
    ("tasks", "cpus", "nodes"), [(1, 2, 1), (1, 64, 1), (2, 32, 1), (3, 32, 2), (1, 65, 2), (2, 1, 2)]
)
def test_a_job_needs_no_second_node_where_the_largest_holds_its_tasks(
    tasks: int, cpus: int, nodes: int
) -> None:
    assert shown(2, tasks, cpus) == nodes


def test_only_nodes_of_its_partitions_count() -> None:
    assert [shown(2, 1, 32, partition=names) for names in ("small", "small,gpu", "other")] == [2, 1, 2]


def test_what_its_user_says_of_nodes_stays() -> None:
    assert shown(2, 1, 4, max_nodes=2) == 2
    assert shown(2, 1, 4, tasks_per_node=1) == 2
    assert shown(3, 2, 4, required_nodes=("n1", "n2")) == 2
    assert shown(5, 4, 4) == 5


def test_a_job_asks_for_as_many_nodes_as_hold_its_tasks() -> None:
    """Slurm 26.05 counts CPUs in all: nine tasks of eight CPUs have those of four and a half nodes of 16."""
    assert shown(4, 9, 8, partition="small", max_nodes=9) == 5
    assert shown(1, 3, 8, partition="small", max_nodes=3) == 2
    assert shown(1, 3, 8, max_nodes=3) == 1
    assert shown(1, 3, 8, partition="small", max_nodes=1) == 1


def test_a_running_job_has_the_nodes_that_slurm_shows() -> None:
    job = SlurmJob("1", 0.0, State.RUNNING, partition="gpu", min_nodes=2, cpus_per_task=4)
    assert with_fewest_nodes([job], NODES) == (job,)
