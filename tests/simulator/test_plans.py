"""Traces whose jobs say how they train."""

import csv
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from dally.commands import main
from dally.policies.registry import policy_names

CLUSTER = """
[[levels]]
name = "machine"
count = 2
gpus = 8
gpu_type = "h100"
fabric = { bandwidth_bps = 3.6e12, latency_s = 1e-6 }
uplink = { bandwidth_bps = 4e11, latency_s = 1e-6 }
[[levels]]
name = "rack"
count = 2
uplink = { bandwidth_bps = 8e10, latency_s = 2e-6 }
"""
TRACE = """\
job_id,submit_s,gpus,duration_s,model,batch,plan
a,0,16,1000,llama3-8b,64,"tp=8,dp=2,sequence=2048"
b,1,16,1000,llama3-8b,64,"tp=8,dp=2,sequence=2048"
"""


def simulate(folder: Path, *arguments: str, trace: str = TRACE) -> Result:
    (folder / "c.toml").write_text(CLUSTER)
    (folder / "t.csv").write_text(trace)
    files = (
        "--trace",
        str(folder / "t.csv"),
        "--cluster",
        str(folder / "c.toml"),
        "--out",
        str(folder / "out"),
    )
    return CliRunner().invoke(main, ["simulate", *files, *arguments])


def run_s(folder: Path, policy: str) -> dict[str, float]:
    with (folder / "out" / policy / "jobs.csv").open() as file:
        return {row["job_id"]: float(row["run_s"]) for row in csv.DictReader(file)}


PLANS = {
    "stages": "tp=8,pp=2,sequence=2048",
    "replicas": "tp=8,dp=2,sequence=2048",
    "shards": "dp=16,zero=3,sequence=2048",
}


def test_a_slower_placement_costs_what_the_plan_says(tmp_path: Path) -> None:
    """Each job has a machine in either rack, as others hold the rest of both."""
    rows = ["job_id,submit_s,gpus,duration_s,model,gpus_per_machine,batch,plan,machines"]
    rows += [f"left,0,8,9000,,8,,,{_machine(0)}", f"right,0,8,9000,,8,,,{_machine(2)}"]
    rows += [
        f'{name},{10 + place},16,100,llama3-8b,8,64,"{plan}",'
        for place, (name, plan) in enumerate(PLANS.items())
    ]
    done = simulate(tmp_path, "--policy", "fifo", trace="\n".join(rows) + "\n")
    assert done.exit_code == 0, done.output
    assert "costs by parallel plans: llama3-8b" in done.output
    took_s = run_s(tmp_path, "fifo")
    assert took_s["left"] == 9000
    assert 100 < took_s["stages"] < 120 < took_s["replicas"] < took_s["shards"]


def _machine(number: int) -> str:
    return f"machine{number + 1}"


def test_policies_wait_for_near_gpus_where_the_plan_says_that_it_pays(tmp_path: Path) -> None:
    """Stages lose a ninth over racks and decline that for a while; shards would lose far more, and wait."""
    starts = {}
    for name in ("stages", "shards"):
        rows = ["job_id,submit_s,gpus,duration_s,model,gpus_per_machine,batch,plan,machines,preemptible"]
        rows += [f"left,0,8,8000,,8,,,{_machine(0)},no", f"right,0,8,9000,,8,,,{_machine(2)},no"]
        rows += [f'job,10,16,9000,llama3-8b,8,64,"{PLANS[name]}",,no']
        folder = tmp_path / name
        folder.mkdir()
        done = simulate(folder, "--policy", "srsf-delay", trace="\n".join(rows) + "\n")
        assert done.exit_code == 0, done.output
        with (folder / "out" / "srsf-delay" / "jobs.csv").open() as file:
            starts[name] = {row["job_id"]: float(row["start_s"]) for row in csv.DictReader(file)}["job"]
    assert starts["stages"] < 8000 <= starts["shards"]


@pytest.mark.parametrize("policy", [name for name in policy_names() if name != "drl"])
def test_every_policy_runs_jobs_with_plans(tmp_path: Path, policy: str) -> None:
    rows = ["job_id,submit_s,gpus,duration_s,model,batch,plan", "plain,0,4,500,vgg11,,"]
    rows += [
        f'{name},{place},16,1000,llama3-8b,64,"{plan}"' for place, (name, plan) in enumerate(PLANS.items())
    ]
    rows += ['odd,5,8,100,unheard,8,"tp=8,sequence=9"']
    done = simulate(tmp_path, "--policy", policy, trace="\n".join(rows) + "\n")
    assert done.exit_code == 0, done.output
    assert "a plan does not count, of model unheard: model 'unheard' is not known" in done.output


def test_decisions_about_jobs_with_plans_replay(tmp_path: Path) -> None:
    assert simulate(tmp_path, "--policy", "srsf-delay", "--record").exit_code == 0
    done = CliRunner().invoke(main, ["replay", str(tmp_path / "out" / "srsf-delay")])
    assert done.exit_code == 0, done.output


def test_a_profile_error_needs_a_plan_where_there_are_no_profiles(tmp_path: Path) -> None:
    assert simulate(tmp_path, "--policy", "fifo", "--profile-error", "0.3").exit_code == 0
