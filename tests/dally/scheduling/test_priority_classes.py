"""Two machines of four GPUs; jobs have the priorities that a test gives them."""

import pytest

from dally.jobs.job import Job
from dally.plan import Plan, Preempt, Start, Wait
from dally.policies.registry import parse_policy
from dally.profiles.costs import CostModel
from dally.scheduling.scheduler import Scheduler
from dally.state import ClusterState
from dally.testing import racks


def scheduler(policy: str = "srsf-delay", ratio: float = 0.75) -> Scheduler:
    topology = racks([[4, 4]])
    state = ClusterState(topology, CostModel(topology), priority_ratio=ratio)
    return Scheduler(state, parse_policy(policy).build(state))


def submit(
    told: Scheduler, name: str, gpus: int, duration_s: float, priority: float, now: float = 0.0
) -> None:
    told.submit(Job(name, now, gpus, duration_s), now)
    told.set_priorities({name: priority}, now)


def carry_out(told: Scheduler, plan: Plan, now: float) -> None:
    """As the simulator does: stops, then starts, then waits."""
    for each in plan.decisions:
        if isinstance(each, Preempt):
            told.preempt(each.job_id, now)
    for each in plan.decisions:
        if isinstance(each, Start):
            told.start(each.job_id, each.allocation, now, 1.0)
        elif isinstance(each, Wait):
            told.wait_explained(each)
    told.plan_applied(now)


def step(told: Scheduler, now: float) -> tuple[list[str], dict[str, str]]:
    """Decide and carry that out: which jobs start, and why others wait."""
    plan = told.decide(now)
    carry_out(told, plan, now)
    starts = [each.job_id for each in plan.decisions if isinstance(each, Start)]
    return starts, {each.job_id: each.reason for each in plan.decisions if isinstance(each, Wait)}


def test_a_short_job_does_not_overtake_one_of_much_higher_priority() -> None:
    told = scheduler()
    submit(told, "long", 8, 9000.0, 400.0)
    submit(told, "short", 8, 100.0, 100.0)
    starts, waits = step(told, 0.0)
    assert starts == ["long"]
    assert waits["short"] == (
        "waits behind jobs of higher priority: its own, 100, is less than 0.75 of the 400 of job long"
    )


def test_within_a_class_the_policy_orders() -> None:
    told = scheduler()
    submit(told, "long", 8, 9000.0, 400.0)
    submit(told, "short", 8, 100.0, 300.0)
    assert step(told, 0.0)[0] == ["short"]


def test_a_ratio_of_0_lets_the_policy_order_all() -> None:
    told = scheduler(ratio=0.0)
    submit(told, "long", 8, 9000.0, 400.0)
    submit(told, "short", 8, 100.0, 1.0)
    assert step(told, 0.0)[0] == ["short"]


def test_the_next_class_has_its_turn_once_the_best_has_started() -> None:
    told = scheduler()
    submit(told, "best", 4, 9000.0, 400.0)
    submit(told, "next", 4, 9000.0, 100.0)
    plan = told.decide(0.0)
    assert [each.job_id for each in plan.decisions if isinstance(each, Start)] == ["best"]
    assert plan.wakeup_s == pytest.approx(1)
    carry_out(told, plan, 0.0)
    assert step(told, 1.0)[0] == ["next"]


@pytest.mark.parametrize("policy", ["srsf-delay:preempt=no", "fifo", "tiresias"])
def test_gpus_that_the_best_cannot_use_go_to_others_that_do_not_delay_it(policy: str) -> None:
    told = scheduler(policy)
    submit(told, "runs", 4, 1000.0, 400.0)
    assert step(told, 0.0)[0] == ["runs"]
    submit(told, "gang", 8, 500.0, 400.0, 1.0)
    submit(told, "too long", 4, 2000.0, 100.0, 1.0)
    submit(told, "ends before", 4, 900.0, 50.0, 1.0)
    plan = told.decide(1.0)
    starts = {each.job_id: each.reason for each in plan.decisions if isinstance(each, Start)}
    assert starts.keys() == {"ends before"}
    assert (
        "that no job of higher priority could use now; ends in 15 min, before job gang"
        in starts["ends before"]
    )


def test_gpus_that_the_best_could_use_are_left_to_it() -> None:
    """Gavel starts jobs in rounds: until the next one, what is free is not for others."""
    told = scheduler("gavel")
    submit(told, "runs", 4, 10_000.0, 400.0)
    assert step(told, 0.0)[0] == ["runs"]
    submit(told, "best", 4, 500.0, 400.0, 1.0)
    submit(told, "other", 1, 10.0, 100.0, 1.0)
    starts, waits = step(told, 1.0)
    assert starts == []
    assert waits["other"].startswith("waits behind")
    assert step(told, 360.0)[0] == ["best"]


def test_gpus_that_the_best_could_use_on_some_machines_are_no_reason_to_keep_others() -> None:
    told = scheduler("fifo")
    first, other = frozenset({"r0m0"}), frozenset({"r0m1"})
    for name, gpus, priority, names in (
        ("runs", 2, 400.0, first),
        ("large", 4, 400.0, first),
        ("small", 2, 400.0, first),
        ("there", 1, 100.0, first),
        ("elsewhere", 4, 100.0, other),
        ("anywhere", 1, 90.0, None),
    ):
        told.submit(Job(name, 0.0, gpus, 9000.0, machines=names), 0.0)
        told.set_priorities({name: priority}, 0.0)
    assert step(told, 0.0)[0] == ["runs", "elsewhere"]


def test_while_the_best_wait_elsewhere_those_behind_do_not_pass_their_own_first() -> None:
    told = scheduler("fifo")
    there, here = frozenset({"r0m0"}), frozenset({"r0m1"})
    for name, gpus, duration_s, priority, names in (
        ("runs there", 4, 90_000.0, 400.0, there),
        ("runs here", 2, 1000.0, 400.0, here),
        ("waits there", 4, 9000.0, 400.0, there),
        ("first here", 4, 5000.0, 100.0, here),
        ("long", 2, 1500.0, 90.0, here),
        ("short", 2, 900.0, 80.0, here),
    ):
        told.submit(Job(name, 0.0, gpus, duration_s, machines=names), 0.0)
        told.set_priorities({name: priority}, 0.0)
    assert step(told, 0.0)[0] == ["runs there", "runs here", "short"]
    told.finish("short", 900.0)
    told.finish("runs here", 1000.0)
    assert step(told, 1000.0)[0] == ["first here"]


def test_nobody_takes_the_gpus_of_a_job_of_much_higher_priority() -> None:
    told = scheduler("srtf")
    submit(told, "runs", 8, 90_000.0, 400.0)
    step(told, 0.0)
    submit(told, "low", 8, 10.0, 299.0, 5000.0)
    assert not any(isinstance(each, Preempt) for each in told.decide(5000.0).decisions)
    told.set_priorities({"low": 300.0}, 5001.0)
    assert any(isinstance(each, Preempt) for each in told.decide(5001.0).decisions)


def test_a_job_that_rises_is_the_policys_again_and_may_leave() -> None:
    told = scheduler()
    submit(told, "runs", 8, 90_000.0, 400.0)
    step(told, 0.0)
    submit(told, "best", 8, 90_000.0, 400.0, 1.0)
    submit(told, "low", 8, 90_000.0, 100.0, 1.0)
    step(told, 1.0)
    assert [*told.state.behind] == ["low"]
    told.set_priorities({"low": 390.0}, 2.0)
    _, waits = step(told, 2.0)
    assert [*told.state.waiting] == ["best", "low"]
    assert "behind" not in waits["low"], "its wait has another reason now"
    told.set_priorities({"low": 100.0}, 3.0)
    step(told, 3.0)
    told.withdraw("low", 4.0)
    assert "low" not in told.state.jobs
    assert not told.state.behind


def test_slurm_orders_by_priority_itself() -> None:
    told = scheduler("slurm:scheduler=builtin,switch_wait_s=0")
    submit(told, "first", 8, 100.0, 100.0)
    submit(told, "second", 8, 100.0, 110.0)
    starts, waits = step(told, 0.0)
    assert starts == ["second"]
    assert "behind" not in waits["first"]


@pytest.mark.parametrize("policy", ["hadar", "hadar-e", "gavel", "srsf-delay", "a-srpt"])
def test_costs_that_are_learnt_bring_no_job_forward(policy: str) -> None:
    told = scheduler(policy)
    submit(told, "best", 4, 9000.0, 400.0)
    submit(told, "behind", 4, 9000.0, 100.0)
    told.advance(0.0)
    told.policy.costs_revised(told.state, 0.0)
    decided = told.policy.decide(told.state, 0.0).decisions
    assert [each.job_id for each in decided] == ["best"]
