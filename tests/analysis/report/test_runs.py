"""Runs are found, in order, and what is not whole or not comparable is refused by name."""

from pathlib import Path

import pytest

from analysis.report.runs import find_runs, load_runs
from dally.cluster import load_cluster
from dally.cluster.toml_writer import write_toml
from dally.errors import InputError
from dally.runs.records import CLUSTER, EVENTS, JOBS, RUN
from tests.analysis.report.folders import change_run, cut, simple_run


def test_the_runs_of_a_comparison_come_in_its_order(tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        simple_run(tmp_path / name, name, [0])
    (tmp_path / "comparison.json").write_text('{"b": {"folder": "b"}, "a": {"folder": "a"}}')
    assert [folder.name for folder in find_runs(tmp_path)] == ["b", "a", "c"]


@pytest.mark.parametrize("comparison", ["", "[1]", '{"a": 1}', '{"a": {"folder": ["a"]}}'])
def test_a_comparison_that_cannot_be_read_leaves_the_order_of_names(tmp_path: Path, comparison: str) -> None:
    for name in ("b", "a"):
        simple_run(tmp_path / name, name, [0])
    (tmp_path / "comparison.json").write_text(comparison)
    assert [folder.name for folder in find_runs(tmp_path)] == ["a", "b"]


def test_runs_of_the_same_policy_are_told_apart_by_their_folders(tmp_path: Path) -> None:
    paths = [
        simple_run(tmp_path / name, policy, [0]) for name, policy in (("a", "x"), ("b", "x"), ("c", "y"))
    ]
    assert [run.name for run in load_runs(paths)] == ["x (a)", "x (b)", "y"]
    again = simple_run(tmp_path / "other/a", "x", [0])
    assert load_runs([paths[0], again])[1].name == f"x ({again})"


def test_a_run_named_twice_counts_once(tmp_path: Path) -> None:
    folder = simple_run(tmp_path / "a", "x", [0])
    assert len(load_runs([folder, folder, tmp_path])) == 1


@pytest.mark.parametrize("name", ["missing", "empty", "file"])
def test_what_is_no_run_folder_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match=f"{name} is no run folder and holds none"):
        load_runs([tmp_path / name])


@pytest.mark.parametrize(
    ("name", "bytes_off", "message"),
    [
        (JOBS, 1, "jobs.csv: the last line is cut off"),
        (JOBS, 30, "jobs.csv: the last line is cut off"),
        (EVENTS, 1, "events.jsonl: the last line is cut off"),
        (EVENTS, 20, "events.jsonl: the last line is cut off"),
        (RUN, 10, "run.json: not JSON, the file may be truncated"),
    ],
)
def test_a_file_that_is_cut_off_is_refused(tmp_path: Path, name: str, bytes_off: int, message: str) -> None:
    folder = simple_run(tmp_path / "a", "x", [0, 5])
    cut(folder / name, bytes_off)
    with pytest.raises(InputError, match=message):
        load_runs([folder])


@pytest.mark.parametrize("name", [JOBS, EVENTS])
def test_a_file_that_lacks_whole_lines_is_refused(tmp_path: Path, name: str) -> None:
    folder = simple_run(tmp_path / "a", "x", [0, 5])
    lines = (folder / name).read_text().splitlines(keepends=True)
    (folder / name).write_text("".join(lines[:-1]))
    with pytest.raises(InputError, match="truncated"):
        list(load_runs([folder])[0].events())


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("3", "no event"),
        ('{"t": 1}', "no event"),
        ('{"t": 1, "event": "end", "job": "a"}', "end without status"),
        (
            '{"t": 1, "event": "wait", "job": "a", "level": "pod", "until": null, "reason": ""}',
            "level 'pod' is none of the cluster's: machine, rack, network",
        ),
    ],
)
def test_a_line_that_is_no_event_is_refused(tmp_path: Path, line: str, message: str) -> None:
    folder = simple_run(tmp_path / "a", "x", [0])
    (folder / EVENTS).write_text(line + "\n")
    with pytest.raises(InputError, match=f"events.jsonl:1: {message}"):
        list(load_runs([folder])[0].events())


def test_a_run_file_that_lacks_something_is_refused(tmp_path: Path) -> None:
    folder = simple_run(tmp_path / "a", "x", [0])
    change_run(folder, cluster={"gpus": 8})
    with pytest.raises(InputError, match=r"run.json: lacks 'levels'"):
        load_runs([folder])


def test_a_run_without_jobs_is_refused(tmp_path: Path) -> None:
    folder = simple_run(tmp_path / "a", "x", [0])
    (folder / JOBS).write_text((folder / JOBS).read_text().splitlines(keepends=True)[0])
    with pytest.raises(InputError, match="nothing to report"):
        load_runs([folder])


def test_runs_of_different_traces_are_refused_by_the_first_job_that_differs(tmp_path: Path) -> None:
    one = simple_run(tmp_path / "a", "x", [0, 5])
    two = simple_run(tmp_path / "b", "y", [0, 5, 5])
    with pytest.raises(InputError, match=r"are runs of different traces: job job-2 is not in .*a$"):
        load_runs([one, two])


def test_an_incomplete_run_may_lack_jobs(tmp_path: Path) -> None:
    one = simple_run(tmp_path / "a", "x", [0, 5], complete=False, note="interrupted")
    two = simple_run(tmp_path / "b", "y", [0, 5, 5])
    assert [len(run.records) for run in load_runs([one, two])] == [2, 3]


def test_the_cluster_is_that_of_the_run_folder_if_it_is_the_one_in_run_json(tmp_path: Path) -> None:
    said = {"gpus": 64, "levels": ["machine", "rack", "network"]}
    same = simple_run(tmp_path / "a", "x", [0], cluster=said)
    other = simple_run(tmp_path / "b", "y", [0], cluster={**said, "gpus": 63})
    without = simple_run(tmp_path / "c", "z", [0], cluster=said)
    for folder in (same, other):
        (folder / CLUSTER).write_text(write_toml(load_cluster("demo")))
    found = [run.topology for run in load_runs([same, other, without])]
    assert found[0] is not None
    assert found[0].gpus == 64
    assert found[1:] == [None, None]
