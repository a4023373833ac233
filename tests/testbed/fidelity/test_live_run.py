"""Folders that are no live runs, or broken ones, are refused with what is wrong."""

import json
from pathlib import Path

import pytest

from dally.errors import InputError
from dally.jobs.job import Job
from testbed.fidelity.live_run import find_runs, read_live_run
from tests.testbed.fidelity.live_folders import Change, live_folder

JOBS = [Job("j0", 0.0, 2, 100.0, model="resnet18")]


@pytest.fixture
def live(tmp_path: Path) -> Path:
    return live_folder(tmp_path / "out" / "fifo", JOBS, Change())


def rewrite(path: Path, **changes: object) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}) + "\n")


def test_a_run_is_found_by_its_own_folder_and_by_the_one_above(live: Path) -> None:
    assert find_runs(live) == [live]
    assert find_runs(live.parent) == [live]


def test_a_folder_without_live_runs_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is no live run and holds none"):
        find_runs(tmp_path)


def test_a_simulation_is_refused(live: Path) -> None:
    rewrite(live / "run.json", kind="simulation")
    with pytest.raises(InputError, match="kind 'simulation', must be 'testbed'"):
        read_live_run(live)


@pytest.mark.parametrize("name", ["workload.csv", "cluster.toml"])
def test_a_missing_input_is_named(live: Path, name: str) -> None:
    (live / name).unlink()
    with pytest.raises(InputError, match=f"has no {name}"):
        read_live_run(live)


def test_a_run_without_its_intervals_is_refused(live: Path) -> None:
    (live / "stretches.jsonl").unlink()
    with pytest.raises(InputError, match=r"cannot read stretches\.jsonl"):
        read_live_run(live)


@pytest.mark.parametrize("line", ["{", "[]", '{"job": "j0"}', '{"job": "j0", "number": "x"}'])
def test_a_wrong_interval_is_named_by_its_line(live: Path, line: str) -> None:
    with (live / "stretches.jsonl").open("a") as file:
        file.write(line + "\n")
    with pytest.raises(InputError, match=r"stretches\.jsonl:2: not a stretch"):
        read_live_run(live)


def test_an_interval_that_did_not_end_lasts_until_the_run_was_over(live: Path) -> None:
    rewrite(live / "stretches.jsonl", end_s=None)
    rewrite(live / "run.json", end_s=777.0)
    assert read_live_run(live).intervals["j0"][0].end_s == 777.0


def test_an_end_of_the_run_that_is_no_number_is_refused(live: Path) -> None:
    rewrite(live / "run.json", end_s=None)
    with pytest.raises(InputError, match="end_s is None"):
        read_live_run(live)
