"""`dally testbed compare` as a user meets it."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from dally.commands import main
from dally.jobs.job import Job
from dally.runs.records import read_run
from tests.testbed.fidelity.live_folders import Change, change_job, live_folder

JOBS = tuple(
    Job(f"j{number}", submit_s=20.0 * number, gpus=gpus, duration_s=60.0 + 30 * number, model=model)
    for number, (gpus, model) in enumerate([(2, "resnet50"), (4, "vgg11"), (8, "resnet18"), (4, "alexnet")])
)


def compare(*arguments: str | Path) -> Result:
    return CliRunner().invoke(main, ["testbed", "compare", *map(str, arguments)])


@pytest.fixture
def live(tmp_path: Path) -> Path:
    return live_folder(tmp_path / "out" / "fifo", JOBS, Change(wait_s=2.0, step_factor=1.05))


def test_one_run_gets_a_report_in_words_numbers_and_a_figure(live: Path) -> None:
    result = compare(live)
    assert result.exit_code == 0, result.output
    assert "fifo: 4 of 4 jobs compared" in result.output
    assert "The differences come from step times" in result.output
    assert "Chance alone: 20 simulations whose running times vary by " in result.output
    assert (live / "compare.png").read_bytes().startswith(b"\x89PNG")
    data = json.loads((live / "compare.json").read_text())
    assert data["jobs_compared"] == 4
    assert {job["job"]: round(job["parts"]["waiting_s"], 2) for job in data["jobs"]}["j0"] == 2.0
    assert "its steps took" in (live / "compare.md").read_text()
    assert read_run(live / "simulated")["kind"] == "simulation"


def test_the_report_tells_how_far_off_the_simulator_was(live: Path) -> None:
    compare(live)
    data = json.loads((live / "compare.json").read_text())
    errors = [abs(job["simulated"]["jct_s"] / job["real"]["jct_s"] - 1) for job in data["jobs"]]
    assert data["mean_absolute_job_error"] == pytest.approx(sum(errors) / 4)
    assert abs(data["greatest_job_error"]) == pytest.approx(max(errors))
    assert [abs(job["error"]) for job in data["jobs"]] == sorted(errors, reverse=True)
    assert data["makespan_error"] < 0
    assert data["chance_alone"]["run_error"] == data["mean_absolute_running_error_given_placements"]
    assert data["chance_alone"]["job_error"] > data["chance_alone"]["makespan_error"] > 0


def test_json_prints_what_the_file_holds(live: Path) -> None:
    printed = json.loads(compare(live, "--json").stdout)
    assert printed == json.loads((live / "compare.json").read_text())


def test_comparing_again_takes_the_place_of_the_first_time(live: Path) -> None:
    compare(live)
    result = compare(live, "--no-contention")
    assert result.exit_code == 0, result.output
    assert json.loads((live / "compare.json").read_text())["contention"] is False
    assert "contention" not in read_run(live / "simulated")
    assert [path for path in live.iterdir() if path.name.startswith(".")] == []


def test_links_are_shared_unless_told_otherwise(live: Path) -> None:
    compare(live)
    assert read_run(live / "simulated")["contention"] is True
    assert json.loads((live / "compare.json").read_text())["contention"] is True


def test_jobs_that_did_not_complete_are_named_and_left_out(live: Path) -> None:
    change_job(live, "j1", status="FAILED")
    change_job(live, "j2", status="RUNNING", end_s="")
    result = compare(live)
    assert "fifo: 2 of 4 jobs compared" in result.output
    assert "left out: j1 really ended as FAILED" in result.output
    data = json.loads((live / "compare.json").read_text())
    assert [*data["left_out"]] == ["j1", "j2"]
    assert {job["job"] for job in data["jobs"]} == {"j0", "j3"}


def test_a_job_that_ran_nobody_knows_where_is_left_out(live: Path) -> None:
    path = live / "stretches.jsonl"
    path.write_text(path.read_text().replace('"r0m0": 2', '"elsewhere": 2', 1))
    data = json.loads(compare(live, "--json").stdout)
    assert ["ran on GPUs" in reason for reason in data["left_out"].values()] == [True]


def test_a_run_in_which_no_job_completed_is_refused_in_one_line(live: Path) -> None:
    for job in JOBS:
        change_job(live, job.job_id, status="FAILED")
    result = compare(live)
    assert result.exit_code == 1
    assert len(result.output.splitlines()) == 1
    assert "no job completed in both worlds (j0 really ended as FAILED" in result.output
    assert not (live / "compare.json").exists()


def test_a_folder_that_is_no_run_is_refused_in_one_line(tmp_path: Path) -> None:
    result = compare(tmp_path / "nothing")
    assert (result.exit_code, len(result.output.splitlines())) == (1, 1)


def test_policies_of_one_workload_are_ranked(live: Path) -> None:
    for policy in ("dally", "tiresias"):
        live_folder(live.parent / policy, JOBS, Change(step_factor=1.02), policy=policy)
    result = compare(live.parent, "--no-contention")
    assert result.exit_code == 0, result.output
    assert "JCT mean:" in result.output
    data = json.loads((live.parent / "compare.json").read_text())
    assert {run["policy"] for run in data["runs"]} == {"dally", "fifo", "tiresias"}
    assert set(data["rankings"]) == {"JCT mean", "makespan"}
    assert "| tiresias | 4/4 |" in (live.parent / "compare.md").read_text()


def test_runs_of_different_workloads_are_not_ranked(live: Path) -> None:
    other = live_folder(live.parent / "tiresias", JOBS[:2], Change(), policy="tiresias")
    result = compare(live, other)
    assert "they are not ranked" in result.output
