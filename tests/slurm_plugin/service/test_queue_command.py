"""`dally queue`."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from slurm_plugin.service.queue_command import table, timer
from tests.slurm_plugin.daemons import DaemonSite


def busy(folder: Path) -> DaemonSite:
    """A site in which job 1 runs on all nodes, 2 waits and 3 is held by its user."""
    policy = "dally:timers=manual,machine=1,rack=2,lease_s=100"
    site = DaemonSite(folder, listen="127.0.0.1:0", policy=policy)
    site.submit(nodes=4, gpus_per_node=8, model="vgg16")
    site.submit(nodes=2, gpus_per_node=8, user="bob")
    site.submit(gpus_per_node=1, held=True)
    return site


def asked(site: DaemonSite, *arguments: str, width: int = 80) -> Result:
    results: list[Result] = []
    site.run(lambda: results.append(site.dally("queue", *arguments, width=width)))
    return results[0]


def test_jobs_that_run_come_first_then_those_that_wait_and_why(tmp_path: Path) -> None:
    lines = asked(busy(tmp_path), width=140).stdout.splitlines()
    assert " ".join(lines[0].split()) == "JOBID USER MODEL GPUS STATE SINCE TIMER NODES or REASON"
    assert [line.split()[0] for line in lines[1:]] == ["1", "2", "3", "*"]
    assert "vgg16" in lines[1]
    assert lines[1].endswith("n[1-4]")
    assert "any GPUs 3m" in lines[2]
    assert "no rack has 16 free GPUs" in lines[2]
    assert lines[3].endswith("held by its user")


def test_jobs_without_a_profile_are_marked_and_those_with_one_are_not(tmp_path: Path) -> None:
    site = DaemonSite(tmp_path, listen="127.0.0.1:0", profiles="testbed")
    for model in ("resnet50", "resnet5O", ""):
        site.submit(gpus_per_node=1, model=model)
    *lines, last = asked(site).stdout.splitlines()
    assert [line.split()[2] for line in lines[1:]] == ["resnet50", "*resnet5O", "*"]
    assert last == "* no profile (dally models): what distance costs it is assumed"


def test_it_fits_80_columns(tmp_path: Path) -> None:
    lines = asked(busy(tmp_path)).stdout.splitlines()
    assert max(len(line) for line in lines) <= 80


def test_json_has_all_that_is_known(tmp_path: Path) -> None:
    jobs = json.loads(asked(busy(tmp_path), "--json").stdout)
    assert [(job["job"], job["user"], job["state"]) for job in jobs] == [
        ("1", "alice", "running"),
        ("2", "bob", "pending"),
        ("3", "alice", "ineligible"),
    ]


def test_me_shows_my_own_jobs_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("getpass.getuser", lambda: "bob")
    lines = asked(busy(tmp_path), "--me").stdout.splitlines()
    assert [line.split()[:2] for line in lines[1:-1]] == [["2", "bob"]]


def test_an_empty_queue_is_a_header(tmp_path: Path) -> None:
    assert len(asked(DaemonSite(tmp_path, listen="127.0.0.1:0")).stdout.splitlines()) == 1


JOB: dict[str, Any] = {
    "job": "17_3",
    "user": "u",
    "model": "",
    "gpus": 8,
    "state": "pending",
    "since_s": 0.0,
    "until_s": 500.0,
    "level": "rack",
    "next_level": "network",
    "nodes": {},
    "reason": "",
}


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({}, "any GPUs 5m"),
        ({"until_s": 200.0}, "any GPUs now"),
        ({"until_s": None}, "-"),
        ({"next_level": ""}, "-"),
        ({"state": "ineligible"}, "again 5m"),
        ({"state": "stopping"}, "stop 5m"),
        ({"state": "running"}, "-"),
    ],
)
def test_the_timer_says_what_comes_by_itself(change: dict[str, Any], told: str) -> None:
    assert timer({**JOB, **change}, 200.0) == told


def test_what_users_wrote_cannot_steer_the_terminal() -> None:
    lines = table([{**JOB, "user": "a\x1b[2Jb", "reason": "x\ny"}], 0.0, 200)
    assert len(lines) == 2
    assert "a?[2Jb" in lines[1]
    assert lines[1].endswith("x y")


def test_long_cells_are_cut_and_say_so() -> None:
    lines = table([{**JOB, "user": "a" * 50, "model": "b" * 50, "reason": "c" * 500}], 0.0, 80)
    assert "aaaaaaa+ " in lines[1]
    assert lines[1].endswith("c+")
    assert len(lines[1]) == 80
