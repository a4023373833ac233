"""What the page of real trainings tells: jobs of a seed, and how they went beside their fixed-size runs."""

import csv
import json
from pathlib import Path

from dally.runs.records import JobRecord, write_jobs
from dally.traces import load_trace
from testbed.running.folder import JOBS_FOLDER
from testbed.running.real_training import (
    FIXED,
    GPUS,
    PAGE,
    by_job,
    overview,
    read_trainings,
    write_workload,
)
from testbed.running.script import STEPS


def test_each_seed_has_jobs_of_its_own_of_the_same_sizes(tmp_path: Path) -> None:
    found = []
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        write_workload(tmp_path / f"{name}.csv", seed)
        found.append(load_trace(tmp_path / f"{name}.csv").jobs)
    assert found[0] == found[1] != found[2]
    for jobs in found:
        assert sorted(job.gpus for job in jobs) == sorted(GPUS)
        assert all((job.least_gpus, job.most_gpus) == (1, 8) for job in jobs)


def run_folder(folder: Path, accuracy: float | None, ranks: tuple[int, ...]) -> Path:
    """A run of one job, which had these ranks one step after another and 8 samples for each."""
    record = JobRecord(
        job_id="a",
        user="",
        group="",
        model="digits",
        gpus=2,
        submit_s=5.0,
        start_s=6.0,
        end_s=None if accuracy is None else 65.0,
        ideal_s=60.0,
        run_s=60.0,
        queue_s=1.0,
        comm_s=0.0,
        restart_s=0.0,
        lost_s=0.0,
        preemptions=2,
        failures=0,
        levels="",
        status="RUNNING" if accuracy is None else "COMPLETED",
        gpu_s=None,
    )
    place = folder / JOBS_FOLDER / "a"
    place.mkdir(parents=True)
    write_jobs(folder / "jobs.csv", [record])
    lines, samples = list[dict[str, float]](), 0
    for number, each in enumerate(ranks):
        samples += 8 * each
        lines.append(
            {"step": number + 1, "samples": samples, "ranks": each, "time": 2.0 * number, "seconds": 0.5}
        )
    if accuracy is not None:
        lines.append({"held_out": 360, "loss": 0.1, "accuracy": accuracy})
    (place / STEPS).write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


def test_a_training_is_told_by_its_steps(tmp_path: Path) -> None:
    training = read_trainings(run_folder(tmp_path / "a", 0.98, (2, 2, 4, 4, 4, 1, 1)))["a"]
    assert (training.accuracy, len(training.pauses_s), training.jct_s) == (0.98, 2, 60.0)
    assert training.batches == {8, 16, 32}
    assert read_trainings(run_folder(tmp_path / "b", None, (2,)))["a"].jct_s == float("inf")


def test_accuracies_are_held_against_those_of_the_fixed_size(tmp_path: Path) -> None:
    runs = {
        FIXED: [read_trainings(run_folder(tmp_path / "fixed", 0.98, (2, 2)))],
        "ones": [read_trainings(run_folder(tmp_path / "ones", 0.97, (2, 2, 4, 4)))],
    }
    fixed, ones = list(csv.reader(overview(runs).splitlines()[2:], delimiter="|"))
    assert [cell.strip() for cell in fixed[2:8]] == ["60", "60", "0", "", "0", "2"]
    found = [cell.strip() for cell in ones[4:13]]
    assert found == ["1", "2.00", "1", "2", "97.00 %", "-1.00", "0 of 1", "-1.00", "0.500"]
    assert "| 3 | a | 2 | 98.00 % | -1.00 (1; 16/32) |" in by_job(runs, [3])


def test_the_page_has_the_places_for_the_tables() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert text.count("<!-- overview -->") == text.count("<!-- end jobs -->") == 1
    assert "python -m testbed.running.real_training" in text
