"""What becomes of unmodified scripts of torchrun that are recorded."""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from analysis.studies.recorded_jobs import Place, RecordedTraining, run_recorded
from profiler.recorded.plan_recognition import recognise
from profiler.recorded.record import read_run
from tests.patience import LONGEST_S
from workloads.recorder import environment

HARD = Path(__file__).with_name("hard_recorded_job.py")
PACKAGES = {"hf_trainer.py": ("transformers", "accelerate"), "lightning_trainer.py": ("pytorch_lightning",)}


def torchrun(folder: Path, script: list[str], ranks: int) -> subprocess.CompletedProcess[str]:
    """Train as the script says, and record it."""
    launch = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}", *script]
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("SLURM")}
    return subprocess.run(
        [sys.executable, *launch],
        env={**inherited, "OMP_NUM_THREADS": "1", **environment(folder, {})},
        capture_output=True,
        text=True,
        timeout=LONGEST_S,
        check=False,
    )


def here(ranks: int) -> Place:
    """A host for all of them."""
    return Place("here", ((ranks,),), 1e9, 1e9)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("script", "arguments", "ranks", "plan"),
    [
        ("plain.py", ("by-hand", "12", "64", "0"), 2, "dp=2"),
        ("plain.py", ("hsdp", "12", "64", "0"), 4, "dp=4,zero=3"),
        ("hf_trainer.py", ("30",), 2, "dp=2"),
        ("lightning_trainer.py", ("30",), 2, "dp=2"),
    ],
)
def test_the_plan_of_a_script_is_recognised(
    tmp_path: Path, script: str, arguments: tuple[str, ...], ranks: int, plan: str
) -> None:
    """Those of other plans are recognised where their bytes are counted: `test_recorded_jobs.py`.

    Ranks start as torchrun starts them; it would load torch once more for itself.
    """
    for package in PACKAGES.get(script, ()):
        if find_spec(package) is None:  # the ranks import it, which takes seconds
            pytest.skip(f"{package} is not installed")
    run, _ = run_recorded(RecordedTraining(plan, script, arguments, ranks), here(ranks), tmp_path)
    assert [path.read_text().count("trained") for path in tmp_path.glob("rank-*.log")] == [1] * ranks
    found = recognise(run.records)
    assert (str(found.plan), found.doubts) == (plan, ())


def test_workers_that_load_data_and_programs_of_a_rank_are_no_ranks(tmp_path: Path) -> None:
    done = torchrun(tmp_path, [str(HARD)], 2)
    assert (done.returncode, done.stdout.count("trained")) == (0, 2), done.stderr
    assert sorted(path.name for path in tmp_path.rglob("rank*")) == [
        "rank-00000.json.gz",
        "rank-00001.json.gz",
    ]
    run = read_run(tmp_path)
    assert [(record.steps, record.world, record.backward_passes) for record in run.records] == [
        (201, 2, 2)
    ] * 2
    assert run.notes == ()


def test_what_a_killed_rank_has_written_is_read(tmp_path: Path) -> None:
    done = torchrun(tmp_path, [str(HARD), "1", str(tmp_path)], 2)
    assert done.returncode
    run = read_run(tmp_path)
    assert (str(recognise(run.records).plan), run.notes) == ("dp=2", ())
