"""Jobs that share links in the engine, on cases small enough to compute by hand."""

from dataclasses import replace

import pytest

from dally.cluster import scaled_links
from dally.jobs.job import Job
from dally.policies.common.in_order import InOrder
from dally.policies.registry import parse_policy
from dally.profiles.costs import CostModel
from dally.profiles.files import ProfileSet, load_profiles
from dally.profiles.schema import Compute, Model, Restart
from dally.scheduling.scheduler import Scheduler
from dally.state import ClusterState
from dally.testing.worlds import Result, racks, simulate
from simulator.failures import Outage

RACKS = scaled_links(racks([[1, 1], [1, 1], [1]]), 0.001)
"""Machines of one GPU: 200 Mb/s up from each, 100 Mb/s up from a rack."""

FILLERS = (
    Job("left", 0.0, 1, 5.0),
    Job("left too", 0.0, 1, 1.0),
    Job("right", 0.0, 1, 5.0),
    Job("right too", 0.0, 1, 1.0),
    Job("third", 0.0, 1, 200.0),
)
"""They make way such that `a`, then `b`, gets a GPU in each of the first two racks."""


def talkers(restart: Restart | None = None) -> ProfileSet:
    """A model that only communicates: twice as long over racks as in one."""
    model = Model("talker", None, None, 100_000_000, None, None, (), None)
    first = load_profiles("dally").profiles[0]
    compute = Compute(None, 1e-6, None, None, None)
    talker = replace(first, model=model, compute=compute, tiers={}, restart=restart or Restart())
    return ProfileSet("test", (talker,))


def job(name: str, submit_s: float) -> Job:
    return Job(name, submit_s, 2, 1000.0, model="talker")


def run(policy: str = "fifo", *outages: Outage, contention: bool = True) -> Result:
    jobs = [*FILLERS, job("a", 1.0), job("b", 101.0)]
    return simulate(policy, RACKS, jobs, outages, talkers(), contention=contention)


def test_jobs_that_share_an_uplink_run_at_half_their_pace_while_both_do() -> None:
    records = run().by_job
    # Alone each needs 2 s for a second of work, both together 4.
    alone_s, both_s = 100.0, 4 * (1000 - 50)
    assert records["a"].run_s == pytest.approx(alone_s + both_s, rel=1e-3)
    assert records["b"].run_s == pytest.approx(alone_s + both_s, rel=1e-3)
    assert records["a"].comm_s == pytest.approx(records["a"].run_s, rel=1e-3)
    assert records["a"].levels == "network:1"


def test_each_change_of_pace_is_told() -> None:
    paces = [(e["t"], e["job"], round(e["slowdown"], 2)) for e in run().events if e["event"] == "pace"]
    assert sorted(paces[:2]) == [(101, "a", 4), (101, "b", 4)]
    assert paces[2][1:] == ("b", 2)


def test_jobs_that_share_nothing_run_as_without() -> None:
    jobs = [*FILLERS, job("a", 1.0)]
    runs = [simulate("fifo", RACKS, jobs, (), talkers(), contention=each) for each in (False, True)]
    assert runs[0].log == runs[1].log
    assert runs[0].outcome == runs[1].outcome


def test_a_failure_after_a_change_of_pace_still_loses_what_no_checkpoint_holds() -> None:
    """Of 600 s between checkpoints 50 are done alone and 100 beside another job."""
    event = next(e for e in run("fifo", Outage(501.0, 1, 600.0)).events if e["event"] == "fail")
    assert event["job"] == "a"
    assert event["lost_s"] == pytest.approx(150, rel=1e-3)


@pytest.mark.parametrize("policy", ["fifo", "sjf", "srtf", "slurm"])
def test_policies_that_foretell_ends_follow_the_pace(policy: str) -> None:
    state = ClusterState(RACKS, CostModel(RACKS, talkers()))
    scheduler = Scheduler(state, parse_policy(policy).build(state))
    for place, name in enumerate("ab"):
        scheduler.submit(job(name, 0.0), 0.0)
        scheduler.start(name, ((place, 1), (place + 2, 1)), 0.0, 0.5)
    scheduler.repace("a", 100.0, 0.25)
    assert isinstance(scheduler.policy, InOrder)
    assert [each.job_id for each in scheduler.policy.ends] == ["b", "a"]
    assert scheduler.policy.ends.first_key() == 2000
    scheduler.finish("a", 200.0)
    assert len(scheduler.policy.ends) == 1


def test_gandiva_does_not_move_a_job_that_only_its_neighbours_slow_down() -> None:
    """When the filler in the third rack ends, GPUs come free that are no closer."""
    jobs = [*FILLERS, job("a", 1.0), job("b", 4.0)]
    events = simulate("gandiva", RACKS, jobs, (), talkers(), contention=True).events
    assert [e["job"] for e in events if e["event"] == "pace"]
    assert not [e for e in events if e["event"] == "migrate" and e["level"] == "network"]


def test_a_first_start_costs_what_the_profile_says_and_a_restart_the_rest() -> None:
    restart = Restart(first_s=20.0, first_per_gpu_s=2.0)
    jobs = [Job("a", 0.0, 2, 1000.0, model="talker")]
    result = simulate("fifo", racks([[2]]), jobs, [Outage(700.0, 0, 800.0)], talkers(restart), 600.0)
    record = result.by_job["a"]
    assert record.restart_s == (20 + 2 * 2) + (6 + 2)
    assert record.lost_s == 700 - 24 - 600
    assert record.end_s == 800 + 8 + 400
