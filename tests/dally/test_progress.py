"""What a script writes to report its progress, and that nothing it does can end the script."""

import json
import math
import subprocess
import sys
from pathlib import Path

import pytest

from dally.progress import FILE, Reporter, job_number, told_file


def test_numbers_are_written_and_what_is_none_is_left_out(tmp_path: Path) -> None:
    file = tmp_path / "report.json"
    Reporter(file).report(512, total=1e4, batch=256, loss=math.nan, noise=math.inf)
    said = json.loads(file.read_text())
    assert {name: said[name] for name in said if name != "time"} == {
        "samples": 512,
        "total": 10_000,
        "batch": 256,
    }
    assert [each.name for each in tmp_path.iterdir()] == ["report.json"]


def test_it_is_written_every_few_seconds_at_most_and_only_then_is_a_loss_fetched(tmp_path: Path) -> None:
    class Loss:
        fetched = 0

        def __float__(self) -> float:
            self.fetched += 1
            return 0.5

    reporter, loss = Reporter(tmp_path / "report.json", every_s=60), Loss()
    for samples in range(1000):
        reporter.report(samples, loss=loss)
    assert loss.fetched == 1
    assert json.loads((tmp_path / "report.json").read_text())["samples"] == 0


@pytest.mark.parametrize("loss", [object(), "no number", [1, 2]])
def test_what_cannot_be_written_ends_nothing_and_is_told_once(
    tmp_path: Path, loss: object, capsys: pytest.CaptureFixture[str]
) -> None:
    reporters = [Reporter(tmp_path / "nowhere" / "report.json", 0), Reporter(tmp_path / "report.json", 0)]
    for reporter in reporters:
        for _ in range(3):
            reporter.report(1, loss=loss)  # type: ignore[arg-type]
    assert capsys.readouterr().err.count("dally: cannot report progress to") == len(reporters)
    assert not [*tmp_path.iterdir()]


def test_the_file_is_that_of_the_job_or_of_the_task_of_an_array() -> None:
    assert told_file({}) is None
    assert told_file({FILE: "/scratch/%j.json", "SLURM_JOB_ID": "17"}) == Path("/scratch/17.json")
    array = {"SLURM_JOB_ID": "19", "SLURM_ARRAY_JOB_ID": "17", "SLURM_ARRAY_TASK_ID": "3"}
    assert job_number(array) == "17_3"


SCRIPT = """
from dally.progress import report
for step in range(3):
    report(samples=step * 8, total=100)
import sys
assert not {"torch", "numpy", "click"} & set(sys.modules)
"""


@pytest.mark.parametrize(("rank", "writes"), [("0", True), ("1", False)])
def test_three_lines_in_a_script_write_it_on_the_first_rank(tmp_path: Path, rank: str, writes: bool) -> None:
    file = tmp_path / "report.json"
    environment = {FILE: str(file), "RANK": rank, "PYTHONPATH": ":".join(sys.path)}
    subprocess.run([sys.executable, "-c", SCRIPT], env=environment, check=True)
    assert file.exists() == writes
