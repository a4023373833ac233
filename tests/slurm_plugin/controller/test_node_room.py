"""Which nodes a job may use: by constraint, exclusion and partition, and by what CPUs and memory are left."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dally.errors import InputError
from dally.policies.registry import policy_names
from dally.testing.worlds import racks
from slurm_plugin.client.slurm import SlurmJob, SlurmNode, State
from slurm_plugin.constraint import satisfies
from slurm_plugin.controller.journal import read_events
from slurm_plugin.controller.managed_job import JobPhase
from slurm_plugin.controller.node_room import NodeResources, NodeRoom, usable_nodes
from tests.slurm_plugin.worlds import FakeSite

PARTITIONS = {"r0m0": ("old",), "r0m1": ("old", "both"), "r1m0": ("new", "both"), "r1m1": ("new",)}


@pytest.mark.parametrize(
    ("constraint", "met"),
    [
        ("a100", True),
        ("h100", False),
        ("a100&ib", True),
        ("a100,roce", False),
        ("h100|ib", True),
        ("h100|a100&roce", False),
        ("h100|(a100&ib)", True),
        ("(h100|a100)&(ib|roce)", True),
        (" a100 & ib ", True),
    ],
)
def test_a_constraint_is_met_by_the_features_of_a_node(constraint: str, met: bool) -> None:
    assert satisfies(constraint, frozenset({"a100", "ib"})) is met


@pytest.mark.parametrize("constraint", ["[rack1|rack2]*2", "ib*2", "a100&", "(a100", "a100)", "|", "()", ""])
def test_a_constraint_on_several_nodes_together_or_without_sense_is_refused(constraint: str) -> None:
    with pytest.raises(InputError, match="--constraint"):
        satisfies(constraint, frozenset({"a100"}))


@pytest.mark.parametrize("policy", policy_names())
def test_one_controller_serves_partitions_over_different_nodes(tmp_path: Path, policy: str) -> None:
    ours = ("old", "new", "both")
    site = FakeSite(tmp_path, racks([[4, 4], [4, 4]]), policy, partitions=PARTITIONS, ours=ours)
    old, new = {"r0m0", "r0m1"}, {"r1m0", "r1m1"}
    asked: list[tuple[dict[str, Any], list[set[str]]]] = [
        ({"partition": "old", "nodes": 2, "gpus_per_node": 4}, [old]),
        ({"partition": "new", "gpus_per_node": 4}, [new]),
        ({"partition": "both", "gpus_per_node": 2}, [{"r0m1", "r1m0"}]),
        ({"partition": "old,new", "gpus_per_node": 2, "nodes": 2}, [old, new]),
        ({"partition": "new", "gpus": 6}, [new]),
        ({"partition": "old,new", "gpus": 3}, [old, new]),
    ]
    jobs = {site.submit(run_time_s=50.0, time_limit_s=60.0, **each): nodes for each, nodes in asked}
    too_large = site.submit(partition="both", nodes=3, gpus_per_node=1)
    site.live(3000, poll_s=30.0)
    starts = [each for each in read_events(tmp_path) if each["event"] == "start"]
    assert {each["job"] for each in starts} == jobs.keys()
    for each in starts:
        assert any(each["gpus"].keys() <= nodes for nodes in jobs[each["job"]])
    assert "too few nodes of its partition" in site.managed(too_large).reason
    assert not site.events("start_failed")


def test_a_constraint_that_relates_nodes_to_each_other_is_slurms(tmp_path: Path) -> None:
    site = FakeSite(tmp_path, racks([[4, 4]]))
    related = site.submit(gpus_per_node=1, constraint="ib*2")
    other = site.submit(gpus_per_node=1)
    site.live(20)
    assert site.managed(related).phase.name is JobPhase.RELEASED
    assert "relates the nodes of a job to each other" in site.managed(related).reason
    assert site.states()[other] == "RUNNING"


def test_a_job_whose_cpus_our_own_jobs_have_is_explained_once(tmp_path: Path) -> None:
    site = FakeSite(tmp_path, racks([[4, 4, 4]]), cpus=8)
    for _ in range(3):
        site.submit(gpus_per_node=1, cpus=6, run_time_s=200.0)
    site.live(10)
    waits = [
        site.submit(gpus=2, cpus=3, run_time_s=10.0),
        site.submit(gpus_per_node=2, cpus=3, run_time_s=10.0),
    ]
    site.live(190)
    for job in waits:
        assert site.managed(job).phase.name is JobPhase.INELIGIBLE
        assert len(read_events(tmp_path, job)) < 6
    site.live(260)
    assert {site.states()[job] for job in waits} == {"COMPLETED"}
    assert not site.events("start_failed")


def test_gpus_of_which_others_have_parts_are_left_alone(tmp_path: Path) -> None:
    site = FakeSite(tmp_path, racks([[4, 4]]))
    site.slurm.shared.update(r0m0=1)
    jobs = [site.submit(gpus_per_node=4, run_time_s=1000.0) for _ in range(2)]
    site.live(200)
    assert sorted(site.states()[job] for job in jobs) == ["PENDING", "RUNNING"]
    assert not site.events("start_failed", "gpus_miscounted")


def shown(name: str, used_mb: float) -> SlurmNode:
    return SlurmNode(name, True, "mixed", 4, 0, ("gpu",), 64_000, cpus=16, memory_used_mb=used_mb)


@pytest.mark.parametrize(
    ("asks", "takes"),
    [
        ({}, NodeResources(2, 64_000)),  # as with --mem=0
        ({"memory_per_node_mb": 1000}, NodeResources(2, 1000)),
        ({"memory_per_cpu_mb": 1000}, NodeResources(2, 2000)),
        ({"memory_per_gpu_mb": 1000, "cpus_per_gpu": 3}, NodeResources(6, 2000)),
        ({"cpus_per_task": 4, "tasks": 4, "memory_per_node_mb": 1}, NodeResources(8, 1)),
        ({"cpus_per_node": 5, "memory_per_node_mb": 1}, NodeResources(5, 1)),
        ({"exclusive": True, "memory_per_node_mb": 1}, NodeResources(16, 1)),
    ],
)
def test_what_a_job_takes_of_a_node_on_which_it_has_half_its_gpus(
    asks: dict[str, Any], takes: NodeResources
) -> None:
    job = SlurmJob("7", 0.0, State.PENDING, **{"tasks": 4, **asks})
    assert NodeRoom([shown("n1", 10.0)]).needed(job, 4, 2, "n1") == takes


def test_a_job_uses_nodes_with_the_temporary_disk_that_it_asks_for() -> None:
    small, large = (replace(shown(name, 10.0), tmp_disk_mb=mb) for name, mb in (("n1", 400), ("n2", 500)))
    job = SlurmJob("7", 0.0, State.PENDING, partition="gpu", memory_per_cpu_mb=1, tmp_disk_mb=500)
    assert usable_nodes(job, [small, large]) == [large]
    assert len(usable_nodes(replace(job, tmp_disk_mb=0), [small, large])) == 2


@pytest.mark.parametrize(
    ("asks", "cpus"),
    [
        ({"cpus_per_task": 5}, 6),
        ({"cpus_per_task": 3, "tasks": 3}, 10),
        ({"cpus_per_task": 6}, 6),
        ({}, 2),
    ],
)
def test_a_job_has_whole_cores_as_tried_on_22_05(asks: dict[str, Any], cpus: int) -> None:
    job = SlurmJob("7", 0.0, State.PENDING, memory_per_cpu_mb=100, **asks)
    node = replace(shown("n1", 10.0), threads_per_core=2)
    assert NodeRoom([node]).needed(job, 1, 1, "n1") == NodeResources(cpus, 100 * cpus)


def test_where_slurm_counts_no_memory_a_job_without_a_word_takes_none() -> None:
    job = SlurmJob("7", 0.0, State.PENDING)
    assert NodeRoom([shown("n1", 0.0)]).needed(job, 1, 1, "n1") == NodeResources(1, 0)
