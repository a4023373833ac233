"""No policy can keep a simulation from ending, and no healthy run is ended early."""

from collections.abc import Callable
from io import StringIO
from math import inf

import pytest

from dally.jobs.job import Job
from dally.plan import Plan, Preempt, Start
from dally.policies.base import Policy
from dally.policies.dally.policy import DallyKnobs
from dally.policies.registry import parse_policy, policy_names
from dally.profiles.costs import CostModel
from dally.runs.records import EventLog
from dally.scheduling.scheduler import Scheduler
from dally.state import ClusterState
from dally.testing.worlds import racks
from simulator.engine import Engine, Outcome
from simulator.failures import Outage, random_outages
from simulator.stall_detector import WINDOW

TOPOLOGY = racks([[4]])


class EndlessTurns(Policy):
    """Whoever waits takes the GPUs of whoever runs, every so often."""

    name = "turns"
    knobs_type = DallyKnobs
    starts = True
    wide = ((0, 4),)

    def __init__(self, turn: Callable[[float], float]) -> None:
        self.turn = turn

    def decide(self, state: ClusterState, now: float) -> Plan:
        wakeup_s = now + self.turn(now) if state.jobs else inf
        if not self.starts or not state.waiting or state.withheld:
            return Plan(wakeup_s=wakeup_s)
        name = next(iter(state.waiting))
        stops = [Preempt(other, (name,), "its turn is over") for other in state.running]
        return Plan((*stops, Start(name, self.wide, 0, "its turn")), wakeup_s)


class Idle(EndlessTurns):
    """Asks for ever, and starts nobody."""

    name = "idle"
    starts = False


def run(policy: Policy, outages: list[Outage] | None = None, duration_s: float = 40_000) -> Outcome:
    """Three jobs of all GPUs; a restart takes 6 + 4 seconds."""
    state = ClusterState(TOPOLOGY, CostModel(TOPOLOGY))
    jobs = [Job(name, 0.0, 4, duration_s) for name in ("a", "b", "c")]
    return Engine(Scheduler(state, policy), jobs, EventLog(StringIO()), outages or ()).run()


def test_turns_shorter_than_the_restart_end_the_run_with_a_line() -> None:
    outcome = run(EndlessTurns(lambda now: 10.0))
    assert not outcome.complete
    assert outcome.note == (
        "nothing gets done since 50000 s: 5,000 decisions with 5,000 preemptions ended no job, and of "
        "13 h 53 min with GPUs 3 jobs trained 0 s (preemptions: a 1,667, c 1,667, b 1,666)"
    )
    assert [record.status for record in outcome.records] == ["WAITING", "RUNNING", "WAITING"]


def test_ever_smaller_steps_end_the_run() -> None:
    outcome = run(EndlessTurns(lambda now: 1e-6))
    assert not outcome.complete
    assert outcome.moments <= 2 * WINDOW + 1


def test_asking_for_ever_and_starting_nobody_ends_the_run() -> None:
    outcome = run(Idle(lambda now: 30.0))
    assert "with 0 preemptions ended no job, and of 0 s with GPUs 3 jobs trained 0 s" in outcome.note


def test_turns_a_little_longer_than_the_restart_are_slow_and_end() -> None:
    outcome = run(EndlessTurns(lambda now: 11.0), duration_s=5_000)
    assert outcome.complete
    assert outcome.moments > 2 * WINDOW


def test_many_decisions_on_jobs_that_train_are_healthy() -> None:
    state = ClusterState(TOPOLOGY, CostModel(TOPOLOGY))

    class Restless(EndlessTurns):
        def decide(self, state: ClusterState, now: float) -> Plan:
            return super().decide(state, now) if not state.running else Plan(wakeup_s=now + 1)

    jobs = [Job("a", 0.0, 4, 3.0 * WINDOW)]
    assert Engine(Scheduler(state, Restless(lambda now: 1.0)), jobs, EventLog(StringIO())).run().complete


def test_a_machine_that_is_repaired_late_is_waited_for() -> None:
    repair_s = 100.0 * WINDOW
    assert run(EndlessTurns(lambda now: 30.0), [Outage(0.0, 0, repair_s)], duration_s=20).complete


def test_a_machine_that_stays_down_is_not() -> None:
    assert "nothing gets done" in run(EndlessTurns(lambda now: 30.0), [Outage(0.0, 0, inf)]).note


@pytest.mark.parametrize("policy", ["fifo", "tiresias", "gandiva", "dally", "gavel"])
def test_restarts_of_ten_minutes_and_failures_each_hour_are_healthy(policy: str) -> None:
    topology = racks([[4, 4]])
    state = ClusterState(topology, CostModel(topology, restart_s=600.0))
    scheduler = Scheduler(state, parse_policy(policy).build(state))
    outages = random_outages(topology, 7200.0, 600.0, seed=1)
    jobs = [Job(f"j{number}", 60.0 * number, 1 + 3 * number % 8, 30_000) for number in range(12)]
    outcome = Engine(scheduler, jobs, EventLog(StringIO()), outages, checkpoint_s=600.0).run()
    assert outcome.note == ""


EIGHTS = racks([[8] * 4] * 2)
"""64 GPUs."""


def run_on_eights(policy: str, jobs: list[Job], outages: list[Outage] | None = None) -> Outcome:
    state = ClusterState(EIGHTS, CostModel(EIGHTS, restart_s=600.0))
    scheduler = Scheduler(state, parse_policy(policy).build(state))
    return Engine(scheduler, jobs, EventLog(StringIO()), outages or ()).run()


@pytest.mark.parametrize("policy", policy_names())
def test_gangs_of_all_gpus_mostly_train_though_a_restart_takes_ten_minutes(policy: str) -> None:
    outcome = run_on_eights(policy, [Job(f"j{number}", number, 64, 5_000) for number in range(12)])
    assert outcome.note == ""
    restarts_s = sum(record.restart_s for record in outcome.records)
    assert restarts_s < 0.3 * sum(record.run_s for record in outcome.records)


@pytest.mark.parametrize(
    "policy", ["dally:lease_s=600", "gandiva:slice_s=600", "tiresias:quantum_restarts=0"]
)
def test_turns_as_long_as_a_restart_of_ten_minutes_end(policy: str) -> None:
    outcome = run_on_eights(policy, [Job(f"j{number}", number, 64, 5_000) for number in range(12)])
    assert outcome.note == ""


@pytest.mark.parametrize("policy", policy_names())
def test_a_gang_that_never_fits_again_ends_the_run_with_a_line(policy: str) -> None:
    jobs = [Job(f"j{number}", 60.0 * number, 64 if number % 4 else 8, 2_000) for number in range(8)]
    outcome = run_on_eights(policy, jobs, [Outage(100.0, 0, inf)])
    assert not outcome.complete
    assert "left waiting for machines that stay down" in outcome.note or "nothing gets done" in outcome.note
