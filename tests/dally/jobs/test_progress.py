"""What follows from a job's reports: how far it is, how fast on each size, and what schedulers make of it."""

import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dally.errors import InputError
from dally.jobs.job import Job, JobKind
from dally.jobs.knowledge import Knowledge, Known
from dally.jobs.progress import ProgressReport, parse_report, to_progress
from dally.plan import Resize
from dally.policies.registry import parse_policy
from dally.profiles.costs import CostModel
from dally.profiles.goodput import Batching
from dally.scheduling.recording.plain import past_data, to_past
from dally.scheduling.scheduler import Scheduler
from dally.state import ClusterState, JobHistory
from dally.testing.worlds import racks

LIMIT_S = 86_400.0
TOTAL = 100_000.0


def scheduler(policy: str = "fifo", batching: Batching = Batching.FIXED, gpus: int = 8) -> Scheduler:
    topology = racks([[gpus]])
    state = ClusterState(topology, CostModel(topology, batching=batching), Known(Knowledge.LIMITS))
    return Scheduler(state, parse_policy(policy).build(state))


def elastic(gpus: int = 8) -> Job:
    """One GPU or more of the eight that it asks for, whose limit says nothing of its length."""
    return Job("job", 0.0, gpus, LIMIT_S, kind=JobKind.ELASTIC, min_gpus=1, max_gpus=8, time_limit_s=LIMIT_S)


def run(told: Scheduler, gpus: int, now: float, reports: Sequence[ProgressReport]) -> None:
    """The job runs on so many GPUs and reports."""
    allocation = ((0, gpus),)
    cost = told.state.costs.cost(told.state.jobs["job"].job, allocation)
    told.start("job", allocation, now, 1 / cost.slowdown)
    for report in reports:
        told.report_progress("job", report, report.t)


def at(t: float, samples: float, **more: float) -> ProgressReport:
    return ProgressReport(t, samples, **{"total": TOTAL, "batch": 100.0, **more})


def test_the_whole_work_follows_from_samples_and_pace() -> None:
    told = scheduler()
    told.submit(elastic(), 0.0)
    run(told, 8, 0.0, [at(10, 0), at(20, 1000)])
    job = told.state.jobs["job"]
    assert job.expected_s == job.whole_s == pytest.approx(TOTAL / 100)
    assert job.done(20) == pytest.approx(0.01)
    assert job.end_s() == pytest.approx(20 + 99_000 / 100)


def test_a_first_report_alone_changes_nothing_but_is_kept() -> None:
    told = scheduler()
    told.submit(elastic(), 0.0)
    run(told, 8, 0.0, [at(10, 700)])
    job = told.state.jobs["job"]
    assert (job.expected_s, job.progress is not None) == (LIMIT_S, True)


def test_speeds_are_learnt_from_two_sizes_and_sizes_between_are_guessed_from_them() -> None:
    """0.01 s a sample of one GPU and 0.5 s for each step: 1.5 s on one, 0.625 s on eight."""
    told = scheduler()
    told.submit(elastic(), 0.0)
    run(told, 1, 0.0, [at(10, 0), at(160, 10_000)])
    told.preempt("job", 200, resized=True)
    run(told, 8, 200.0, [at(300, 10_000), at(362.5, 20_000)])
    costs, job = told.state.costs, told.state.jobs["job"]
    slowdowns = [costs.cost(job.job, ((0, gpus),)).slowdown for gpus in (1, 2, 4, 8)]
    assert slowdowns == pytest.approx([1.5 / 0.625, 1.0 / 0.625, 0.75 / 0.625, 1.0], rel=5e-3)
    assert job.whole_s == pytest.approx(TOTAL / 160, rel=5e-3)
    told.finish("job", 400)
    assert not costs.reported


def test_a_job_that_is_no_faster_on_more_gpus_is_not_taken_to_be() -> None:
    told = scheduler()
    told.submit(elastic(), 0.0)
    run(told, 1, 0.0, [at(10, 0), at(110, 10_000)])
    told.preempt("job", 200, resized=True)
    run(told, 8, 200.0, [at(300, 10_000), at(420, 20_000)])
    costs, job = told.state.costs, told.state.jobs["job"].job
    assert costs.cost(job, ((0, 1),)).slowdown == pytest.approx(1.0)


def test_two_types_of_gpus_are_told_apart() -> None:
    topology = racks([[8, 8]], ("a", "b"))
    state = ClusterState(topology, CostModel(topology))
    told = Scheduler(state, parse_policy("fifo").build(state))
    told.submit(elastic(), 0.0)
    for machine, (begin, rate) in enumerate([(0.0, 100), (1000.0, 25)]):
        told.start("job", ((machine, 8),), begin, 1.0)
        told.report_progress("job", at(begin + 10, 0), begin + 10)
        told.report_progress("job", at(begin + 20, 10 * rate), begin + 20)
        if not machine:
            told.preempt("job", 500)
    assert state.costs.type_speeds(state.jobs["job"].job) == pytest.approx({"a": 1.0, "b": 0.25})


def test_a_largest_batch_and_noise_make_a_larger_batch_worth_while() -> None:
    told = scheduler(batching=Batching.GOODPUT)
    told.submit(elastic(), 0.0)
    more = {"noise": 500.0, "most_batch": 800.0}
    run(told, 1, 0.0, [at(10, 0, **more), at(160, 10_000, **more)])
    told.preempt("job", 200, resized=True)
    run(told, 8, 200.0, [at(300, 10_000, **more), at(362.5, 20_000, **more)])
    costs, job = told.state.costs, told.state.jobs["job"].job
    learning = costs.learning(job)
    assert learning is not None
    assert (learning.noise, learning.most_batch) == ((500.0,), 800)
    assert costs.cost(job, ((0, 8),)).slowdown < 0.9, "a batch of its own size would be 1"


def test_a_batch_that_grows_with_the_gpus_is_known_for_those_asked_for() -> None:
    told = scheduler(batching=Batching.LINEAR)
    told.submit(elastic(), 0.0)
    run(told, 2, 0.0, [at(10, 0, batch=32.0, most_batch=512.0)])
    progress = told.state.jobs["job"].progress
    assert progress is not None
    assert progress.batch == 128


@pytest.mark.parametrize("policy", ["ones", "pollux", "optimus", "gavel", "elastic-scaling", "srsf-delay"])
def test_every_policy_that_plans_by_reports_can_be_told_of_them(policy: str) -> None:
    told = scheduler(policy, parse_policy(policy).policy.batching)
    told.submit(elastic(), 0.0)
    run(told, 1, 0.0, [at(10 * n, 500 * n, epoch=1000.0, noise=90.0, most_batch=800.0) for n in range(9)])
    told.decide(100.0)
    told.plan_applied(100.0)
    told.finish("job", 110.0)


def test_a_job_on_one_of_eight_idle_gpus_grows_after_an_epoch_that_it_reports() -> None:
    told = scheduler("ones", Batching.LINEAR)
    told.submit(elastic(), 0.0)
    run(told, 1, 0.0, [at(10 * n, 500 * n, epoch=1000.0) for n in range(3)])
    assert grown(told, 20.0) > 1


def test_a_job_on_one_of_eight_idle_gpus_that_reports_nothing_grows_within_half_an_hour() -> None:
    """It once went by a tenth of its limit of a day, and waited for nineteen hours."""
    told = scheduler("ones", Batching.LINEAR)
    told.submit(elastic(), 0.0)
    run(told, 1, 0.0, [])
    assert grown(told, 60.0) == 1
    assert grown(told, 1800.0) > 1


def test_an_epoch_that_is_longer_than_the_training_is_not_waited_for() -> None:
    told = scheduler("ones", Batching.LINEAR)
    told.submit(elastic(), 0.0)
    run(told, 1, 0.0, [at(10 * n, 50 * n, epoch=2 * TOTAL) for n in range(300)])
    assert grown(told, 3000.0) > 1


def grown(told: Scheduler, now: float) -> int:
    """How many GPUs the job is to have after a few steps: its limit doubles in one, it grows in the next."""
    for step in range(3):
        plan = told.decide(now + 10 * step)
        told.plan_applied(now + 10 * step)
        if resizes := [each for each in plan.decisions if isinstance(each, Resize)]:
            return sum(gpus for _, gpus in resizes[0].allocation)
    return 1


def test_what_was_reported_survives_a_restart_to_the_last_bit() -> None:
    told = scheduler()
    told.submit(elastic(), 0.0)
    run(told, 4, 0.0, [at(10, 0), at(20, 1000), at(33, 2100)])
    job = told.state.jobs["job"]
    assert job.progress is not None
    kept = json.loads(json.dumps(asdict(job.progress)))
    again = scheduler()
    again.submit(elastic(), 33.0, JobHistory(0.0, 0.0, progress=to_progress(kept)))
    again.resume("job", job.allocation, job.since_s, job.ready_s, 33.0, job.speed)
    other = again.state.jobs["job"]
    for now in (33.0, 50.0):
        assert (other.work_s(now), other.done(now), other.end_s()) == (
            job.work_s(now),
            job.done(now),
            job.end_s(),
        )
    assert again.state.costs.reported == told.state.costs.reported
    past = JobHistory(0.0, 0.0, progress=job.progress)
    assert to_past(json.loads(json.dumps(past_data(past)))) == past


@pytest.mark.parametrize(
    "text",
    [
        "",
        '{"samples": 5',
        "[1]",
        "null",
        '{"total": 5}',
        '{"samples": -1}',
        '{"samples": true}',
        '{"samples": "5"}',
        '{"samples": 1e999}',
        '{"samples": NaN}',
        '{"samples": 1, "noise": {}}',
        "[" * 5000,
        "\x00\xff",
        '{"samples": 1}' + " " * 20_000,
    ],
)
def test_garbage_is_no_report_and_none_of_it_is_told(text: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_report(text.encode("latin1"), 0.0)
    assert "samples is" in str(caught.value) or text[:8] not in str(caught.value) or not text


@given(st.binary(max_size=60))
def test_no_bytes_raise_anything_else(data: bytes) -> None:
    with suppress(InputError):
        parse_report(data, 1.0)


def test_a_report_needs_no_more_than_samples() -> None:
    assert parse_report(b'{"samples": 5, "anything": "else"}', 7.0) == ProgressReport(7.0, 5.0)
    assert parse_report(b'{"samples": 5, "time": 9, "loss": -2}', 7.0) == ProgressReport(9.0, 5.0, loss=-2.0)


def test_samples_that_go_back_after_a_lost_checkpoint_are_no_pace() -> None:
    told = scheduler()
    told.submit(elastic(), 0.0)
    run(told, 8, 0.0, [at(10, 0), at(20, 1000), at(30, 100), at(40, 1100)])
    job = told.state.jobs["job"]
    assert job.progress is not None
    assert [each.rate for each in job.progress.throughputs] == pytest.approx([100.0])
    assert job.done(40) == pytest.approx(0.011)
    assert replace(job.progress, rate=0.0).whole_s is None
