"""`dally sweep` as a user meets it: finished, failing in part, killed and resumed."""

import csv
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from dally.commands import main
from tests.patience import LONGEST_S, wait_until

STUDY = """policies = ["fifo", "srtf"]
seeds = [1, 2]
trace = "philly-like:jobs=60,gap_s=10"
cluster = "demo"
skip_bad = true
"""


def sweep(folder: Path, *more: str) -> Result:
    return CliRunner().invoke(main, ["sweep", str(folder / "study.toml"), *more])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "study.toml").write_text(STUDY)
    return tmp_path


def rows(folder: Path) -> list[dict[str, str]]:
    return list(csv.DictReader((folder / "study" / "results.csv").open()))


def test_a_sweep_is_resumed_and_grows(folder: Path) -> None:
    first = sweep(folder, "--workers", "1")
    assert first.exit_code == 0, first.output
    assert "4 runs, 4 to do" in first.output
    assert [(row["policy"], row["seed"]) for row in rows(folder)] == [
        ("fifo", "1"),
        ("srtf", "1"),
        ("fifo", "2"),
        ("srtf", "2"),
    ]
    written = {path: path.stat().st_mtime_ns for path in (folder / "study" / "runs").iterdir()}
    assert len(written) == 4
    (folder / "study.toml").write_text(STUDY.replace("[1, 2]", "[1, 2, 3]"))
    second = sweep(folder, "--workers", "1")
    assert "6 runs, 2 to do" in second.output
    assert len(rows(folder)) == 6
    assert all(path.stat().st_mtime_ns == when for path, when in written.items())


def test_a_run_that_fails_holds_up_no_other(folder: Path) -> None:
    (folder / "study.toml").write_text(
        STUDY.replace('"philly', '["missing.csv", "philly').replace('10"', '10"]')
    )
    result = sweep(folder, "--workers", "1")
    assert result.exit_code == 1
    assert "no trace file 'missing.csv'" in result.output
    assert len(rows(folder)) == 4
    assert len(list((folder / "study" / "runs").glob("*.error.txt"))) == 4


def test_a_dry_run_lists_the_runs_and_writes_nothing(folder: Path) -> None:
    result = sweep(folder, "--dry-run", "--policy", "fifo")
    assert result.output.splitlines()[1:] == [
        "philly-like:jobs=60,gap_s=10 fifo seed 1",
        "philly-like:jobs=60,gap_s=10 fifo seed 2",
    ]
    assert not (folder / "study").exists()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_killed_it_leaves_whole_results_and_no_process(folder: Path, number: signal.Signals) -> None:
    slow = STUDY.replace("jobs=60,gap_s=10", "jobs=60|100000").replace("[1, 2]", "[1]")
    (folder / "study.toml").write_text(slow)
    argv = [sys.executable, "-m", "dally", "sweep", str(folder / "study.toml"), "--workers", "1"]
    process = subprocess.Popen(argv, start_new_session=True, stderr=subprocess.DEVNULL)
    runs = folder / "study" / "runs"
    while not (runs.is_dir() and len(list(runs.glob("*.json"))) == 2):
        assert process.poll() is None
        time.sleep(0.05)
    process.send_signal(number)
    assert process.wait(LONGEST_S) == (130 if number == signal.SIGTERM else -number)
    wait_until(lambda: not _alive(process.pid), "all its processes to end")
    assert "4 runs, 2 to do" in sweep(folder, "--dry-run").output


def _alive(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


def test_dask_gives_the_same_results(folder: Path) -> None:
    assert sweep(folder, "--on", "dask", "--workers", "1").exit_code == 0
    by_dask = rows(folder)
    assert sweep(folder, "--workers", "1", "--out", str(folder / "here")).exit_code == 0
    here = list(csv.DictReader((folder / "here" / "results.csv").open()))
    assert [row | {"cpu_s": ""} for row in by_dask] == [row | {"cpu_s": ""} for row in here]


def test_where_to_run_is_checked(folder: Path) -> None:
    assert "--on is 'mars', must be local, dask, slurm or an address" in sweep(folder, "--on", "mars").output
    assert (
        "no Dask scheduler answers at tcp://127.0.0.1:1" in sweep(folder, "--on", "tcp://127.0.0.1:1").output
    )


def test_without_dask_it_says_what_to_install(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "simulator.sweep.dask_workers", raising=False)
    monkeypatch.setitem(sys.modules, "distributed", None)
    said = "the Python package distributed is not installed; in Dally's folder: pip install '.[dask]'"
    assert said in sweep(folder, "--on", "slurm").output


def test_a_sweep_over_classes_of_knowledge_says_so_in_its_headline(folder: Path) -> None:
    study = folder / "study.toml"
    study.write_text(STUDY.replace("seeds", 'knowledge = ["exact", "none"]\nseeds', 1))
    said = sweep(folder, "--policy", "fifo", "--workers", "1").stdout
    assert "running times known: exact / none; each table compares runs that knew the same" in said
    assert said.count("(knew: exact)") == said.count("(knew: none)") == 1
    study.write_text(STUDY)
    assert "running times known: exact\n" in sweep(folder, "--policy", "fifo", "--workers", "1").stdout
