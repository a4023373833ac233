"""Priorities of held jobs: as Slurm 22.05.8 gave those that nobody held, and what that changes."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dally.testing.worlds import racks
from slurm_plugin.client.slurm import Partition, PriorityFactors, SlurmJob, State
from slurm_plugin.controller.job_priorities import priority_of
from tests.slurm_plugin.worlds import FakeSite

FACTORS = PriorityFactors(
    weight_age=1000,
    weight_fair_share=10_000,
    weight_job_size=100,
    weight_partition=500,
    weight_qos=2000,
    partitions={"gpu": 1 / 7, "night": 1.0},
    qos={"normal": 0.0, "high": 1.0},
    fair_share={("text", "root"): 0.0, ("vision", "alice"): 0.5},
)
CLUSTER = 2, 32
BY_QOS = PriorityFactors(weight_qos=1000, qos={"low": 0.1, "fair": 0.9, "high": 1.0})


@pytest.mark.parametrize(
    ("job", "priority"),
    [
        (SlurmJob("1", 0.0, State.PENDING, partition="gpu", min_nodes=2, tasks=2), 124),
        (SlurmJob("5", 0.0, State.PENDING, partition="gpu", tasks=3), 101),
        (SlurmJob("3", 0.0, State.PENDING, partition="gpu,night", min_nodes=2, tasks=2, nice=-5), 558),
        (
            SlurmJob("4", 0.0, State.PENDING, partition="night", qos="high", min_nodes=2, tasks=2, nice=100),
            2453,
        ),
    ],
)
def test_a_held_job_has_the_priority_that_slurm_gives_one_like_it(job: SlurmJob, priority: int) -> None:
    assert priority_of(job, 0.0, FACTORS, CLUSTER, 0.0) == pytest.approx(priority, abs=1)


def test_age_and_fair_share_count() -> None:
    job = SlurmJob("7", 0.0, State.PENDING, user="alice", account="vision", partition="night")
    young = priority_of(job, 0.0, FACTORS, CLUSTER, 0.0)
    assert young == pytest.approx(5000 + 500 + 100 * (1 / 2 + 1 / 32) / 2)
    week_s = 7 * 86_400.0
    assert priority_of(job, 0.0, FACTORS, CLUSTER, week_s / 2) == pytest.approx(young + 500)
    assert priority_of(job, 0.0, FACTORS, CLUSTER, 5 * week_s) == pytest.approx(young + 1000)


def test_small_jobs_may_be_favoured_and_nobody_falls_below_1() -> None:
    small = PriorityFactors(weight_job_size=100, favors_small=True)
    assert priority_of(SlurmJob("7", 0.0, State.PENDING), 0.0, small, (10, 0), 0.0) == pytest.approx(90)
    nice = SlurmJob("7", 0.0, State.PENDING, nice=1000)
    assert priority_of(nice, 0.0, small, (10, 0), 0.0) == 1


def site(folder: Path, ratio: float = 0.75, factors: PriorityFactors | None = BY_QOS) -> FakeSite:
    found = FakeSite(folder, racks([[4, 4]]), policy="srtf", priority_ratio=ratio)
    found.slurm.factors = factors
    return found


def in_line(found: FakeSite) -> tuple[str, str, str]:
    """A job that has the cluster for 100 s, behind it a long one of the best QOS and a short one of low."""
    first = found.submit(gpus_per_node=4, nodes=2, run_time_s=100.0, time_limit_s=120.0, qos="high")
    found.live(5)
    long = found.submit(gpus_per_node=4, nodes=2, run_time_s=300.0, time_limit_s=360.0, qos="high")
    short = found.submit(gpus_per_node=4, nodes=2, run_time_s=50.0, time_limit_s=60.0, qos="low")
    found.live(10)
    return first, long, short


def test_a_job_of_much_lower_priority_waits_behind(tmp_path: Path) -> None:
    found = site(tmp_path)
    _, long, short = in_line(found)
    assert found.managed(short).reason == (
        f"waits behind jobs of higher priority: its own, 100, is less than 0.75 of the 1,000 of job {long}"
    )
    found.live(150)
    assert (found.states()[long], found.states()[short]) == ("RUNNING", "PENDING")
    found.live(600)
    assert found.states()[short] == "COMPLETED"


def test_with_a_ratio_of_0_the_policy_orders(tmp_path: Path) -> None:
    found = site(tmp_path, ratio=0.0)
    _, long, short = in_line(found)
    found.live(130)
    assert (found.states()[long], found.states()[short]) == ("PENDING", "RUNNING")


def test_a_job_is_not_stopped_for_one_of_much_lower_priority(tmp_path: Path) -> None:
    found = site(tmp_path)
    asked: dict[str, Any] = {"gpus_per_node": 4, "nodes": 2}
    runs = found.submit(
        "", "USR1", 20, run_time_s=900.0, time_limit_s=1000.0, checkpoint_exit_s=1.0, qos="high", **asked
    )
    found.live(300)
    low = found.submit(run_time_s=20.0, time_limit_s=30.0, qos="low", **asked)
    found.live(400)
    assert (found.states()[runs], found.states()[low]) == ("RUNNING", "PENDING")
    assert not found.events("stop")
    fair = found.submit(run_time_s=20.0, time_limit_s=30.0, qos="fair", **asked)
    found.live(450)
    assert found.states()[fair] in ("RUNNING", "COMPLETED")
    assert found.events("preempt")


def test_a_new_controller_knows_the_priority_of_what_runs(tmp_path: Path) -> None:
    found = site(tmp_path)
    runs = found.submit(gpus_per_node=4, nodes=2, run_time_s=900.0, qos="high")
    found.live(20)
    found.restart()
    found.live(30)
    assert found.controller.scheduler.state.jobs[runs].priority == 1000


def test_fair_shares_are_read_anew_soon_after_jobs_came_or_ended(tmp_path: Path) -> None:
    shares = {("idle", "bob"): 0.5, ("busy", "bob"): 0.5}
    found = site(tmp_path, factors=PriorityFactors(weight_fair_share=1000, period_s=100, fair_share=shares))
    asked: dict[str, Any] = {"gpus_per_node": 4, "nodes": 2, "run_time_s": 60.0, "user": "bob"}
    first = found.submit(account="busy", time_limit_s=90.0, **asked)
    found.live(5)
    busy = found.submit(account="busy", time_limit_s=60.0, **asked)
    idle = found.submit(account="idle", time_limit_s=300.0, **asked)
    found.slurm.factors = PriorityFactors(
        weight_fair_share=1000, period_s=100, fair_share=shares | {("busy", "bob"): 0.1}
    )
    found.live(30)
    jobs = found.controller.scheduler.state.jobs
    assert (jobs[first].priority, jobs[busy].priority, jobs[idle].priority) == (500, 100, 500)
    found.live(70)
    assert (found.states()[idle], found.states()[busy]) == ("RUNNING", "PENDING")


def test_the_age_of_a_job_that_waits_goes_on_counting(tmp_path: Path) -> None:
    found = site(tmp_path, factors=PriorityFactors(weight_age=1000, max_age_s=10_000))
    found.submit(gpus_per_node=4, nodes=2, run_time_s=5000.0)
    waits = found.submit(gpus_per_node=4, nodes=2, run_time_s=5000.0)
    found.live(1000)
    assert found.controller.scheduler.state.jobs[waits].priority == pytest.approx(90, abs=31)


def test_factors_that_cannot_be_read_are_told_once_and_the_last_ones_hold(tmp_path: Path) -> None:
    found = site(tmp_path)
    in_line(found)
    found.slurm.factors = None
    late = found.submit(gpus_per_node=4, nodes=2, run_time_s=2000.0, qos="fair")
    found.live(1500)
    assert found.controller.scheduler.state.jobs[late].priority == 900
    assert found.events("priorities_unread") == [("priorities_unread", "")]


def test_nothing_is_read_where_priorities_do_not_count(tmp_path: Path) -> None:
    found = site(tmp_path, ratio=0.0, factors=None)
    in_line(found)
    found.live(700)
    assert not found.events("priorities_unread")


def test_a_job_that_something_else_kept_has_its_priority_of_now_when_it_comes_back(tmp_path: Path) -> None:
    found = site(tmp_path)
    _, long, short = in_line(found)
    found.slurm.rules = {"gpu": Partition("gpu", denied_qos=frozenset({"high"}))}
    found.slurm.factors = replace(BY_QOS, qos={"high": 0.1, "low": 0.1})
    found.live(90)
    found.restart()  # it reads the factors
    found.live(95)
    found.slurm.rules = {}
    found.live(100)
    jobs = found.controller.scheduler.state.jobs
    assert [jobs[each].priority for each in (long, short)] == [100, 100]
