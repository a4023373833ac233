"""The table of jobs says the same as the jobs themselves."""

import pytest

from dally.jobs.job import Job
from dally.policies.hadar.job_table import JobTable
from dally.profiles.costs import CostModel
from dally.state import ClusterState, JobState
from dally.testing.worlds import racks

TOPOLOGY = racks([[8]], ("a",))


def state() -> ClusterState:
    return ClusterState(TOPOLOGY, CostModel(TOPOLOGY))


def put(table: JobTable, job: JobState) -> None:
    table.put(job, 2 * job.job.duration_s, 9.0)


def test_jobs_are_in_the_order_of_arrival_with_what_they_have_left() -> None:
    world, table = state(), JobTable(TOPOLOGY)
    jobs = [world.submit(Job(f"j{n}", 10.0 * n, 1 + n, 1000.0, gpu_type="a"), 10.0 * n) for n in range(3)]
    for job in reversed(jobs):
        put(table, job)
    world.start("j1", ((0, 2),), 50.0, 7.0, 0.5)
    put(table, jobs[1])
    view = table.view(157.0)
    assert [job.job_id for job in view.jobs] == ["j0", "j1", "j2"]
    assert view.remaining_s.tolist() == pytest.approx([job.remaining_s(157.0) for job in jobs])
    assert view.remaining_s[1] == pytest.approx(950.0)
    assert view.delay_s.tolist() == [9.0, 0.0, 9.0]
    assert view.types.all()


def test_a_running_job_makes_no_progress_before_it_has_restarted() -> None:
    world, table = state(), JobTable(TOPOLOGY)
    job = world.submit(Job("a", 0.0, 1, 1000.0), 0.0)
    world.start("a", ((0, 1),), 50.0, 7.0, 1.0)
    put(table, job)
    view = table.view(52.0)
    assert view.remaining_s.tolist() == [1000.0]
    assert view.delay_s.tolist() == [5.0]


def test_jobs_that_left_are_gone_and_the_others_stay_in_order() -> None:
    world, table = state(), JobTable(TOPOLOGY)
    jobs = [world.submit(Job(f"j{n}", 0.0, 1, 100.0 + n), 0.0) for n in range(200)]
    for job in jobs[:100]:
        put(table, job)
    for job in jobs[:100:2]:
        table.drop(job)
        table.drop(job)
    for job in jobs[100:]:
        put(table, job)
    expected = [*jobs[1:100:2], *jobs[100:]]
    view = table.view(0.0)
    assert len(table) == len(view) == 150
    assert view.jobs == expected
    assert view.work_s.tolist() == [job.job.duration_s for job in expected]


def test_jobs_that_ask_for_the_same_gang_share_its_number() -> None:
    world, table = state(), JobTable(TOPOLOGY)
    for name, gpus in (("a", 1), ("b", 2), ("c", 1)):
        put(table, world.submit(Job(name, 0.0, gpus, 100.0), 0.0))
    one, two, other = table.view(0.0).gang.tolist()
    assert one == other != two
