"""What policies know is what the run says, and nothing else."""

import io
from collections.abc import Sequence
from dataclasses import replace
from operator import truediv
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

import dally
from dally.jobs.job import Job, JobKind
from dally.jobs.knowledge import Knowledge, Known
from dally.policies.registry import parse_policy, policy_names
from dally.profiles.costs import CostModel
from dally.profiles.files import load_profiles
from dally.runs.records import EventLog
from dally.scheduling.scheduler import Scheduler
from dally.state import ClusterState
from dally.testing.worlds import racks, simulate
from dally.traces import load_trace
from simulator.engine import Engine
from tests.policy_groups import QUICK

AUTHOR = load_profiles("dally")
MODELS = ("resnet50", "bert-large", "")
FIRST_END_S = 8_000.0
"""No job ends before, whatever its duration."""


def jobs(durations_s: Sequence[float]) -> list[Job]:
    """Jobs of all kinds that come fast and fill eight GPUs."""
    kinds = (JobKind.RIGID, JobKind.RIGID, JobKind.ELASTIC)
    return [
        Job(
            f"j{number:02}",
            500.0 * number,
            gpus := 1 + number % 4,
            duration_s,
            user=f"u{number % 3}",
            model=MODELS[number % 3],
            kind=kinds[number % 3],
            max_gpus=2 * gpus if kinds[number % 3] is JobKind.ELASTIC else None,
            time_limit_s=1000.0 * FIRST_END_S / (1 + number % 5),
        )
        for number, duration_s in enumerate(durations_s)
    ]


def before_first_end(policy: str, knows: Known, workload: Sequence[Job]) -> list[dict[str, Any]]:
    cluster = racks([[4], [2, 2]])
    result = simulate(policy, cluster, workload, profiles=AUTHOR, knows=knows, until_s=FIRST_END_S)
    return [event for event in result.events if event["t"] < FIRST_END_S]


@pytest.mark.parametrize(
    ("policy", "knowledge"),
    [
        *((policy, each) for policy in policy_names() for each in (Knowledge.NONE, Knowledge.AUTO)),
        *((policy, each) for policy in QUICK for each in (Knowledge.HISTORY, Knowledge.LIMITS)),
    ],
)
def test_durations_change_nothing_before_the_first_job_ends(policy: str, knowledge: Knowledge) -> None:
    durations_s = [FIRST_END_S * (2 + number % 7) for number in range(10)]
    one, other = jobs(durations_s), jobs([*reversed(durations_s[1:]), 77_777.0])
    events = before_first_end(policy, Known(knowledge), one)
    assert any(event["event"] in ("start", "wait") for event in events)
    assert before_first_end(policy, Known(knowledge), other) == events


@pytest.mark.parametrize("policy", ["srtf", "sjf", "srsf-delay"])
def test_that_test_can_fail_for_policies_that_go_by_running_times(policy: str) -> None:
    durations_s = [FIRST_END_S * (2 + number % 7) for number in range(10)]
    one, other = jobs(durations_s), jobs([*reversed(durations_s[1:]), 77_777.0])
    assert before_first_end(policy, Known(), one) != before_first_end(policy, Known(), other)


def test_no_policy_reads_a_duration_or_a_limit() -> None:
    here = Path(dally.__file__).parent
    readers = [
        path
        for path in (here / "policies").rglob("*.py")
        if ".duration_s" in (text := path.read_text(encoding="utf-8")) or ".time_limit_s" in text
    ]
    assert readers == []


def test_without_knowledge_whoever_had_least_goes_first_and_the_truth_costs_less() -> None:
    long = Job("long", 0, 1, 20_000.0)
    short = [Job(f"s{number}", 100.0 + number, 1, 500.0) for number in range(3)]
    exact = simulate("srtf", racks([[1]]), [long, *short])
    none = simulate("srtf", racks([[1]]), [long, *short], knows=Known(Knowledge.NONE))
    assert exact.by_job["s2"].end_s < none.by_job["s2"].end_s < 20_000.0  # type: ignore[operator]
    assert none.by_job["long"].preemptions > 0


def test_wrong_profiles_change_what_a_policy_does() -> None:
    asked = jobs([9000.0 + 50 * number for number in range(40)])
    workload = [replace(job, kind=JobKind.RIGID, max_gpus=None) for job in asked]
    right, wrong = (
        simulate(
            "srsf-delay", racks([[2, 2], [2, 2]]), workload, profiles=AUTHOR, knows=Known(profile_error=error)
        )
        for error in (0.0, 2.0)
    )
    assert right.log != wrong.log


def test_an_error_changes_the_order() -> None:
    workload = [replace(job, submit_s=0.0, model="") for job in jobs([1000.0 + 50 * n for n in range(16)])]
    exact = simulate("sjf", racks([[4]]), workload)
    wrong = simulate("sjf", racks([[4]]), workload, knows=Known(error=1.0, seed=1))
    assert exact.log != wrong.log


def mean_jct_s(seed: int, knowledge: Knowledge) -> float:
    """Of jobs of a tail as long as Venus's on a crowded machine, all with the same limit."""
    workload = "venus-like:jobs=150,gpus=1:3/2:1/4:1,load=1.2,cluster_gpus=16,max_s=400000"
    alike = [replace(job, time_limit_s=1e6) for job in load_trace(workload, seed=seed).jobs]
    topology = racks([[4] * 4])
    state = ClusterState(topology, CostModel(topology), Known(knowledge))
    scheduler = Scheduler(state, parse_policy("srsf-delay").build(state))
    outcome = Engine(scheduler, alike, EventLog(io.StringIO())).run()
    return fmean(record.jct_s for record in outcome.records)


def test_limits_that_are_all_alike_cost_nothing_against_knowing_nothing() -> None:
    """On eight draws of jobs; a single draw says little: they differ by up to 8 % either way."""
    nothing, limits, auto = (
        [mean_jct_s(seed, knowledge) for seed in range(1, 9)]
        for knowledge in (Knowledge.NONE, Knowledge.LIMITS, Knowledge.AUTO)
    )
    assert fmean(map(truediv, limits, nothing)) < 1.005
    assert fmean(map(truediv, auto, nothing)) < 1.005
