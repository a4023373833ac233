"""The numbers behind the figures, by hand."""

from analysis.report.figures import (
    POINTS,
    TimeBins,
    distribution,
    preempted_jobs,
    preemption_classes,
    timers_over_time,
    usage,
)
from analysis.report.history import RunHistory
from tests.analysis.report.folders import record, started, waits

LEVELS = ["machine", "rack"]


def test_a_distribution_is_a_step_for_each_value() -> None:
    assert distribution([30, 10, 0.2]) == {
        "s": [1.0, 1.0, 10.0, 30.0],
        "share": [0.0, 33.333, 66.667, 100.0],
    }
    assert distribution([]) == {"s": [], "share": []}


def test_a_long_distribution_is_thinned_and_keeps_its_ends() -> None:
    thinned = distribution(range(1, 100_001))
    assert len(thinned["s"]) == POINTS + 1
    assert (thinned["s"][1], thinned["s"][-1], thinned["share"][-1]) == (1, 100_000, 100)


def test_usage_is_of_gpus_held_and_jobs_that_wait() -> None:
    history = RunHistory(LEVELS, {"a": 0, "b": 1})
    history.add({"t": 0, "event": "submit", "job": "a", "gpus": 2, "model": ""})
    history.add(started(10, "a", {"m": 2}))
    history.add({"t": 30, "event": "end", "job": "a"})
    assert usage(history, 4, TimeBins(0, 10, 4)) == {"held": [0, 50, 50, 0], "waiting": [1, 0, 0, 0]}


def test_timers_by_time_and_level() -> None:
    history = RunHistory(LEVELS, {"a": 0, "b": 1})
    for job, until in (("a", 25.0), ("b", 45.0)):
        history.add({"t": 5, "event": "submit", "job": job, "gpus": 1, "model": ""})
        history.add(waits(5, job, "machine", until))
    machine, rack = timers_over_time(history.timers, 2, TimeBins(0, 10, 2))
    assert machine == {"median": [30, None], "least": [20, None], "most": [40, None]}
    assert rack["median"] == [None, None]


def test_jobs_by_how_often_they_were_preempted() -> None:
    often = [record(str(n), submit_s=0, queue_s=0, run_s=1, preemptions=n) for n in (0, 0, 1, 3, 4, 49, 1000)]
    assert dict(zip(preemption_classes(), preempted_jobs(often), strict=True)) == {
        "0": 2,
        "1": 1,
        "2": 0,
        "3 to 4": 2,
        "5 to 9": 0,
        "10 to 19": 0,
        "20 to 49": 1,
        "50 or more": 1,
    }
