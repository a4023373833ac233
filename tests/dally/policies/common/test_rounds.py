"""Rounds are held when they could change something, and bring about what was wanted with the fewest stops."""

from math import inf

import pytest

from dally.cluster.topology import Allocation
from dally.errors import InputError
from dally.jobs.job import Job
from dally.plan import Migrate, Preempt, Start
from dally.policies.common.rounds import Rounds, RoundTarget, handed_out, plan_round
from dally.profiles.costs import CostModel
from dally.state import ClusterState
from dally.testing.worlds import racks


def cluster(**running: Allocation) -> ClusterState:
    """Two machines of 4 GPUs, jobs that run, and one of 4 GPUs that waits; `stuck` is not preemptible."""
    topology = racks([[4, 4]])
    state = ClusterState(topology, CostModel(topology))
    for name, allocation in running.items():
        gpus = sum(count for _, count in allocation)
        state.submit(Job(name, 0.0, gpus, 1000.0, preemptible=name != "stuck"), 0.0)
        state.start(name, allocation, 0.0, 0.0, 1.0)
    state.submit(Job("w", 0.0, 4, 1000.0), 0.0)
    return state


def target(*allocation: tuple[int, int]) -> RoundTarget:
    return RoundTarget(allocation, "wanted")


class TestRounds:
    def test_whatever_waits_on_an_idle_cluster_need_not_wait_for_a_boundary(self) -> None:
        rounds, state = Rounds(360), cluster()
        assert rounds.due(state, 100.0)
        assert rounds.wakeup_s(state, 100.0, starts=True) == 360
        assert rounds.wakeup_s(state, 100.0) == inf, "nobody runs, so no time will help who waits"

    def test_who_comes_while_others_run_waits_for_the_boundary(self) -> None:
        rounds, state = Rounds(360), cluster(a=((0, 4),))
        assert not rounds.due(state, 100.0)
        assert rounds.wakeup_s(state, 100.0) == 360
        rounds.applied(state, 100.0)
        assert not rounds.due(state, 359.0)
        assert rounds.due(state, 360.0)
        assert rounds.due(state, 361.5), "a clock may wake late"

    def test_while_somebody_waits_each_boundary_is_a_round(self) -> None:
        rounds, state = Rounds(360), cluster(a=((0, 4),))
        for boundary in (360.0, 720.0, 1080.0):
            rounds.applied(state, boundary - 360)
            assert rounds.due(state, boundary)
            assert rounds.wakeup_s(state, boundary) == boundary + 360
            rounds.applied(state, boundary)
            assert not rounds.due(state, boundary)

    def test_once_all_run_one_more_round_sees_it_and_then_there_is_none_until_something_changes(self) -> None:
        rounds, state = Rounds(360), cluster(a=((0, 4),))
        state.start("w", ((1, 4),), 10.0, 0.0, 1.0)
        rounds.applied(state, 10.0)
        assert rounds.due(state, 360.0)
        rounds.applied(state, 360.0)
        assert not rounds.due(state, 720.0)
        assert rounds.wakeup_s(state, 720.0) == inf
        state.finish("a", 800.0)
        assert rounds.wakeup_s(state, 800.0) == 1080
        rounds.applied(state, 800.0)
        assert rounds.due(state, 1080.0)

    def test_a_change_of_the_machines_at_hand_is_a_change(self) -> None:
        rounds, state = Rounds(360), cluster(a=((0, 4),))
        state.withdraw("w")
        rounds.applied(state, 0.0)
        rounds.applied(state, 360.0)
        state.withhold(1, 4)
        rounds.applied(state, 400.0)
        assert rounds.due(state, 720.0)

    def test_a_restless_policy_is_asked_again_though_nothing_happens(self) -> None:
        rounds, state = Rounds(360), cluster(a=((0, 4),))
        state.withdraw("w")
        rounds.applied(state, 0.0)
        rounds.applied(state, 360.0, needs_next=lambda: True)
        assert rounds.wakeup_s(state, 500.0) == 720
        assert rounds.due(state, 720.0)

    def test_what_is_restored_is_due_as_before(self) -> None:
        rounds, state = Rounds(360), cluster(a=((0, 4),))
        rounds.applied(state, 100.0)
        twin = Rounds(360)
        twin.restore(rounds.snapshot())
        assert (twin.due(state, 359.0), twin.due(state, 360.0)) == (False, True)
        assert twin.snapshot() == rounds.snapshot()

    @pytest.mark.parametrize("round_s", [0, -1, inf, float("nan")])
    def test_a_round_has_a_length(self, round_s: float) -> None:
        with pytest.raises(InputError, match="must be a positive number"):
            Rounds(round_s)


class TestPlanRound:
    def test_who_has_what_it_is_to_have_is_left_alone(self) -> None:
        state = cluster(a=((0, 4),), b=((1, 2),))
        assert plan_round(state, {"a": target((0, 4)), "b": target((1, 2))}, "") == ()

    def test_others_start_and_move_and_those_in_their_way_stop_for_them(self) -> None:
        state = cluster(a=((0, 2),), b=((0, 2),), c=((1, 2),))
        plan = plan_round(state, {"w": target((0, 4)), "a": target((1, 2))}, "least priority")
        assert plan == (
            Preempt("b", ("w",), "least priority; its GPUs go to others"),
            Start("w", ((0, 4),), 0, "wanted"),
            Migrate("a", ((1, 2),), 0, "wanted"),
        ), "c has no target, but keeps what nobody needs"

    def test_a_job_that_must_not_be_preempted_keeps_its_gpus(self) -> None:
        state = cluster(stuck=((0, 4),), b=((1, 4),))
        with handed_out(state) as free:
            assert (free.on(0), free.on(1)) == (0, 4)
        assert state.free.total() == 0
        assert [type(each) for each in plan_round(state, {"w": target((1, 4))}, "")] == [Preempt, Start]

    def test_targets_that_do_not_fit_are_an_error(self) -> None:
        state = cluster(stuck=((0, 4),))
        with pytest.raises(AssertionError, match=r"more GPUs of machines \[0\] than there are"):
            plan_round(state, {"w": target((0, 4))}, "")
