"""HadarE: copies on idle machines, one each when there are too few, and what a change costs."""

from dataclasses import replace

import pytest

from dally.errors import InputError
from dally.jobs.job import Job, JobKind
from dally.policies.registry import parse_policy
from dally.profiles.files import load_profiles
from dally.testing.worlds import Result, racks, simulate
from tests.dally.policies.events import job, times
from tests.dally.policies.hadar.test_policy import cluster, placed

GAVEL = load_profiles("gavel")
MODEL = "resnet-50"


def forked(name: str, duration_s: float, submit_s: float = 0.0, copies: int = 5, model: str = "") -> Job:
    plain = job(name, 1, duration_s, submit_s, model)
    return replace(plain, kind=JobKind.FORKED, max_copies=copies)


def lost(copies: int) -> float:
    """How many times longer training takes that loses 10 s of 360 and the transfer of an unknown model."""
    link = racks([[1]]).level_domains[0][0].uplink
    assert link is not None
    transfer_s = 4 * (copies - 1) / copies * 8 * 400e6 / link.bandwidth_bps
    return 360 / (360 - 10 - transfer_s)


def run(jobs: list[Job], *machines: int, policy: str = "hadar-e") -> Result:
    return simulate(policy, racks([machines]), jobs)


def test_a_lone_job_trains_a_copy_on_each_machine_and_ends_so_many_times_sooner() -> None:
    result = run([forked("a", 3000)], 1, 1, 1)
    assert placed(result, "a") == ["r0m0+r0m1+r0m2"]
    assert result.by_job["a"].end_s == pytest.approx(1000 * lost(3))


def test_copies_on_types_of_unequal_speed_add_their_speeds() -> None:
    result = simulate("hadar-e", cluster(1, 1, 1), [forked("a", 3000, model=MODEL)], profiles=GAVEL)
    v100_s, p100_s, k80_s = 0.12841479138740497, 0.20456910475738363, 0.8086893495910208
    speed = 1 + v100_s / p100_s + v100_s / k80_s
    assert result.by_job["a"].end_s == pytest.approx(3000 / speed * lost(3), rel=1e-3)


def test_no_job_has_more_copies_than_it_may_nor_forks_if_it_is_not_forked() -> None:
    result = run([forked("a", 9000, copies=2), job("b", 1, 9000)], 1, 1, 1, 1, 1)
    assert len(placed(result, "a")[0].split("+")) == 2
    assert len(placed(result, "b")[0].split("+")) == 1


def test_each_job_has_one_copy_before_any_has_two() -> None:
    result = run([forked(name, 9000) for name in "abc"], 1, 1, 1)
    assert sorted(placed(result, name)[0] for name in "abc") == ["r0m0", "r0m1", "r0m2"]


def test_a_newcomer_gets_a_machine_from_a_job_that_has_several_at_the_next_slot() -> None:
    result = run([forked("a", 30_000), forked("b", 900, 100)], 1, 1)
    assert times(result, "b") == [360.0]
    assert placed(result, "a")[:2] == ["r0m0+r0m1", "r0m0"]


def test_machines_that_come_free_train_copies_of_who_is_left() -> None:
    result = run([forked("a", 9000), forked("b", 700)], 1, 1)
    assert placed(result, "a") == ["r0m0", "r0m0+r0m1"]
    # Alone from 720 s on, after a restart of 7 s, at twice the speed.
    assert result.by_job["a"].end_s == pytest.approx(720 + 7 + (9000 - 720) / 2 * lost(2))


def test_copies_stay_at_no_cost_until_others_end() -> None:
    """Who never waited gains by each copy alike, so the first job gets all that is left: three copies."""
    result = run([forked("a", 9000), forked("b", 9000)], 1, 1, 1, 1)
    assert result.by_job["a"].end_s == pytest.approx(3000 * lost(3))
    assert times(result, "a", "migrate") == []
    assert times(result, "b", "migrate") == [3240.0]


def test_a_job_about_to_end_is_not_restarted_for_another_copy() -> None:
    result = run([forked("a", 730), forked("b", 700)], 1, 1)
    assert placed(result, "a") == ["r0m0"]


def test_an_overhead_of_most_of_the_slot_makes_copies_worthless() -> None:
    result = run([forked("a", 3000)], 1, 1, policy="hadar-e:overhead_s=300")
    assert placed(result, "a") == ["r0m0"]
    with pytest.raises(InputError, match="overhead_s is 400"):
        parse_policy("hadar-e:overhead_s=400")


def test_a_job_that_bid_for_a_faster_machine_and_stays_gives_up_that_machine() -> None:
    """Its GPUs there go to copies of others, so it must not move there: plans that do not fit are errors."""
    jobs = []
    for number in range(40):
        one = job(f"j{number}", 1 + number % 3, 10 + (211 * number) % 4000, 60 * number)
        gang = replace(one, gpus=(3, 6)[number % 4 // 2], gpus_per_machine=3, model=MODEL)
        fork = replace(one, kind=JobKind.FORKED, max_copies=3, model="lm")
        jobs.append(fork if number % 2 else gang)
    topology = racks([[3, 3, 7, 7]], ("v100", "v100", "p100", "p100"))
    assert len(simulate("hadar-e", topology, jobs, profiles=GAVEL).by_job) == 40
