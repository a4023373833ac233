"""MonkeyTree on cases small enough to compute by hand, and on random worlds with tight bounds."""

from dataclasses import replace

import pytest

from dally.errors import InputError
from dally.jobs.job import Job
from dally.policies.registry import parse_policy
from dally.testing.properties import every_job_ends_once_on_shared_links
from dally.testing.worlds import Result, racks, simulate
from tests.dally.policies.events import job, times
from tests.simulator.test_properties import on_worlds

ONES = racks([[1, 1, 1], [1], [1], [1], [1]])
"""One rack of three machines with a GPU each, and four of one."""


def crowd(*later: Job) -> list[Job]:
    """Gangs a and b start on a GPU of the first rack each, as one comes free, and one elsewhere; then c."""
    return [
        job("one", 1, 100),
        job("two", 1, 200),
        replace(job("a", 2, 9000), preemptible=False),
        *later,
        job("b", 2, 9000, 100),
        job("c", 3, 9000, 200),
    ]


def placed(result: Result, name: str) -> list[dict[str, int]]:
    """The GPUs of each start and move of a job."""
    return [
        each["gpus"]
        for each in result.events
        if each["event"] in ("start", "migrate") and each["job"] == name
    ]


def reasons(result: Result, event: str, name: str) -> list[str]:
    """What was said with the events of a job."""
    return [each["reason"] for each in result.events if each["event"] == event and each["job"] == name]


def test_a_third_fragment_makes_somebody_move() -> None:
    """At 200 s c would be on r0, r3 and r4; b, on r0 and r2, moves into r0, and c has what b leaves."""
    result = simulate("monkeytree", ONES, crowd())
    assert placed(result, "a") == [{"r0m2": 1, "r1m0": 1}]
    assert placed(result, "b") == [{"r0m0": 1, "r2m0": 1}, {"r0m0": 1, "r0m1": 1}]
    assert placed(result, "c") == [{"r2m0": 1, "r3m0": 1, "r4m0": 1}]
    assert times(result, "b", "migrate") == times(result, "c") == [200.0]
    assert result.by_job["b"].end_s == pytest.approx(100 + 9000 + 8)
    assert reasons(result, "migrate", "b") == [
        "r0 would have 3 cross-rack fragments; moving 1 of job b's 2 GPUs from r2 to r0 (8 s) brings it to 1"
    ]
    elsewhere = "; on r2, r3, r4 because else r0 would have 3 cross-rack fragments"
    assert reasons(result, "start", "c")[0].endswith(elsewhere)


def test_without_migration_nobody_moves() -> None:
    result = simulate("monkeytree:migrate=no", ONES, crowd())
    assert placed(result, "b") == [{"r0m0": 1, "r2m0": 1}]
    assert placed(result, "c") == [{"r0m1": 1, "r3m0": 1, "r4m0": 1}]


@pytest.mark.parametrize("policy", ["monkeytree", "monkeytree:migrate=no"])
def test_nobody_moves_where_a_start_can_go_elsewhere(policy: str) -> None:
    result = simulate(policy, racks([[1, 1, 1], [1], [1], [1], [1], [1]]), crowd())
    assert placed(result, "c") == [{"r3m0": 1, "r4m0": 1, "r5m0": 1}]
    assert not times(result, "b", "migrate")


def test_a_looser_bound_moves_nobody() -> None:
    assert not times(simulate("monkeytree:bound=3", ONES, crowd()), "b", "migrate")


def test_what_could_not_be_helped_is_mended_when_gpus_come_free() -> None:
    """At 200 s all GPUs are taken and only c may move; at 300 s d leaves r2."""
    jobs = [replace(each, preemptible=each.job_id == "c") for each in crowd(job("d", 1, 300))]
    jobs[-1] = replace(jobs[-1], gpus=2)
    result = simulate("monkeytree", ONES, jobs)
    assert placed(result, "c") == [{"r0m1": 1, "r4m0": 1}, {"r2m0": 1, "r4m0": 1}]
    assert times(result, "c", "migrate") == [300.0]


def test_machines_on_one_switch_are_fifo() -> None:
    topology = racks([[1, 1, 1], [1], [1], [1], [1]], depth=2)
    assert simulate("monkeytree", topology, crowd()).log == simulate("fifo", topology, crowd()).log


def test_later_jobs_may_be_backfilled() -> None:
    jobs = [job("long", 3, 1000), job("wide", 5, 100, 1), job("short", 1, 500, 2)]
    assert times(simulate("monkeytree", ONES, jobs), "short") == [1000.0]
    assert times(simulate("monkeytree:backfill=easy", ONES, jobs), "short") == [2.0]


def test_a_bound_below_0_is_refused() -> None:
    with pytest.raises(InputError, match=r"knob bound .* must be: whole number, at least 0"):
        parse_policy("monkeytree:bound=-1")


@pytest.mark.parametrize("bound", [0, 1])
def test_every_job_ends_where_hardly_any_may_lie_on_several_racks(bound: int) -> None:
    policy = f"monkeytree:bound={bound}"
    on_worlds("monkeytree", 20, lambda world: every_job_ends_once_on_shared_links(policy, world))
