"""Scripts of jobs: what Slurm and Dally are asked for, and what is trained."""

import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dally.jobs.job import JobKind
from dally.policies.slurm.policy import SlurmKnobs
from slurm_plugin.submit.submission import build_request, fixed_reason, read_submission
from testbed.running.job_plan import JobPlan
from testbed.running.script import SubmitSettings, companion_script, job_script, switch_options
from tests.testbed.running.worlds import inputs, job

PLACE = SubmitSettings("/opt/python", "gpu", "eth0", "gloo", {"n1": 60.0, "n2": 60.0})


def plan(gpus: int = 4, **more: Any) -> JobPlan:
    return inputs(job("a", gpus, **more)).plans[0]


def script(of: JobPlan, place: SubmitSettings = PLACE) -> str:
    return job_script(of, "run-0", "/scratch/run/jobs/a", place)


def submitted(text: str, folder: Path) -> tuple[dict[str, str | None], object]:
    """What dally-sbatch understands of a script: Slurm's options, and the request."""
    path = folder / "job.sh"
    path.write_text(text)
    submission = read_submission([str(path)], {}, lambda: b"", dict)
    return dict(submission.settings), build_request(submission, "ab")


def test_gpus_may_lie_on_any_nodes_one_for_each_task(tmp_path: Path) -> None:
    settings, _ = submitted(script(plan(4)), tmp_path)
    assert (settings["ntasks"], settings["gpus-per-task"]) == ("4", "1")
    assert "nodes" not in settings


def test_a_fixed_number_on_each_machine_is_asked_for(tmp_path: Path) -> None:
    settings, _ = submitted(script(plan(4, gpus_per_machine=2)), tmp_path)
    assert (settings["nodes"], settings["ntasks-per-node"]) == ("2", "2")


def test_dally_may_place_the_job_and_stop_it_by_its_checkpoint_signal(tmp_path: Path) -> None:
    settings, request = submitted(script(plan()), tmp_path)
    assert fixed_reason(settings, ("gpu",)) == ""
    assert (getattr(request, "model", ""), getattr(request, "signal", "")) == ("mobilenetv3", "USR2")


def test_a_job_that_may_not_be_preempted_names_no_signal(tmp_path: Path) -> None:
    _, request = submitted(script(plan(preemptible=False)), tmp_path)
    assert getattr(request, "signal", None) == ""


def test_the_first_command_keeps_the_signal_from_ending_the_script() -> None:
    lines = [line for line in script(plan()).splitlines() if not line.startswith("#")]
    assert lines[0] == "trap : USR2"


def test_the_script_trains_for_its_steps_on_the_clusters_interface() -> None:
    text = script(plan(2))
    program = "python -P -m workloads.train mobilenetv3 --steps 40 --global-batch 32 --precision fp32"
    assert f"{program} --backend gloo" in text
    assert "--emulate 60" in text
    assert "GLOO_SOCKET_IFNAME=eth0" in text


def test_real_compute_and_no_interface_leave_both_out() -> None:
    text = script(plan(2), replace(PLACE, interface="", emulate_tflops=None))
    assert "--emulate" not in text
    assert "IFNAME" not in text


def played(text: str, folder: Path, **programs: str) -> "subprocess.CompletedProcess[str]":
    """The script run where Slurm's programs are played."""
    for name, does in programs.items():
        (folder / name).write_text(f"#!/bin/bash\n{does}\n")
        (folder / name).chmod(0o755)
    variables = {"PATH": f"{folder}:/usr/bin:/bin", "SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "n1"}
    variables["SLURM_TASKS_PER_NODE"] = "2(x3),1"
    return subprocess.run(
        ["bash", "-c", text], cwd=folder, env=variables, capture_output=True, text=True, timeout=30
    )


AS_ON_N2 = 'while [[ $1 == --* ]]; do shift; done; SLURMD_NODENAME=n2 exec "$@"'
"""What srun does, on one node."""


def test_a_rank_computes_at_the_speed_of_its_node(tmp_path: Path) -> None:
    place = replace(PLACE, python=str(tmp_path / "python"), emulate_tflops={"n1": 2.0, "n2": 0.5, "n3": 2.0})
    played(script(plan(), place), tmp_path, srun=AS_ON_N2, scontrol="true", python='echo "$@" > ran')
    words = (tmp_path / "ran").read_text().split()
    assert (words[:4], words[-2:]) == (["-P", "-m", "workloads.train", "mobilenetv3"], ["--emulate", "0.5"])


def test_copies_ask_for_a_node_each_and_start_on_those_that_there_are(tmp_path: Path) -> None:
    text = script(plan(2, kind=JobKind.FORKED, max_copies=3))
    settings, request = submitted(text, tmp_path)
    assert (settings["nodes"], settings["gpus-per-node"], settings["ntasks-per-node"]) == ("1", "2", "2")
    assert getattr(request, "max_copies", 0) == 3
    played(text, tmp_path, srun='echo "$@" > ran', scontrol="true")
    ran = (tmp_path / "ran").read_text()
    assert ran.startswith("--ntasks=7 --kill-on-bad-exit=0 --wait=0 ")
    assert "--forked --slot 360 --ranks-per-copy 2" in ran


@pytest.mark.parametrize(("said", "code"), [("echo 85 > checkpoint.pt.code; exit 1", 85), ("exit 1", 1)])
def test_copies_end_as_their_file_says_if_there_is_one(tmp_path: Path, said: str, code: int) -> None:
    text = script(plan(1, kind=JobKind.FORKED, max_copies=3))
    assert played(text, tmp_path, srun=said, scontrol="true", sleep="true").returncode == code


def test_an_elastic_job_says_its_range(tmp_path: Path) -> None:
    text = script(plan(2, kind=JobKind.ELASTIC, min_gpus=1, max_gpus=4))
    settings, request = submitted(text, tmp_path)
    assert (settings["ntasks"], settings["gpus-per-task"]) == ("2", "1")
    assert (getattr(request, "min_gpus", 0), getattr(request, "max_gpus", 0)) == (1, 4)
    assert "srun --ntasks=$tasks " in text


def test_bash_can_read_the_script(tmp_path: Path) -> None:
    path = tmp_path / "job.sh"
    path.write_text(script(plan()))
    assert subprocess.run(["bash", "-n", str(path)], capture_output=True, timeout=30).stderr == b""


@pytest.mark.parametrize(("limit_s", "minutes"), [(None, 5), (3600.0, 60), (90.0, 2)])
def test_the_time_limit_is_the_traces_or_far_longer_than_the_job(
    limit_s: float | None, minutes: int, tmp_path: Path
) -> None:
    settings, _ = submitted(script(plan(duration_s=20.0, time_limit_s=limit_s)), tmp_path)
    assert settings["time"] == str(minutes)


@pytest.mark.parametrize(
    ("gpus", "level", "wait_s", "options"),
    [
        (4, 1, 30.0, ("--switches=1@0:00:30",)),
        (4, 1, 3700.0, ("--switches=1@1:01:40",)),
        (4, 1, 0.0, ()),
        (8, 2, 30.0, ()),
        (1, 0, 30.0, ()),
    ],
)
def test_slurm_is_asked_for_one_switch_where_one_can_hold_the_job(
    gpus: int, level: int, wait_s: float, options: tuple[str, ...]
) -> None:
    assert switch_options(plan(gpus), level, SlurmKnobs(switch_wait_s=wait_s)) == options


@pytest.mark.parametrize(
    ("code", "runs", "asked"),
    [(1, 1, ["requeue 7"]), (1, 5, ["requeue 7"] * 3), (0, 1, []), (85, 1, [])],
    ids=["a failure", "one failure after the other", "the end", "a checkpoint"],
)
def test_a_job_whose_training_fails_puts_itself_back_a_few_times(
    tmp_path: Path, code: int, runs: int, asked: list[str]
) -> None:
    """A requeue that did not kill the script would let it sleep."""
    notes = 'case $1 in requeue) echo "$@" >> asked;; esac'
    for _ in range(runs):
        done = played(script(plan()), tmp_path, srun=f"exit {code}", scontrol=notes, sleep="exit 0")
        assert done.returncode == code, done.stderr
    path = tmp_path / "asked"
    assert (path.read_text().splitlines() if path.exists() else []) == asked


def test_a_script_whose_job_was_started_anew_elsewhere_leaves_it_alone(tmp_path: Path) -> None:
    notes = 'case $1 in requeue) echo "$@" >> asked;; esac'
    anew = "echo start 3.5 n4 2 1 >> diary; exit 1"
    assert played(script(plan()), tmp_path, srun=anew, scontrol=notes, sleep="exit 0").returncode == 1
    assert not (tmp_path / "asked").exists()


def test_a_job_that_trains_for_real_reports_and_follows_the_policys_sizes(tmp_path: Path) -> None:
    place = replace(PLACE, data="/shared/digits.npz", seed=3)
    of = plan(2, kind=JobKind.ELASTIC, min_gpus=1, max_gpus=4)
    text = script(of, place)
    _, request = submitted(text, tmp_path)
    assert getattr(request, "progress", "") == "/scratch/run/jobs/a/progress.json"
    assert getattr(request, "model", None) == "", "the policy goes by what it reports"
    assert "--data /shared/digits.npz --seed 3 --progress progress.json" in text
    most = 2 * of.global_batch
    assert f"--elastic ranks --batch-rule policy --asked-ranks 2 --max-batch {most} --emulate 60" in text
    assert "--elastic" not in script(plan(2), place)
    assert f"--pace {of.compute_s:.4f}" in script(plan(2), place)


def test_a_companion_trains_as_its_job_and_leaves_by_its_signal(tmp_path: Path) -> None:
    place = replace(PLACE, data="/shared/digits.npz", companions=1)
    of = plan(2, kind=JobKind.ELASTIC, min_gpus=1, max_gpus=4)
    text = companion_script(of, "run-0", "/scratch/run/jobs/a", place)
    settings, request = submitted(text, tmp_path)
    assert (settings["ntasks"], settings["gpus-per-task"]) == ("1", "1")
    assert (getattr(request, "signal", ""), getattr(request, "model", None)) == ("USR2", "")

    def trained(script: str) -> str:
        return next(line for line in script.splitlines() if line.startswith("srun"))

    own = trained(job_script(of, "run-0", "/scratch/run/jobs/a", place))
    assert "--join" in trained(text)
    assert trained(text).replace(" --join", "") == own
