"""The engine on cases small enough to compute by hand."""

from io import StringIO
from math import inf

import pytest

from dally.errors import DallyError
from dally.jobs.job import Job
from dally.plan import Plan
from dally.policies.base import Policy
from dally.policies.dally.policy import DallyKnobs
from dally.policies.registry import parse_policy
from dally.profiles.costs import CostModel
from dally.profiles.files import load_profiles
from dally.runs.records import EventLog
from dally.scheduling.scheduler import Scheduler
from dally.state import ClusterState
from dally.testing.worlds import racks, simulate
from simulator.engine import Engine
from simulator.event_queue import EventQueue, Priority
from simulator.failures import Outage


def job(name: str, gpus: int, duration_s: float, submit_s: float = 0.0, model: str = "") -> Job:
    return Job(name, submit_s, gpus, duration_s, model=model)


def test_a_failure_loses_the_work_since_the_last_checkpoint() -> None:
    result = simulate("fifo", racks([[4]]), [job("a", 4, 5000)], [Outage(2000, 0, 2500)], checkpoint_s=600)
    record = result.by_job["a"]
    assert (record.lost_s, record.failures, record.preemptions) == (200, 1, 0)
    assert record.end_s == pytest.approx(2500 + (6 + 4) + (5000 - 1800))
    assert record.queue_s == pytest.approx(500)


def test_a_failure_moves_the_job_to_a_machine_that_is_up() -> None:
    result = simulate("fifo", racks([[4, 4]]), [job("a", 4, 5000)], [Outage(2000, 0, inf)], checkpoint_s=500)
    assert [list(e["gpus"]) for e in result.events if e["event"] == "start"] == [["r0m0"], ["r0m1"]]
    assert result.by_job["a"].end_s == pytest.approx(2000 + 10 + 3000)


def test_jobs_that_wait_for_a_machine_that_stays_down_are_reported_not_lost() -> None:
    outcome = simulate(
        "fifo", racks([[4]]), [job("a", 4, 5000), job("b", 1, 10)], [Outage(2000, 0, inf)]
    ).outcome
    assert not outcome.complete
    assert outcome.note == "2 jobs left waiting for machines that stay down"
    assert [record.status for record in outcome.records] == ["WAITING", "WAITING"]


def test_a_job_that_fails_again_and_again_before_its_first_checkpoint_is_given_up() -> None:
    outages = [Outage(1000.0 * n + 500, 0, 1000.0 * n + 600) for n in range(200)]
    record = simulate("fifo", racks([[4]]), [job("a", 4, 50_000)], outages, checkpoint_s=5000).by_job["a"]
    assert (record.status, record.failures) == ("FAILED", 100)


def test_communication_counts_the_time_that_the_network_exposes() -> None:
    profiles = load_profiles("dally")
    topology = racks([[4], [4]])
    request = job("a", 8, 10_000, model="mobilenetv3")
    result = simulate("fifo", topology, [request], profiles=profiles)
    record = result.by_job["a"]
    cost = CostModel(topology, profiles).cost(request, ((0, 4), (1, 4)))
    assert cost.slowdown == 1, "no placement of 8 GPUs is closer here"
    assert 0.5 < cost.exposed < 1
    assert record.comm_s == pytest.approx(cost.exposed * 10_000)


def test_a_far_placement_runs_longer_by_its_slowdown() -> None:
    profiles = load_profiles("dally")
    jobs = [job("x", 3, 1e6), job("y", 3, 1e6), job("a", 2, 1000, model="mobilenetv3")]
    result = simulate("fifo", racks([[4], [4]]), jobs, profiles=profiles)
    start = next(e for e in result.events if e["event"] == "start" and e["job"] == "a")
    assert start["slowdown"] > 10
    assert result.by_job["a"].run_s == pytest.approx(1000 * start["slowdown"], rel=1e-4)


class Lazy(Policy):
    """Never starts anything."""

    name = "lazy"
    knobs_type = DallyKnobs

    def __init__(self, knobs: DallyKnobs, state: ClusterState) -> None:
        self.knobs = knobs

    def decide(self, state: ClusterState, now: float) -> Plan:
        return Plan()


def test_a_policy_that_leaves_jobs_waiting_for_ever_is_an_error() -> None:
    topology = racks([[4]])
    state = ClusterState(topology, CostModel(topology))
    scheduler = Scheduler(state, Lazy(DallyKnobs(), state))
    engine = Engine(scheduler, [job("a", 1, 10)], EventLog(StringIO()))
    with pytest.raises(DallyError, match=r"1 job left waiting for ever \(a\): policy lazy never starts them"):
        engine.run()


def test_an_interrupted_run_keeps_what_it_has() -> None:
    topology = racks([[4]])
    state = ClusterState(topology, CostModel(topology))
    scheduler = Scheduler(state, parse_policy("fifo").build(state))
    jobs = [job("a", 4, 100), job("b", 4, 100), job("c", 4, 100), job("later", 4, 100, 1e6)]
    moments = iter([False, False, True])
    outcome = Engine(scheduler, jobs, EventLog(StringIO()), stop=lambda: next(moments)).run()
    statuses = {record.job_id: record.status for record in outcome.records}
    assert statuses == {"a": "COMPLETED", "b": "RUNNING", "c": "WAITING"}
    assert (outcome.complete, outcome.note) == (False, "interrupted")


def test_the_end_of_a_job_that_was_stopped_before_is_no_moment() -> None:
    """The long job would have ended at 1,000 s; stopped for the short one, it runs again then."""
    result = simulate("srtf", racks([[1]]), [job("long", 1, 1000), job("short", 1, 100, 500)])
    assert [each["t"] for each in result.events if each["event"] == "end"] == [600.0, 1107.0]
    assert result.outcome.moments == len({0, 500, 600, 1107})


def test_a_cancelled_event_never_was() -> None:
    queue: EventQueue[str] = EventQueue()
    first, second = queue.push(1, Priority.END, "first"), queue.push(2, Priority.END, "second")
    queue.push(3, Priority.END, "third")
    queue.cancel(second)
    assert queue.next_s == 1
    queue.cancel(first)
    assert queue.next_s == 3
    queue.push(0.5, Priority.END, "earlier than what was cancelled")
    assert [queue.pop()[1] for _ in range(2)] == ["earlier than what was cancelled", "third"]
    assert queue.next_s == inf


def test_events_at_one_moment_free_gpus_first() -> None:
    queue: EventQueue[str] = EventQueue()
    queue.push(5, Priority.FAILURE, "failure")
    queue.push(5, Priority.END, "end 1")
    queue.push(5, Priority.END, "end 2")
    queue.push(4, Priority.FAILURE, "earlier")
    queue.push(5, Priority.REPAIR, "repair")
    popped = [queue.pop()[1] for _ in range(5)]
    assert popped == ["earlier", "end 1", "end 2", "repair", "failure"]
    with pytest.raises(AssertionError, match="before now"):
        queue.push(4, Priority.END, "too late")
    assert queue.next_s == inf
