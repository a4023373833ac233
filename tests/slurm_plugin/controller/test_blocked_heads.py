"""A job that cannot start, as its nodes are taken, holds these and no other, whatever the policy's order."""

from pathlib import Path
from typing import Any

import pytest

from dally.policies.registry import policy_names
from dally.testing.worlds import racks
from slurm_plugin.client.slurm import Reservation
from slurm_plugin.controller.managed_job import JobPhase
from tests.slurm_plugin.fake_job import SubmitSpec
from tests.slurm_plugin.worlds import FakeSite

FOUR = racks([[4, 4], [4, 4]])
FIRST, SECOND, THIRD, FOURTH = (machine.name for machine in FOUR.machines)
STRICT = ("fifo", "sjf", "srtf", "monkeytree", "a-srpt", "elastic-scaling", "drl")


def course(folder: Path, policy: str) -> FakeSite:
    """A site that keeps its first two nodes for a course, where they have a feature, too."""
    fast = {FIRST: ("fast",), SECOND: ("fast",)}
    site = FakeSite(folder, FOUR, policy, knowledge="limits", features=fast)
    site.slurm.reserve(Reservation("course", (FIRST, SECOND), 0.0, 90_000.0), "alice")
    return site


def submit(site: FakeSite, seconds: float, **spec: Any) -> str:
    return site.submit(**{"gpus_per_node": 4, "run_time_s": seconds, "time_limit_s": seconds + 60, **spec})


@pytest.mark.parametrize("policy", policy_names())
def test_a_job_of_a_full_reservation_holds_up_nobody_else(tmp_path: Path, policy: str) -> None:
    site = course(tmp_path, policy)
    for _ in range(2):
        submit(site, 3000.0, reservation="course")
    site.live(30)
    waits = submit(site, 4000.0, reservation="course")
    site.live(60)
    other = submit(site, 4500.0)
    site.live(700, poll_s=20.0)
    assert site.states()[waits] == "PENDING"
    assert {*site.nodes(other)} <= {THIRD, FOURTH}


@pytest.mark.parametrize("policy", STRICT)
def test_nobody_passes_a_job_on_the_nodes_that_it_waits_for(tmp_path: Path, policy: str) -> None:
    site = FakeSite(tmp_path, FOUR, policy, knowledge="limits", features={FIRST: ("x",), SECOND: ("x",)})
    runs = submit(site, 1000.0, constraint="x")
    site.live(30)
    (held,) = site.nodes(runs)
    free = SECOND if held == FIRST else FIRST
    pair = submit(site, 4000.0, nodes=2, constraint="x")
    site.live(60)
    others = [submit(site, 9500.0 + 100 * each) for each in range(4)]
    site.live(700, poll_s=20.0)
    assert [site.states()[job] for job in others] == ["RUNNING"] * 2 + ["PENDING"] * 2
    assert not any(free in site.nodes(job) for job in others)
    site.live(1500, poll_s=20.0)
    assert {*site.nodes(pair)} == {FIRST, SECOND}


@pytest.mark.parametrize("policy", STRICT)
def test_a_job_of_a_gpu_type_keeps_gpus_of_that_type_and_no_others(tmp_path: Path, policy: str) -> None:
    site = FakeSite(tmp_path, racks([[4, 4], [4, 4]], ("a100", "v100")), policy, knowledge="limits")
    runs = submit(site, 1000.0, gpu_type="a100")
    site.live(30)
    pair = submit(site, 4000.0, nodes=2, gpu_type="a100")
    site.live(60)
    of_its_type = submit(site, 9300.0, gpu_type="a100")
    of_any = submit(site, 9400.0)
    of_another = submit(site, 9500.0, gpu_type="v100")
    site.live(700, poll_s=20.0)
    states = site.states()
    assert [states[job] for job in (runs, pair, of_its_type)] == ["RUNNING", "PENDING", "PENDING"]
    assert {*site.nodes(of_any), *site.nodes(of_another)} == {"r0m1", "r1m1"}
    site.live(1500, poll_s=20.0)
    assert {*site.nodes(pair)} == {"r0m0", "r1m0"}


@pytest.mark.parametrize("policy", STRICT)
def test_a_job_of_large_nodes_keeps_those_and_no_smaller_ones(tmp_path: Path, policy: str) -> None:
    site = FakeSite(tmp_path, racks([[8, 4], [8, 4]]), policy, knowledge="limits")
    submit(site, 1000.0, gpus_per_node=8)
    site.live(30)
    pair = submit(site, 4000.0, nodes=2, gpus_per_node=8)
    site.live(60)
    small = [submit(site, 19500.0 + each) for each in range(3)]
    site.live(700, poll_s=20.0)
    assert [site.states()[job] for job in (pair, *small)] == ["PENDING", "RUNNING", "RUNNING", "PENDING"]
    assert {*site.nodes(small[0]), *site.nodes(small[1])} == {"r0m1", "r1m1"}
    site.live(1500, poll_s=20.0)
    assert {*site.nodes(pair)} == {"r0m0", "r1m0"}


def test_what_slurms_oldest_job_leaves_to_shorter_ones_a_longer_one_before_them_does_not_hold(
    tmp_path: Path,
) -> None:
    site = FakeSite(tmp_path, FOUR, "fifo")
    site.slurm.in_order = True
    plain: dict[str, Any] = {"gpus_per_node": 4, "run_time_s": 100, "user": "bob", "held": False}
    site.slurm.submit(SubmitSpec(nodes=2, time_limit_s=600, **plain))
    site.slurm.submit(SubmitSpec(nodes=1, time_limit_s=1200, **plain))
    own = site.slurm.submit(SubmitSpec(nodes=3, time_limit_s=600, **plain))
    site.run_to(1)
    long = submit(site, 3600.0)
    site.run_to(5)
    assert site.managed(long).phase.name is JobPhase.PENDING
    short = submit(site, 50.0)
    site.run_to(10)
    assert site.states() == {
        "1": "RUNNING",
        "2": "RUNNING",
        own: "PENDING",
        long: "PENDING",
        short: "RUNNING",
    }


def test_sizes_are_found_for_gpus_that_jobs_may_have_and_not_for_those_reserved_for_others(
    tmp_path: Path,
) -> None:
    """Else a job would be promised GPUs that there are not, and nobody would give it any."""
    site = course(tmp_path, "elastic-scaling:interval_s=60")
    submit(site, 3000.0, reservation="course")
    submit(site, 3000.0, reservation="course", nodes=2)  # for it the policy is given what is left there
    site.live(10)
    asked: dict[str, Any] = {"signal": "USR1", "grace_s": 5, "checkpoint_exit_s": 1.0, "run_time_s": 9000.0}
    first = site.submit(least=1, most=8, gpus_per_node=4, **asked)
    site.live(30)
    assert site.nodes(first) == {THIRD: 4, FOURTH: 4}
    second = site.submit(least=4, most=8, gpus_per_node=4, **asked)
    site.live(400)
    assert [sum(site.nodes(job).values()) for job in (first, second)] == [4, 4]
