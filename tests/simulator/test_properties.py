"""What must hold for every policy on every cluster and workload."""

from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dally.jobs.job import Job
from dally.policies.registry import policy_names
from dally.testing import MODELS, PROPERTIES, World, racks, simulate, worlds
from dally.testing.properties import a_rebuilt_policy_decides_the_same
from tests.policy_groups import SEARCHING

VARIANTS = (
    "dally:lease_s=600",
    "dally:timers=manual,machine=1,rack=2,lease_s=900",
    "dally:timers=no-wait,lease_s=700",
    "dally:timers=consolidated",
    "fifo:placement=consolidated,backfill=easy",
    "sjf:backfill=easy",
    "srtf:placement=consolidated,backfill=easy",
    "slurm:switch_wait_s=900,bf_max_job_test=1",
    "tiresias:promote=1,limits=1000+5000+9000,quantum_s=90,regroup_s=500",
    "tiresias:order=arrival,interval_s=50,limits=pollux,quantum_s=0",
    "gandiva:slice_s=400",
)
POLICIES = [*policy_names(), *VARIANTS]
WORLDS = st.tuples(st.booleans(), st.booleans()).flatmap(
    lambda drawn: worlds(
        models=MODELS, varying=True, filtered=True, segments=drawn[0], longest=100, whole_blocks=drawn[1]
    )
)

every_policy = pytest.mark.parametrize("policy", POLICIES)


def on_worlds(policy: str, most: int, check: Callable[[World], None]) -> None:
    """Check what must hold on so many random worlds; on fewer where deciding is a search, and takes long."""
    examples = max(2, 2 * most // 5) if policy in SEARCHING else most
    more = settings(max_examples=examples, suppress_health_check=[HealthCheck.too_slow])
    more(given(world=WORLDS)(check))()


@every_policy
def test_what_must_hold_for_every_policy(policy: str) -> None:
    """All of it on each world: to draw one takes as long as to simulate it with a quick policy."""

    def check(world: World) -> None:
        for holds in PROPERTIES:
            if holds is not a_rebuilt_policy_decides_the_same:  # see test_rebuilt.py
                holds(policy, world)

    on_worlds(policy, 5, check)


@every_policy
@settings(max_examples=8, deadline=None)
@given(gpus=st.lists(st.integers(1, 12), min_size=1, max_size=8))
def test_a_lone_job_runs_at_once_for_its_ideal_time(policy: str, gpus: list[int]) -> None:
    """Jobs far apart meet an idle cluster: nobody waits, nobody is preempted."""
    jobs = [Job(f"j{number}", number * 1e6, size, 5000.0) for number, size in enumerate(gpus)]
    for record in simulate(policy, racks([[4, 4], [4]]), jobs).outcome.records:
        assert record.queue_s == 0
        assert record.run_s == pytest.approx(5000)
        assert record.preemptions == 0


@every_policy
def test_overload_ends_and_takes_no_longer_than_the_work(policy: str) -> None:
    """Four times more work than GPU time to do it before the last arrival: the run still ends.

    Some simulators write 0.1 MB a job. A policy as it comes leaves a few lines, however often it stops jobs.
    """
    jobs = [Job(f"j{n}", n * 50.0, 1 + n % 8, 8_000.0) for n in range(20 if policy in SEARCHING else 40)]
    result = simulate(policy, racks([[8, 8], [8, 8]]), jobs)
    assert {record.status for record in result.outcome.records} == {"COMPLETED"}
    work = sum(job.gpus * job.duration_s for job in jobs)
    assert result.outcome.end_s <= 3 * work / 32 + 4_800
    assert policy in VARIANTS or len(result.log) / len(jobs) < 4_500
