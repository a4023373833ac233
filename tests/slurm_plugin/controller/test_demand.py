"""What Slurm's options come to, as a job that policies understand."""

from typing import Any

import pytest

from dally.errors import InputError
from dally.jobs.job import Job, JobKind
from slurm_plugin.client.slurm import SlurmJob, SlurmNode, State
from slurm_plugin.controller.job_requests import (
    UNLIMITED_S,
    UnfitError,
    asked_size,
    demand,
    min_cpus,
    planned,
)
from slurm_plugin.controller.managed_job import ManagedJob, PendingPhase
from slurm_plugin.request import Request


def slurm_job(**fields: Any) -> SlurmJob:
    return SlurmJob("7", 5.0, State.PENDING, **fields)


@pytest.mark.parametrize(
    ("fields", "gpus", "each", "gpu_type"),
    [
        ({"tres_per_node": "gres:gpu:8"}, 8, 8, None),
        ({"tres_per_node": "gres:gpu:h100:8", "min_nodes": 2}, 16, 8, "h100"),
        ({"tres_per_node": "gpu:h100=2,license:1"}, 2, 2, "h100"),
        ({"tres_per_node": "gres/gpu"}, 1, 1, None),
        ({"tres_per_node": "gres:gpu:1g.5gb:2"}, 2, 2, "1g.5gb"),
        ({"tres_per_job": "gres:gpu:6"}, 6, None, None),
        ({"tres_per_job": "gres:gpu:6", "min_nodes": 2}, 6, 3, None),
        ({"tres_per_job": "gres:gpu:7", "min_nodes": 2}, 7, None, None),
        ({"tres_per_task": "gres:gpu:1", "tasks": 8}, 8, None, None),
        ({"tres_per_task": "gres:gpu:1", "tasks": 8, "tasks_per_node": 4}, 8, 4, None),
        ({"tres_per_task": "gres:gpu:2", "tasks": 4, "min_nodes": 2}, 8, 4, None),
    ],
)
def test_gpus_in_all_and_on_each_machine(
    fields: dict[str, Any], gpus: int, each: int | None, gpu_type: str | None
) -> None:
    job = demand(slurm_job(**fields), Request())
    assert (job.gpus, job.gpus_per_machine, job.gpu_type) == (gpus, each, gpu_type)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({}, "asks for no GPUs"),
        ({"tres_per_node": "gres:gpu:0"}, "asks for no GPUs"),
        ({"tres_per_node": "gres:gpu:a:1,gres:gpu:b:1"}, "several kinds"),
        ({"tres_per_node": "gres:gpu:8", "exclusive": True}, "--exclusive needs 1 node"),
        ({"tres_per_node": "gres:gpu:8", "switches": 1}, "--switches"),
        ({"tres_per_node": "gres:gpu:8", "segment": 2}, "--segment"),
        ({"tres_per_job": "gres:gpu:8", "segment": 1}, "--segment"),
        ({"tres_per_node": "gres:gpu:8", "heterogeneous": True}, "heterogeneous"),
        ({"tres_per_socket": "gres:gpu:1"}, "--gpus-per-socket"),
        ({"tres_per_task": "gres:gpu:1", "tasks": 7, "tasks_per_node": 4}, "cannot come out even"),
    ],
)
def test_what_dally_cannot_place_is_refused_with_the_reason(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(UnfitError, match=words):
        demand(slurm_job(**fields), Request())


@pytest.mark.parametrize(
    ("nodes", "segment", "found"),
    [(4, 2, 2), (4, 4, 4), (4, 1, None), (2, 16, 2), (1, 16, None), (4, 0, None)],
)
def test_the_nodes_of_a_job_come_in_its_segments(nodes: int, segment: int, found: int | None) -> None:
    job = slurm_job(tres_per_node="gres:gpu:8", min_nodes=nodes, segment=segment)
    asked = demand(job, Request(), segments=True)
    assert (asked.segment, asked.gang.segment, asked.gang.units) == (found, found, nodes)


@pytest.mark.parametrize(
    ("fields", "request_", "words"),
    [
        (
            {"tres_per_node": "gpu:8", "min_nodes": 6, "segment": 4},
            Request(),
            "--segment=4 does not divide its 6",
        ),
        ({"tres_per_job": "gpu:8", "min_nodes": 3, "segment": 3}, Request(), "may share unevenly"),
        ({"tres_per_node": "gpu:8", "min_nodes": 2, "segment": 2}, Request(max_gpus=32), "it is elastic"),
    ],
)
def test_segments_that_dally_cannot_keep_are_refused_with_the_reason(
    fields: dict[str, Any], request_: Request, words: str
) -> None:
    with pytest.raises(InputError, match=words):
        demand(slurm_job(**fields), request_, segments=True)


def node(name: str, gpus: int, *partitions: str) -> SlurmNode:
    return SlurmNode(name, True, "idle", gpus, 0, partitions)


def test_an_exclusive_job_takes_whole_nodes_though_it_names_no_gpus() -> None:
    job = slurm_job(exclusive=True, min_nodes=2, partition="gpu")
    nodes = [node("n1", 8, "gpu"), node("n2", 8, "gpu"), node("n3", 4, "gpu"), node("c1", 0, "cpu")]
    asked = demand(job, Request(), nodes)
    assert (asked.gpus, asked.gpus_per_machine) == (16, 8)


def test_an_exclusive_job_asks_for_no_gpus_where_it_may_run_without() -> None:
    nodes = [node("n1", 8, "gpu", "all"), node("c1", 0, "all")]
    for fields in ({"partition": "all"}, {"partition": "gpu", "tres_per_node": "gres:gpu:0"}):
        with pytest.raises(UnfitError, match="asks for no GPUs"):
            demand(slurm_job(exclusive=True, **fields), Request(), nodes)


def test_only_a_job_with_a_signal_that_may_be_requeued_gives_way() -> None:
    job = slurm_job(tres_per_node="gpu:1")
    assert demand(job, Request(signal="USR1")).preemptible
    assert not demand(job, Request()).preemptible
    assert not demand(slurm_job(tres_per_node="gpu:1", requeue=False), Request(signal="USR1")).preemptible


def test_a_plan_goes_with_the_job_and_takes_its_replicas_from_the_gpus() -> None:
    request = Request(model="llama3-70b", plan="tp=8,pp=2,sequence=4096", batch=64)
    job = demand(slurm_job(tres_per_node="gpu:8", min_nodes=8), request)
    assert (str(job.plan), job.batch) == ("tp=8,pp=2,dp=4,micro=1,sequence=4096", 64)
    assert planned(job, request) == (job, "")


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (
            {"plan": "tp=8,dp=2,sequence=9"},
            "plan tp=8,dp=2,micro=1,sequence=9 has 16 GPUs, must have the job's 8",
        ),
        ({"batch": 0}, "has a plan and no batch"),
        ({"plan": "sequence=9,zero=9"}, "plan: zero is 9"),
        ({"max_gpus": 16}, "has a plan and is elastic"),
    ],
)
def test_a_plan_that_does_not_fit_is_left_out_with_the_reason(said: dict[str, Any], why: str) -> None:
    request = Request(**{"plan": "tp=8,sequence=9", "batch": 8, **said})
    job = demand(slurm_job(tres_per_task="gpu:1", tasks=8), request)
    assert (job.plan, job.batch) == (None, None)
    assert why in planned(job, request)[1]


def test_the_time_limit_stands_for_the_duration() -> None:
    assert demand(slurm_job(tres_per_node="gpu:1", time_limit_s=60.0), Request()).duration_s == 60.0
    assert demand(slurm_job(tres_per_node="gpu:1"), Request()).duration_s == UNLIMITED_S


def test_copies_make_it_forked_with_a_copy_on_a_node() -> None:
    job = demand(slurm_job(tres_per_node="gpu:v100:2"), Request(max_copies=4))
    assert (job.kind, job.gpus, job.max_copies, job.gpu_type) == (JobKind.FORKED, 2, 4, "v100")
    assert job.gang.per_machine == 2
    for fields in ({"tres_per_job": "gpu:4"}, {"tres_per_job": "gpu:2", "tres_per_node": "gpu:2"}):
        with pytest.raises(UnfitError, match="its copies' GPUs are not counted"):
            demand(slurm_job(**fields), Request(max_copies=4))


def test_a_range_of_gpus_makes_it_elastic() -> None:
    by_node = slurm_job(tres_per_node="gpu:2", min_nodes=2)
    job = demand(by_node, Request(min_gpus=2, max_gpus=8))
    assert (job.kind, job.min_gpus, job.gpus, job.max_gpus) == (JobKind.ELASTIC, 2, 4, 8)
    with pytest.raises(UnfitError, match="range 6 to 8"):
        demand(by_node, Request(min_gpus=6, max_gpus=8))


def test_a_job_that_counts_its_gpus_by_task_has_a_range_too() -> None:
    job = demand(slurm_job(tres_per_task="gpu:1", tasks=2), Request(max_gpus=8))
    assert (job.kind, job.min_gpus, job.gpus, job.max_gpus) == (JobKind.ELASTIC, 2, 2, 8)


def test_a_job_that_counts_its_gpus_altogether_has_none() -> None:
    job = demand(slurm_job(tres_per_job="gpu:4"), Request(min_gpus=2, max_gpus=8))
    assert (job.kind, job.gpus) == (JobKind.RIGID, 4)


FOUR_NODES = [SlurmNode(f"n{number}", True, "idle", 4, 0, ("gpu",), 64_000, cpus=16) for number in range(4)]


@pytest.mark.parametrize(
    ("fields", "gpus", "each"),
    [
        ({"cpus_per_gpu": 4}, 8, None),
        ({"cpus_per_gpu": 5}, 8, 2),
        ({"cpus_per_gpu": 5}, 6, 3),
        ({"cpus_per_gpu": 5}, 3, None),
        ({"memory_per_gpu_mb": 40_000}, 2, 1),
        ({"cpus_per_gpu": 17}, 2, None),  # nowhere: it waits, and says so
        ({"tasks": 4, "cpus_per_task": 8}, 4, 2),
    ],
)
def test_a_node_gives_no_more_gpus_than_it_has_cpus_and_memory_for(
    fields: dict[str, Any], gpus: int, each: int | None
) -> None:
    job = slurm_job(tres_per_job=f"gpu:{gpus}", partition="gpu", **fields)
    assert demand(job, Request(), FOUR_NODES).gpus_per_machine == each


def test_gpus_that_cannot_be_shared_evenly_by_nodes_with_too_few_cpus_are_refused() -> None:
    with pytest.raises(UnfitError, match="no even share of 7 GPUs"):
        demand(slurm_job(tres_per_job="gpu:7", partition="gpu", cpus_per_gpu=5), Request(), FOUR_NODES)


def test_a_job_of_gpus_as_a_total_asks_for_its_own_tasks_whatever_slurm_made_of_them() -> None:
    shown = slurm_job(tres_per_job="gres:gpu:4", min_nodes=3, tasks=3, cpus_per_task=6)
    managed = ManagedJob(Job("7", 5.0, 4, 100.0), Request(), PendingPhase(0.0, ""), min_nodes=1, tasks=1)
    assert (asked_size(managed, shown), min_cpus(managed, shown, 1)) == ((3, 3), None)
    managed.placed_once = True
    assert asked_size(managed, shown) == (1, 1)
    assert [min_cpus(managed, shown, nodes) for nodes in (1, 3)] == [6, 18]
