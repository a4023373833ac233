"""What a job has done stays right when its speed changes while it runs."""

import pytest

from dally.jobs.job import Job, JobKind
from dally.profiles.costs import CostModel
from dally.state import ClusterState, JobState
from dally.testing.worlds import racks


def running(restart_s: float = 10.0, speed: float = 0.5) -> tuple[ClusterState, JobState]:
    """A job of 1,000 s that starts at 100 s."""
    topology = racks([[4]])
    state = ClusterState(topology, CostModel(topology))
    state.submit(Job("a", 0.0, 4, 1000.0), 0.0)
    return state, state.start("a", ((0, 4),), 100.0, restart_s, speed)


def test_work_done_before_a_change_of_speed_counts_at_the_speed_it_was_done_at() -> None:
    state, job = running()
    assert job.end_s() == 110 + 2000
    state.repace("a", 310.0, 0.25)
    assert job.work_s(310.0) == 100
    assert job.work_s(410.0) == 125
    assert job.end_s() == 310 + 900 / 0.25
    state.repace("a", 410.0, 1.0)
    assert job.end_s() == 410 + 875


def test_closed_machines_hold_no_gang_unless_nothing_else_does() -> None:
    topology = racks([[4, 4], [4, 4]])
    state = ClusterState(topology, CostModel(topology))
    pair, most = Job("a", 0.0, 8, 1.0).gang, Job("b", 0.0, 16, 1.0).gang
    for machine in (0, 2):
        assert state.best_open_level(pair) == 1
        state.withhold(machine, 0, closed=True)  # it drains; our jobs run there still
    assert [state.best_open_level(gang) for gang in (pair, most)] == [2, 2]
    assert state.best_level(pair) == 1
    state.withhold(2, 4)  # in others' hands, which is no reason not to wait for it
    assert state.best_open_level(pair) == 1


def test_holding_training_and_checkpoints_go_on_through_a_change_of_speed() -> None:
    state, job = running()
    state.repace("a", 310.0, 0.25)
    assert (job.since_s, job.ready_s, job.work_before_s) == (100, 110, 0)
    assert (job.run_s(410.0), job.training_s(410.0)) == (310, 300)
    assert job.network_sensitivity(410.0) == pytest.approx(125 / 300, abs=1e-6)
    state.stop("a", 410.0, job.work_s(410.0))
    assert (job.work_s(500.0), job.run_s(500.0), job.training_s(500.0)) == (125, 310, 300)
    state.start("a", ((0, 4),), 500.0, 0.0, 1.0)
    assert job.end_s() == 500 + 875


def test_a_change_of_speed_before_the_job_makes_progress_holds_from_its_first_work_on() -> None:
    state, job = running()
    state.repace("a", 105.0, 1.0)
    assert (job.work_s(110.0), job.end_s()) == (0, 1110)


def test_only_what_runs_has_a_speed() -> None:
    state, _ = running()
    state.finish("a", 200.0)
    state.submit(Job("b", 0.0, 4, 10.0), 200.0)
    with pytest.raises(AssertionError, match="job b is waiting, not running"):
        state.repace("b", 300.0, 1.0)


def test_a_forked_job_attains_service_on_all_its_copies() -> None:
    topology = racks([[2, 2, 2]])
    state = ClusterState(topology, CostModel(topology))
    job = state.submit(Job("f", 0.0, 2, 1000.0, kind=JobKind.FORKED, max_copies=3), 0.0)
    state.start("f", ((0, 2), (1, 2), (2, 2)), 0.0, 10.0, 3.0)
    assert (job.copies, job.attained_s(100.0), job.run_s(100.0)) == (3, 600, 100)
    assert (job.work_s(100.0), job.end_s()) == (270, 10 + 1000 / 3)
    state.stop("f", 100.0, 270.0)
    assert (job.copies, job.attained_s(500.0)) == (0, 600)
    state.start("f", ((1, 2),), 500.0, 0.0, 1.0)
    assert (job.attained_s(550.0), job.remaining_s(550.0)) == (700, 680)


def test_part_of_a_copy_cannot_start() -> None:
    topology = racks([[2, 2]])
    state = ClusterState(topology, CostModel(topology))
    state.submit(Job("f", 0.0, 2, 1000.0, kind=JobKind.FORKED, max_copies=3), 0.0)
    with pytest.raises(AssertionError, match=r"job f is waiting and cannot start on \[2, 1\] GPUs"):
        state.start("f", ((0, 2), (1, 1)), 0.0, 0.0, 1.0)


def test_an_elastic_job_runs_on_any_number_of_gpus_in_its_bounds_and_attains_what_it_holds() -> None:
    topology = racks([[4, 4]])
    state = ClusterState(topology, CostModel(topology))
    elastic = Job("e", 0.0, 2, 1000.0, kind=JobKind.ELASTIC, min_gpus=1, max_gpus=6)
    job = state.submit(elastic, 0.0)
    with pytest.raises(AssertionError, match=r"job e is waiting and cannot start on \[4, 3\] GPUs"):
        state.start("e", ((0, 4), (1, 3)), 0.0, 0.0, 1.0)
    state.start("e", ((0, 4), (1, 2)), 0.0, 0.0, 3.0)
    assert job.attained_s(100.0) == 600
    state.stop("e", 100.0, 300.0)
    state.start("e", ((0, 1),), 200.0, 0.0, 0.5)
    assert job.attained_s(300.0) == 700
    assert (job.run_s(300.0), job.work_s(300.0)) == (200, 350)
