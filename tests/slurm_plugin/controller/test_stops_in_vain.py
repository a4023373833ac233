"""Jobs are stopped for others only where these then start: GPUs come free, and CPUs and memory with them."""

from pathlib import Path
from random import Random
from typing import Any

import pytest

from dally.testing.worlds import racks
from slurm_plugin.controller.journal import read_events
from slurm_plugin.service.report import report
from tests.slurm_plugin.worlds import FakeSite

SHORT_LEASES = "srsf-delay:lease_s=5,lease_restarts=0"
LONG: dict[str, Any] = {"run_time_s": 40_000.0, "time_limit_s": 80_000.0}
SHORT: dict[str, Any] = {"run_time_s": 100.0, "time_limit_s": 200.0, "user": "bob"}
SAVES: dict[str, Any] = {"signal": "USR1", "grace_s": 60, "checkpoint_exit_s": 30.0, "resumes": True}
"""Such a job takes longer to write its checkpoint than Slurm is given to start a job (20 s)."""


def one_node(folder: Path) -> FakeSite:
    """Eight GPUs and 128 CPUs; a long job has half of the GPUs, and 100 of the CPUs."""
    site = FakeSite(folder, racks([[8]]), SHORT_LEASES, cpus=128)
    site.submit(gpus_per_node=4, cpus=100, **LONG, **SAVES)
    site.live(100)
    return site


def test_cpus_that_come_free_go_to_the_job_for_which_another_is_stopped(tmp_path: Path) -> None:
    site = one_node(tmp_path)
    taker = site.submit(gpus_per_node=6, cpus=120, **SHORT)
    site.live(105)
    later = site.submit(gpus_per_node=2, cpus=28, **SHORT)
    site.live(140)
    assert site.events("stop", "preempt") == [("stop", "1"), ("preempt", "1")]
    assert site.states()[taker] == "RUNNING"
    site.live(400)
    assert ("end", later) in site.events()
    assert not site.events("start_failed")


def test_a_job_for_which_others_leave_says_so(tmp_path: Path) -> None:
    site = one_node(tmp_path)
    taker = site.submit(gpus_per_node=6, cpus=120, **SHORT)
    site.live(110)
    (told,) = (job for job in report(site.controller, "", ()).jobs if job["job"] == taker)
    assert (told["state"], told["reason"]) == ("pending", "starts on r0m0 once 1 has left")


def test_a_job_that_has_become_smaller_while_others_leave_for_it_starts_on_no_more(tmp_path: Path) -> None:
    site = FakeSite(tmp_path, racks([[8, 8]]), SHORT_LEASES)
    for _ in range(2):
        site.submit(gpus_per_node=8, **LONG, **SAVES)
    site.live(100)
    taker = site.submit(nodes=2, gpus_per_node=8, **SHORT)
    site.live(110)
    assert len(site.events("stop")) == 2
    site.slurm.update(taker, nodes=1)
    site.live(200)
    (start,) = (each for each in read_events(site.folder, taker) if each["event"] == "start")
    assert sum(start["gpus"].values()) == 8


def test_a_job_with_gpus_waits_for_the_cpus_of_one_that_is_stopped_beside_it(tmp_path: Path) -> None:
    site = one_node(tmp_path)
    site.submit(gpus_per_node=6, cpus=60, **SHORT)
    site.submit(gpus_per_node=2, cpus=60, **{**SHORT, "run_time_s": 50.0, "time_limit_s": 60.0})
    site.live(400)
    assert [job for _, job in site.events("start")] == ["1", "3", "2", "1"]
    assert not site.events("start_failed")


def test_nobody_is_stopped_for_cpus_that_a_job_which_makes_room_would_take_elsewhere(tmp_path: Path) -> None:
    site = FakeSite(tmp_path, racks([[8, 8]]), SHORT_LEASES, cpus=128)
    site.submit(gpus_per_node=8, cpus=4, **LONG, **SAVES)
    site.submit(gpus_per_node=4, cpus=100, **LONG, **SAVES)
    site.submit(gpus_per_node=4, cpus=4, **LONG)  # it cannot be stopped
    site.live(100)
    site.submit(nodes=2, gpus_per_node=4, cpus=60, **SHORT)  # beside the second on the first's node: too many
    site.live(1000)
    assert not site.events("stop")


@pytest.mark.parametrize("seed", range(2))
def test_no_start_is_refused_where_jobs_of_many_sizes_stop_each_other(tmp_path: Path, seed: int) -> None:
    random = Random(seed)
    site = FakeSite(tmp_path, racks([[8, 8], [8]]), SHORT_LEASES, cpus=64, memory_mb=100_000)

    def submit(site: FakeSite) -> None:
        run_time_s = random.choice([30.0, 60.0, 300.0, 1500.0])
        saves: dict[str, Any] = {
            "signal": "USR1",
            "grace_s": 60,
            "checkpoint_exit_s": random.choice([1.0, 30.0]),
        }
        site.submit(
            gpus_per_node=random.choice([1, 2, 4, 6, 8]),
            nodes=random.choice([1, 1, 2]),
            cpus=random.choice([4, 16, 40, 60]),
            memory_mb=random.choice([1_000, 30_000, 60_000, 90_000]),
            run_time_s=run_time_s,
            time_limit_s=2 * run_time_s,
            user=random.choice(["alice", "bob", "carol"]),
            **(saves if random.random() < 0.7 else {}),
        )

    arrivals = [(random.uniform(0, 1500), submit) for _ in range(30)]
    site.live(30_000, arrivals, poll_s=30.0, rest_s=0.5)
    assert site.events("preempt")
    assert not site.events("start_failed")
