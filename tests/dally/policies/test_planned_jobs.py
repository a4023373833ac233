"""Jobs of one model and size that train by different plans are different jobs to every policy."""

from dataclasses import replace

import numpy as np
import pytest

from dally.jobs.job import Job
from dally.jobs.training_plan import TrainingPlan
from dally.policies.common.elastic_speeds import speeds_key
from dally.policies.hadar.policy import Hadar
from dally.policies.jps.instance import WorkerDemands
from dally.policies.registry import parse_policy
from dally.profiles.costs import CostModel
from dally.state import ClusterState, JobState
from dally.testing.worlds import simulate
from tests.dally.policies.events import levels, times
from tests.dally.profiles.test_plan_iteration import cluster

TYPES = cluster("h100 a100")


def planned(name: str, plan: str, submit_s: float = 0.0, duration_s: float = 1000.0) -> Job:
    parsed = TrainingPlan.parse(f"{plan},sequence=4096")
    return Job(name, submit_s, parsed.gpus, duration_s, model="llama3-8b", batch=64, plan=parsed)


JOBS = planned("no", "dp=8,ep=8"), planned("yes", "tp=2,dp=4")
"""The model has no experts, so the first one's plan does not count: nothing tells GPU types apart."""


def fill(number: int) -> Job:
    """A machine of each of two racks comes free at 100 s, a second one at 10,000 s, the others far later."""
    ends = {0: 100.0, 4: 100.0, 1: 10_000.0, 5: 10_000.0}.get(number, 100_000.0)
    return Job(f"busy{number:02}", number / 100, 8, ends)


def lives(state: ClusterState) -> list[JobState]:
    for job in JOBS:
        state.submit(job, 0.0)
    return [state.jobs[job.job_id] for job in JOBS]


def test_hadar_knows_the_speeds_of_each() -> None:
    costs = CostModel(TYPES)
    state = ClusterState(TYPES, costs)
    found = lives(state)
    policy, fresh = (parse_policy("hadar").build(state) for _ in range(2))
    assert isinstance(policy, Hadar)
    assert isinstance(fresh, Hadar)
    policy.tiers(found[0])
    assert len(policy.tiers(found[1])) == len(fresh.tiers(found[1])) == 2


def test_jps_knows_the_speeds_of_each() -> None:
    costs = CostModel(TYPES)
    found = lives(ClusterState(TYPES, costs))
    workers = np.array([64, 64])
    both = WorkerDemands(costs).instance(found, workers, 0.0)
    for number, job in enumerate(found):
        alone = WorkerDemands(CostModel(TYPES)).instance([job], workers, 0.0)
        assert both.speeds[number] == pytest.approx(alone.speeds[0])
        assert both.comm_s[number] == pytest.approx(alone.comm_s[0])


def test_tables_of_speeds_tell_them_apart() -> None:
    costs = CostModel(TYPES)
    one, other = lives(ClusterState(TYPES, costs))
    assert speeds_key(costs, one, 0.0) != speeds_key(costs, other, 0.0)


def test_srsf_delay_starts_one_that_bears_distance_though_another_had_better_wait() -> None:
    """Two racks have one free machine each: the first waits for two in a rack, the second does not mind."""
    busy = [replace(fill(number), preemptible=False) for number in range(16)]
    first = planned("first", "dp=16,zero=3", 10.0, 5_000.0)
    second = planned("second", "tp=8,pp=2", 11.0, 10_000.0)
    result = simulate("srsf-delay", cluster(rack=16.0), [*busy, first, second])
    assert levels(result, "second") == ["network"]
    assert times(result, "second")[0] < 3_000
    assert times(result, "first")[0] > 10_000
    assert levels(result, "first") == ["rack"]
