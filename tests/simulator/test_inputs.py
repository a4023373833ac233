"""What a simulation is told to use instead of what its inputs say."""

from dataclasses import replace
from pathlib import Path

import pytest

from dally.errors import CapacityError, InputError
from dally.policies.registry import parse_policy
from dally.profiles.costs import CostModel
from simulator.inputs import Inputs, load_scenario
from simulator.scenario import simulate_jobs


def test_restarts_cost_what_is_asked_for_whatever_the_gang() -> None:
    for profiles in ("gavel", None):
        given = Inputs("gavel:jobs=50", "hadar-60", profiles=profiles, restart_s=10)
        scenario = load_scenario(given)
        costs = CostModel(scenario.topology, scenario.profiles, restart_s=scenario.restart_s)
        assert {costs.restart_s(job) for job in scenario.jobs} == {10.0}
        assert scenario.facts["restart_s"] == 10


def test_restarts_of_jobs_without_a_profile_take_as_long_as_is_asked_for() -> None:
    given = Inputs("venus-like:jobs=30,load=1.5,cluster_gpus=64", "demo", restart_s=500)
    run, records = simulate_jobs(load_scenario(given), parse_policy("tiresias"))
    once = [record.restart_s for record in records if record.preemptions == 1]
    assert run.complete
    assert once
    assert once == pytest.approx([500.0] * len(once))


def test_a_restart_cannot_take_less_than_no_time() -> None:
    with pytest.raises(InputError, match="restart_s is -1, must be 0 or more"):
        load_scenario(Inputs("gavel:jobs=5", "hadar-60", profiles="gavel", restart_s=-1))


def test_a_load_scales_arrivals_until_jobs_ask_for_that_share_of_the_gpu_time(tmp_path: Path) -> None:
    """5 + 8 GPUs for 100 s, the last submitted after 50 s, are 1,300 GPU-seconds on 64 GPUs x 50 s."""
    trace = tmp_path / "jobs.csv"
    trace.write_text("job_id,submit_s,gpus,duration_s\na,10,5,100\nb,60,8,100\n")
    scenario = load_scenario(Inputs(str(trace), "demo", load=0.5))
    assert scenario.jobs[1].submit_s == pytest.approx(1300 / (0.5 * 64))
    assert scenario.facts["arrival_scale"] == pytest.approx(1300 / (0.5 * 64) / 50)
    assert scenario.facts["load"] == 0.5


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (Inputs("dally-poisson", "demo", load=0.9, arrival_scale=0.5), "exclude each other"),
        (Inputs("dally-poisson", "demo", load=0.0), "load is 0, must be a positive number"),
        (Inputs("dally-batch", "demo", load=0.9), "submitted at different times"),
    ],
)
def test_a_load_that_cannot_be_is_refused(given: Inputs, message: str) -> None:
    with pytest.raises(InputError, match=message):
        load_scenario(given)


def test_a_group_of_a_trace_is_a_workload_of_its_own(tmp_path: Path) -> None:
    trace = tmp_path / "jobs.csv"
    trace.write_text(
        "job_id,submit_s,gpus,duration_s,group\na,10,1,5,x\nb,60,1,5,y\nc,70,1,5,y\nd,95,1,5,y\n"
    )
    scenario = load_scenario(Inputs(str(trace), "demo", group="y", end_s=90))
    assert [(job.job_id, job.submit_s) for job in scenario.jobs] == [("b", 0), ("c", 10)]
    assert scenario.facts["trace"]["group"] == "y"
    with pytest.raises(InputError, match="no job is of group 'z'; groups: x, y"):
        load_scenario(Inputs(str(trace), "demo", group="z"))


TWO_PARTITIONS = """
NodeName=a[1-2] CPUs=8 Gres=gpu:4
NodeName=b[1-2] CPUs=8 Gres=gpu:4
NodeName=c1 CPUs=8
PartitionName=east Nodes=a[1-2] Default=YES
PartitionName=west Nodes=b[1-2]
PartitionName=all Nodes=ALL
PartitionName=cpu Nodes=c1
"""


def partitioned(folder: Path, *rows: str) -> Inputs:
    """Jobs of 100 s, `job_id,submit_s,gpus,partition`, on a cluster of two partitions of 8 GPUs."""
    (folder / "slurm.conf").write_text(TWO_PARTITIONS)
    trace = folder / "jobs.csv"
    trace.write_text(
        "\n".join(["job_id,submit_s,gpus,partition,duration_s", *(f"{row},100" for row in rows)])
    )
    return Inputs(str(trace), str(folder))


@pytest.mark.parametrize("policy", ["fifo", "srtf", "slurm"])
def test_a_job_runs_on_the_machines_of_its_partition(tmp_path: Path, policy: str) -> None:
    """The second waits for the first beside idle GPUs of the other partition; the last may have those."""
    given = partitioned(tmp_path, "1,0,8,east", "2,0,4,east", "3,0,4,west", "4,40,4,all")
    scenario = load_scenario(given)
    assert scenario.topology.partitions.keys() == {"east", "west", "all"}
    _, records = simulate_jobs(scenario, parse_policy(policy))
    starts = {record.job_id: record.start_s or 0.0 for record in records}
    assert (starts["1"], starts["2"]) == (0, 100)
    assert starts["3"] <= 30  # at a pass of Slurm's backfill
    assert starts["4"] <= 60


def test_a_job_of_a_partition_that_the_cluster_lacks_is_refused_or_left_out(tmp_path: Path) -> None:
    given = partitioned(tmp_path, "1,0,8,east", "2,0,4,cpu", "3,0,12,west")
    with pytest.raises(
        CapacityError, match="job 2: partition 'cpu' has no machine of the cluster; known: all"
    ):
        load_scenario(given)
    skipping = load_scenario(replace(given, skip_bad=True))
    assert [job.job_id for job in skipping.jobs] == ["1"]
    assert [job.job_id for job in skipping.too_large] == ["2", "3"]


def test_where_a_cluster_knows_no_partitions_jobs_run_anywhere(tmp_path: Path) -> None:
    given = partitioned(tmp_path, "1,0,8,east")
    [job] = load_scenario(replace(given, cluster="demo")).jobs
    assert (job.partition, job.machines) == ("east", None)


def test_a_job_that_names_machines_of_another_partition_is_refused_or_left_out(tmp_path: Path) -> None:
    given = partitioned(tmp_path, "1,0,8,east")
    Path(given.trace).write_text(
        'job_id,submit_s,gpus,duration_s,partition,machines\n1,0,4,9,east,b1\n2,0,4,9,east,"a1,b1"\n'
    )
    with pytest.raises(CapacityError, match="job 1: partition 'east' has none of the machines that it names"):
        load_scenario(given)
    [job] = load_scenario(replace(given, skip_bad=True)).jobs
    assert job.machines == frozenset({"a1"})
