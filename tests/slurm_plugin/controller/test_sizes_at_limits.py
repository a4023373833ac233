"""Jobs of open size at a limit of their QOS: they start as large as it lets them, and stay in the queue."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from dally.testing.worlds import racks
from slurm_plugin.client.accounting_limits import AccountingLimits, Counted, ResourceLimit
from slurm_plugin.client.slurm import SlurmJob, State
from slurm_plugin.controller.limit_use import LimitUse
from slurm_plugin.controller.transitions import JobTransitions
from tests.slurm_plugin.worlds import FakeSite

FOUR = racks([[4, 4], [4, 4]])
LOW = frozenset({"low"})
PER_USER = ResourceLimit("MaxTRESPerUser of QOS low", 4, qos="low", qos_with_it=LOW, each="user")
SIZING = pytest.mark.parametrize("policy", ["elastic-scaling", "optimus:interval_s=60", "drl:interval_s=60"])


@pytest.fixture
def left_out(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often each job is taken out of the policy's queue."""
    counted, plain = Counter[str](), JobTransitions.set_ineligible

    def counting(self: JobTransitions, managed: Any, *rest: Any, **more: Any) -> None:
        counted[managed.job_id] += managed.phase.name == "pending"
        plain(self, managed, *rest, **more)

    monkeypatch.setattr(JobTransitions, "set_ineligible", counting)
    return counted


def limited(folder: Path, policy: str) -> FakeSite:
    site = FakeSite(folder, FOUR, policy, knowledge="limits")
    site.slurm.told_limits = (PER_USER,)
    site.slurm.most_gpus["low"] = 4
    return site


def open_size(site: FakeSite, least: int = 1, **spec: Any) -> str:
    asked: dict[str, Any] = {"gpus_per_node": 4, "qos": "low", "resumes": True, "checkpoint_exit_s": 1.0}
    return site.submit("", "USR1", 5, least=least, most=16, **{**asked, "time_limit_s": 900.0, **spec})


@SIZING
def test_a_job_of_open_size_starts_as_large_as_a_limit_lets_it(
    tmp_path: Path, policy: str, left_out: Counter[str]
) -> None:
    site = limited(tmp_path, policy)
    job = open_size(site, run_time_s=300.0)
    site.live(200)
    assert sum(site.nodes(job).values()) == 4
    assert not left_out[job]
    assert not site.events("start_failed", "stop")


@SIZING
def test_two_jobs_of_one_user_at_a_limit_do_not_take_turns_in_the_queue(
    tmp_path: Path, policy: str, left_out: Counter[str]
) -> None:
    site = limited(tmp_path, policy)
    jobs = [open_size(site, run_time_s=run_s) for run_s in (300.0, 200.0, 100.0)]
    site.submit(gpus_per_node=2, qos="low", run_time_s=50.0, time_limit_s=60.0)
    site.live(3000)
    assert set(site.states().values()) == {"COMPLETED"}
    assert max(left_out[job] for job in jobs) < 10
    assert not site.events("start_failed")


@SIZING
def test_a_running_job_does_not_grow_beyond_a_limit(tmp_path: Path, policy: str) -> None:
    site = limited(tmp_path, policy)
    rigid = site.submit(gpus_per_node=3, qos="low", run_time_s=400.0, time_limit_s=500.0)
    site.live(10)
    job = open_size(site, gpus_per_node=1, run_time_s=900.0, time_limit_s=2000.0)
    site.live(350)
    assert (site.states()[rigid], sum(site.nodes(job).values())) == ("RUNNING", 1)
    assert not site.events("stop", "start_failed")
    site.live(700)
    assert sum(site.nodes(job).values()) == 4


@pytest.mark.parametrize(
    ("change", "most"),
    [
        ({}, 8),
        ({"counted": Counted.MINUTES}, 0.8),
        ({"of": "cpu"}, float("inf")),
        ({"of": "job"}, float("inf")),
        ({"qos": "high", "qos_with_it": frozenset({"high"})}, float("inf")),
    ],
)
def test_the_most_gpus_that_one_job_could_have(change: dict[str, Any], most: float) -> None:
    what: dict[str, Any] = {"of": "gres/gpu", "qos": "low", "qos_with_it": LOW, **change}
    use = LimitUse(AccountingLimits((ResourceLimit("x", 8, **what),)), {}, {})
    assert use.most_gpus(SlurmJob("1", 0.0, State.PENDING, qos="low", time_limit_s=600.0)) == most
