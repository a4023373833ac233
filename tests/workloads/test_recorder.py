"""What becomes of unmodified scripts of torchrun that are recorded."""

import os
import runpy
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from dally.jobs.progress import parse_report
from profiler.recorded.plan_recognition import recognise
from profiler.recorded.record import read_records
from workloads.recorder import INSIDE, environment

SCRIPT = Path(__file__).with_name("recorded_job.py")
PATIENCE_S = 300


def torchrun(folder: Path, plan: str, ranks: int, **variables: str) -> subprocess.CompletedProcess[str]:
    """Train as the script says, and record it."""
    launch = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}", str(SCRIPT), plan]
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("SLURM")}
    return subprocess.run(
        [sys.executable, *launch],
        env={**inherited, "OMP_NUM_THREADS": "1", **variables, **environment(folder, variables)},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )


@pytest.mark.parametrize(
    ("name", "ranks", "plan"),
    [("ddp", 2, "dp=2"), ("hsdp", 4, "dp=4,zero=3"), ("tp", 4, "tp=2,dp=2,zero=1"), ("pp", 2, "pp=2")],
)
def test_the_plan_of_a_script_is_recognised(tmp_path: Path, name: str, ranks: int, plan: str) -> None:
    done = torchrun(tmp_path, name, ranks)
    assert done.stdout.count("trained") == ranks, done.stderr
    found = recognise(read_records(tmp_path))
    assert (str(found.plan), found.doubts) == (plan, ())


def test_a_recorder_that_cannot_write_harms_nothing(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("in the place of the folder")
    done = torchrun(file, "ddp", 2)
    assert (done.returncode, done.stdout.count("trained")) == (0, 2)
    assert "Traceback" not in done.stderr


def test_a_message_sent_by_named_arguments_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    class Group:
        def send(self, tensors: list[object], dst: int, tag: int) -> str:
            return f"sent to {dst}"

    optimizer = SimpleNamespace(register_optimizer_step_post_hook=lambda hook: None)
    monkeypatch.setitem(sys.modules, "torch.optim.optimizer", optimizer)
    monkeypatch.setitem(sys.modules, "torch.distributed", SimpleNamespace(ProcessGroup=Group))
    recorder = runpy.run_path(str(INSIDE / "sitecustomize.py"))["_Recorder"]()
    recorder._hook()
    assert Group().send(tensors=[], dst=1, tag=0) == "sent to 1"


def test_the_sites_own_sitecustomize_runs_as_before(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("print('the site greets')")
    variables = environment(tmp_path / "records", {"PYTHONPATH": str(tmp_path)})
    done = subprocess.run(
        [sys.executable, "-c", "print('job')"],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=True,
    )
    assert done.stdout.splitlines() == ["the site greets", "job"]


def test_the_first_rank_tells_how_long_its_last_steps_took(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the median, by the job's number as `dally queue` shows it."""
    monkeypatch.setenv("DALLY_STEPS", f"{tmp_path}/records/steps-%j.json")
    monkeypatch.setenv("SLURM_JOB_ID", "18")
    monkeypatch.setenv("SLURM_ARRAY_JOB_ID", "17")
    monkeypatch.setenv("SLURM_ARRAY_TASK_ID", "3")
    recorder = runpy.run_path(str(INSIDE / "sitecustomize.py"))["_Recorder"]()
    times_s = (0.0, 9.0, 9.5, 10.0, 10.5, 20.0, 20.5)
    recorder.steps.extend(round(each * 1e9) for each in times_s)
    recorder.write_step_time()
    (file,) = (tmp_path / "records").iterdir()
    assert file.name == "steps-17_3.json"
    report = parse_report(file.read_bytes(), 0.0)
    assert (report.step_s, report.samples, report.t) == (0.5, 0.0, 20.5)
