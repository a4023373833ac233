"""The published workloads: more GPUs must finish jobs sooner; in the published simulator they did not."""

import io
from itertools import pairwise

import pytest

from dally.policies.registry import parse_policy
from dally.profiles.costs import CostModel
from dally.runs.records import EventLog
from dally.runs.summary import Summary, summarise
from dally.scheduling.scheduler import Scheduler
from dally.state import ClusterState
from simulator.engine import Engine
from simulator.inputs import Inputs, load_scenario
from tests.policy_groups import QUICK

VARIANTS = ("dally:timers=manual", "dally:timers=no-wait", "dally:timers=consolidated")


def summary_of(policy: str, workload: str, gpus: int) -> Summary:
    scenario = load_scenario(Inputs(workload, f"dally-{gpus}", profiles="dally", seed=1))
    state = ClusterState(scenario.topology, CostModel(scenario.topology, scenario.profiles))
    scheduler = Scheduler(state, parse_policy(policy).build(state))
    outcome = Engine(scheduler, scenario.jobs, EventLog(io.StringIO())).run()
    summary = summarise(outcome.records, gpus, outcome.end_s)
    assert summary.completed == len(scenario.jobs)
    return summary


@pytest.mark.parametrize(
    ("policy", "workload", "sizes"),
    [
        *((policy, "dally-batch", (512, 1024)) for policy in QUICK),
        *((policy, "dally-poisson", (256, 512, 1024)) for policy in (*QUICK, "jps", *VARIANTS)),
        ("gavel", "dally-poisson", (512, 1024)),
    ],
)
def test_more_gpus_finish_the_published_workloads_sooner(
    policy: str, workload: str, sizes: tuple[int, ...]
) -> None:
    """Where jobs wait at most for their round, more GPUs may not help: then times are equal.

    Under Slurm a gang that starts on the wrong racks stays there and decides the mean: its median counts.
    """
    knobs = parse_policy(policy).knobs
    round_s = getattr(knobs, "round_s", getattr(knobs, "interval_s", 0.0))
    summaries = [summary_of(policy, workload, gpus) for gpus in sizes]
    for smaller, larger in pairwise(summaries):
        idle = smaller.queue_s.p99 <= round_s and larger.jct_s == smaller.jct_s
        times_s = [each.jct_s.median if policy == "slurm" else each.jct_s.mean for each in (smaller, larger)]
        assert times_s[1] < times_s[0] or idle
