import json
from random import Random

import pytest

from dally.jobs.job import Job
from dally.jobs.knowledge import Knowledge, Known
from dally.policies.registry import parse_policy
from dally.profiles.costs import CostModel
from dally.scheduling.beliefs import NEWCOMER_S
from dally.scheduling.learnt_beliefs import BINS, EDGES_S, Learnt, whole_work_s
from dally.scheduling.scheduler import Scheduler
from dally.state import ClusterState, JobState
from dally.testing.worlds import racks

HISTORY = Known(Knowledge.HISTORY)


def state(number: int, user: str = "u", gpus: int = 1) -> JobState:
    return JobState(Job(f"j{number}", 0.0, gpus, 1.0, user=user), number, 0.0)


def taught(beliefs: Learnt, *works_s: float, user: str = "u", gpus: int = 1, first: int = 1000) -> None:
    """Jobs that came and ended after so much work."""
    for number, work_s in enumerate(works_s, first):
        job = state(number, user, gpus)
        beliefs.came(job)
        list(beliefs.ended(job, work_s, 0.0))


def first_guess_s(beliefs: Learnt, user: str = "u", gpus: int = 1) -> float:
    return beliefs.believe(state(1, user, gpus), 0.0)[0]


def test_without_history_the_least_served_goes_first() -> None:
    job = state(1)
    left_s = [Learnt(HISTORY).believe(job, edge_s)[0] - edge_s for edge_s in EDGES_S[:-1]]
    assert left_s == sorted(left_s)
    assert left_s[0] == pytest.approx(NEWCOMER_S / 2, rel=0.05)  # one over the rate of ending at first


def test_the_index_is_the_best_of_all_spans() -> None:
    draws = Random(1)
    rates = [draws.uniform(0.01, 0.95) for _ in range(BINS)]
    for place, whole_s in enumerate(whole_work_s(rates)):
        best_s, takes_s, chance, stays = float("inf"), 0.0, 0.0, 1.0
        for later in range(place, BINS):
            width_s = min(EDGES_S[later + 1], 2 * EDGES_S[later] or EDGES_S[1]) - EDGES_S[later]
            takes_s += stays * width_s * (1 - rates[later] / 2)
            chance += stays * rates[later]
            stays *= 1 - rates[later]
            best_s = min(best_s, takes_s / chance)
        end_s = min(EDGES_S[place + 1], 2 * EDGES_S[place] or EDGES_S[1])
        assert whole_s == pytest.approx(max(EDGES_S[place] + best_s, end_s))


def test_jobs_of_a_user_are_taken_for_what_those_before_them_were() -> None:
    beliefs = Learnt(HISTORY)
    taught(beliefs, *[100.0] * 20, user="short")
    taught(beliefs, *[50_000.0] * 20, user="long", first=2000)
    assert first_guess_s(beliefs, "short") < 300 < 5_000 < first_guess_s(beliefs, "long")
    assert first_guess_s(beliefs, "short") < first_guess_s(beliefs, "new") < first_guess_s(beliefs, "long")


def test_gpus_tell_jobs_of_a_user_apart() -> None:
    beliefs = Learnt(HISTORY)
    taught(beliefs, *[100.0] * 20, gpus=1)
    taught(beliefs, *[50_000.0] * 20, gpus=8, first=2000)
    assert first_guess_s(beliefs, gpus=1) < first_guess_s(beliefs, gpus=8) / 10


def test_a_job_that_outlives_its_likes_is_taken_for_a_long_one() -> None:
    beliefs = Learnt(HISTORY)
    taught(beliefs, *[100.0] * 20, *[50_000.0] * 20)
    whole_s, _ = beliefs.believe(state(1), 500.0)
    assert whole_s > 5_000 > 500 > first_guess_s(beliefs)


def test_like_jobs_that_end_are_told_to_those_who_wait() -> None:
    beliefs = Learnt(HISTORY)
    waits, other = state(1), state(2, user="other")
    beliefs.came(waits)
    beliefs.came(other)
    before_s = waits.expected_s
    ended = state(3)
    beliefs.came(ended)
    assert [*beliefs.ended(ended, 40_000.0, 0.0)] == [waits]
    assert waits.expected_s > before_s
    assert other.expected_s == before_s


def running(user: str = "u") -> tuple[ClusterState, Scheduler]:
    topology = racks([[1]])
    cluster = ClusterState(topology, CostModel(topology), Known(Knowledge.HISTORY))
    scheduler = Scheduler(cluster, parse_policy("srtf").build(cluster))
    scheduler.submit(Job("runs", 0, 1, 1e6, user=user), 0.0)
    scheduler.start("runs", ((0, 1),), 0.0, 1.0)
    return cluster, scheduler


def test_running_jobs_count_as_far_as_they_came() -> None:
    cluster, scheduler = running()
    scheduler.decide(100_000.0)
    assert cluster.jobs["runs"].expected_s > 100_000
    assert isinstance(scheduler.beliefs, Learnt)
    alone = Learnt(HISTORY)
    for beliefs in (scheduler.beliefs, alone):
        taught(beliefs, 100.0)
    assert first_guess_s(scheduler.beliefs) > first_guess_s(alone)


def test_what_all_jobs_teach_reaches_users_of_whom_nothing_is_known() -> None:
    beliefs = Learnt(HISTORY)
    before_s = first_guess_s(beliefs, "new")
    taught(beliefs, *[100.0] * 50)
    assert first_guess_s(beliefs, "new") < before_s / 2


def test_a_job_counts_once_in_each_age_it_came_through() -> None:
    _, scheduler = running()
    scheduler.decide(EDGES_S[3] + 1)
    scheduler.finish("runs", EDGES_S[5] + 1)
    (everybody, *_) = scheduler.beliefs.snapshot()["groups"]
    _, exposed, ends, _ = everybody
    assert exposed == pytest.approx([1, 1, 1, 1, 1, 1], abs=0.5)
    assert [place for place, count in enumerate(ends) if count] == [5]


def test_what_was_learnt_and_believed_is_kept_over_a_restart() -> None:
    beliefs = Learnt(HISTORY)
    taught(beliefs, *[100.0] * 15, *[5_000.0] * 7)
    waits = state(1)
    beliefs.came(waits)
    again, twin = Learnt(HISTORY), state(1)
    again.restore(json.loads(json.dumps(beliefs.snapshot())))
    again.came(twin)
    assert (twin.expected_s, twin.held_s) == (waits.expected_s, waits.held_s)
    assert again.snapshot() == beliefs.snapshot()
    assert first_guess_s(again, "new") == pytest.approx(first_guess_s(beliefs, "new"), rel=0.2)


def test_jobs_that_leave_are_forgotten() -> None:
    beliefs = Learnt(HISTORY)
    job = state(1)
    beliefs.came(job)
    beliefs.left(job)
    assert beliefs.snapshot()["believed"] == {}


def test_limits_are_taken_for_what_jobs_with_such_limits_took() -> None:
    beliefs = Learnt(Known(Knowledge.LIMITS))

    def limited(number: int, limit_s: float) -> JobState:
        return JobState(Job(f"j{number}", 0.0, 1, 1.0, time_limit_s=limit_s), number, 0.0)

    for number in range(40):
        job = limited(number, 3600.0 if number % 2 else 86_400.0)
        beliefs.came(job)
        list(beliefs.ended(job, 100.0 if number % 2 else 40_000.0, 0.0))
    short, long = (beliefs.believe(limited(99, limit_s), 0.0)[0] for limit_s in (3600.0, 86_400.0))
    assert short < 300 < 1_500 < long


@pytest.mark.parametrize("knowledge", [Knowledge.AUTO, Knowledge.LIMITS])
def test_limits_tell_jobs_apart_before_any_has_ended(knowledge: Knowledge) -> None:
    beliefs = Learnt(Known(knowledge))
    jobs = [
        JobState(Job(f"j{number}", 0.0, 1, 1.0, time_limit_s=limit_s), number, 0.0)
        for number, limit_s in enumerate((60.0, 600.0, 3600.0))
    ]
    minute_s, ten_s, hour_s = (beliefs.believe(job, 0.0)[0] for job in jobs)
    assert 30 < minute_s < 60 < ten_s < 600 < hour_s < 3600
    assert beliefs.believe(jobs[0], 100.0)[0] > 100.0, "what was done before a restart may exceed the limit"


AUTO = Known(Knowledge.AUTO)


def lived(beliefs: Learnt, job: Job, order: int, work_s: float) -> list[JobState]:
    """A job comes, runs and ends after so much work; those of whom something else is believed then."""
    life = JobState(job, order, 0.0)
    beliefs.came(life)
    life.paced_s = life.since_s = 0.0
    beliefs.runs(life)
    return [*beliefs.ended(life, work_s, 1.0 * order)]


def test_auto_goes_by_limits_at_first_and_by_history_once_that_told_truer() -> None:
    """Limits are all alike; one user's jobs take a minute and the other's a day."""
    beliefs = Learnt(AUTO)
    waits = JobState(Job("waits", 0.0, 1, 1.0, user="slow", time_limit_s=1e5), 10_000, 0.0)
    beliefs.came(waits)
    assert beliefs.lessons().knowledge is Knowledge.LIMITS
    for number in range(60):
        user, work_s = (("quick", 60.0 + number), ("slow", 80_000.0 + number))[number % 2]
        job = Job(f"j{number}", 0.0, 1, 1.0, user=user, time_limit_s=1e5)
        before_s = waits.expected_s
        changed = lived(beliefs, job, number, work_s)
        if beliefs.lessons().knowledge is Knowledge.HISTORY:
            break
    assert waits in changed
    assert waits.expected_s > 2 * before_s
    lessons = beliefs.lessons()
    assert (lessons.since_s, lessons.ended) == (float(number), number + 1)
    assert lessons.right[Knowledge.HISTORY] > lessons.right[Knowledge.LIMITS] + 0.03


def test_auto_stays_with_limits_that_tell_jobs_apart() -> None:
    """All jobs are of one user and size: only limits, ten times as long as the jobs, tell them apart."""
    beliefs = Learnt(AUTO)
    for number in range(200):
        work_s = (100.0, 40_000.0)[number % 2]
        lived(beliefs, Job(f"j{number}", 0.0, 1, 1.0, user="u", time_limit_s=10 * work_s), number, work_s)
    lessons = beliefs.lessons()
    assert (lessons.knowledge, lessons.since_s) == (Knowledge.LIMITS, None)
    assert lessons.right[Knowledge.LIMITS] > 0.9
    assert lessons.limit_used == pytest.approx(0.1)


@pytest.mark.parametrize("knowledge", [Knowledge.AUTO, Knowledge.LIMITS, Knowledge.HISTORY])
def test_whatever_is_learnt_is_kept_over_a_restart(knowledge: Knowledge) -> None:
    one, other = Learnt(Known(knowledge)), Learnt(Known(knowledge))
    jobs = [
        Job(f"j{n}", 0.0, 1, 1.0, user=f"u{n % 3}", job_name=f"run-{n}", time_limit_s=600.0 * (1 + n % 4))
        for n in range(300)
    ]
    for number, job in enumerate(jobs[:150]):
        lived(one, job, number, 50.0 * (1 + number % 3) ** 4)
    other.restore(json.loads(json.dumps(one.snapshot())))
    assert other.lessons() == one.lessons()
    for number, job in enumerate(jobs[150:], 150):
        for beliefs in (one, other):
            lived(beliefs, job, number, 50.0 * (1 + number % 3) ** 4)
    assert (other.lessons().knowledge, other.lessons().ended) == (one.lessons().knowledge, 300)
    for side, share in one.lessons().right.items():
        assert other.lessons().right[side] == pytest.approx(share, abs=0.02)
    assert other.snapshot()["groups"] == one.snapshot()["groups"]


def test_jobs_of_a_name_are_taken_for_what_those_before_them_were() -> None:
    beliefs = Learnt(HISTORY)
    for number in range(20):
        name, work_s = (("eval-", 50.0), ("train-", 50_000.0))[number % 2]
        lived(beliefs, Job(f"j{number}", 0.0, 1, 1.0, user="u", job_name=f"{name}{number}"), number, work_s)

    def guess_s(name: str) -> float:
        return beliefs.believe(JobState(Job("new", 0.0, 1, 1.0, user="u", job_name=name), 99, 0.0), 0.0)[0]

    assert guess_s("eval-100") < guess_s("other") < guess_s("train-101")
    assert guess_s("eval-100") < 100 < 400 < guess_s("train-101")


def test_names_that_never_repeat_cost_nothing() -> None:
    """Without digits to fall together by."""
    draws = Random(1)
    named, unnamed = Learnt(HISTORY), Learnt(HISTORY)
    for number in range(200):
        work_s, name = draws.lognormvariate(7, 2), "x" * number
        for beliefs, own in ((named, name), (unnamed, "")):
            lived(beliefs, Job(f"j{number}", 0.0, 1, 1.0, user="u", job_name=own), number, work_s)
    new = Job("new", 0.0, 1, 1.0, user="u", job_name="x" * 200)
    for age_s in EDGES_S[:-1]:
        whole_s, _ = named.believe(JobState(new, 999, 0.0), age_s)
        assert whole_s == pytest.approx(unnamed.believe(JobState(new, 999, 0.0), age_s)[0], rel=1e-6)


def test_the_last_jobs_of_a_user_tell_more_than_older_ones() -> None:
    beliefs = Learnt(HISTORY)
    taught(beliefs, *[50_000.0] * 200)
    before_s = first_guess_s(beliefs)
    taught(beliefs, *[60.0] * 30, first=2000)
    assert first_guess_s(beliefs) < 200 < before_s / 10


def test_groups_of_whom_no_job_came_for_long_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dally.scheduling.learnt_beliefs.MOST_GROUPS", 10)
    beliefs = Learnt(HISTORY)
    for number in range(50):
        taught(beliefs, 100.0, user=f"u{number}", first=number)
        taught(beliefs, 100.0, user="often", first=1000 + number)
    kept = [like for like, *_ in beliefs.snapshot()["groups"]]
    assert len(kept) == 10
    assert () in kept
    assert ("user", "often", "1") in kept
    assert ("user", "u49") in kept
