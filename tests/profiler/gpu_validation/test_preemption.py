import os
import sys
from pathlib import Path

import pytest

from profiler.gpu_validation.checks import CheckFolder
from profiler.gpu_validation.commands import StepError, run_command
from profiler.gpu_validation.preemption import (
    checkpoint_and_resume,
    compare_losses,
    controller_preempts,
    judge_jobs,
)
from tests.patience import LONGEST_S

LOSSES = (7.0, 6.9, 6.8, 6.7)
HEADER = "job_id,status,preemptions\n"


def test_a_job_of_this_machine_ends_at_the_signal_and_goes_on_as_if_it_had_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(os.environ, "OMP_NUM_THREADS", "1")
    said = checkpoint_and_resume(CheckFolder(tmp_path, 600.0), "digits", "gloo")
    assert said.startswith("stopped after step ")
    assert (tmp_path / "checkpoint" / "job.pt").exists()


@pytest.mark.slurm
@pytest.mark.slow
def test_on_this_machines_slurm_a_short_job_gets_the_gpu_of_a_long_one(tmp_path: Path) -> None:
    measured = ("here", "digits", "--ranks=1", "--backend=gloo", "--gpu-type=local", "--allow-busy")
    quickly = ("--repetitions=15", "--budget=1", "--warm-up=3", f"--out={tmp_path / 'profiles'}")
    profile_models = (sys.executable, "-c", "from profiler.commands import main; main()")
    run_command((*profile_models, *measured, *quickly), tmp_path / "log", LONGEST_S)
    said = controller_preempts(CheckFolder(tmp_path, LONGEST_S), "local", "digits")
    assert said == "2 jobs completed; preempted: long 1x"


def test_the_first_loss_after_the_stop_must_be_that_of_a_run_without_one() -> None:
    assert compare_losses(LOSSES, LOSSES, 2) == "stopped after step 2 of 4, went on with a loss 0 apart"
    with pytest.raises(StepError, match=r"step 3, the first after the checkpoint, has loss 7\.3"):
        compare_losses(LOSSES, (*LOSSES[:2], 7.3, 6.7), 2)


@pytest.mark.parametrize(
    ("parts", "stopped", "message"),
    [
        (LOSSES[:3], 2, "it took 3 steps in all, must be 4"),
        (LOSSES[:2], 2, "and did not go on"),
        (LOSSES, 0, "stopped after 0 steps"),
    ],
)
def test_steps_that_are_missing_are_told(parts: tuple[float, ...], stopped: int, message: str) -> None:
    with pytest.raises(StepError, match=message):
        compare_losses(LOSSES, parts, stopped)


def test_jobs_that_were_preempted_and_completed_are_told(tmp_path: Path) -> None:
    jobs = tmp_path / "jobs.csv"
    jobs.write_text(HEADER + "long,COMPLETED,1\nshort,COMPLETED,0\n")
    assert judge_jobs(jobs) == "2 jobs completed; preempted: long 1x"


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ("long,FAILED,1\nshort,COMPLETED,0\n", "not completed: long"),
        ("long,COMPLETED,0\n", "no job was preempted"),
        ("", "not completed: there was no job"),
    ],
)
def test_jobs_that_were_lost_or_never_preempted_are_told(tmp_path: Path, rows: str, message: str) -> None:
    jobs = tmp_path / "jobs.csv"
    jobs.write_text(HEADER + rows)
    with pytest.raises(StepError, match=message):
        judge_jobs(jobs)


def test_a_run_without_jobs_is_told(tmp_path: Path) -> None:
    with pytest.raises(StepError, match=r"left no jobs\.csv"):
        judge_jobs(tmp_path / "jobs.csv")
