"""Cost stays near-linear in jobs and nearly flat in cluster size, counted in function calls, not seconds."""

import cProfile
import io
from dataclasses import dataclass

import pytest

from dally.cluster.topology import Topology
from dally.policies.registry import parse_policy, policy_names
from dally.profiles.costs import CostModel
from dally.runs.records import EventLog
from dally.scheduling.scheduler import Scheduler
from dally.state import ClusterState
from dally.testing.worlds import racks
from dally.traces import load_trace
from simulator.engine import Engine
from tests.policy_groups import SEARCHING

EVOLVING = {"ones", "pollux"}
"""They search a population of schedules of all jobs, at a cost that goes with jobs and machines by design."""

SAME_CODE = {"hadar-e"}
"""For jobs that are not elastic, as here, it is Hadar."""

FULL_LATE = {"hadar", "slurm", "srsf-delay"}
"""They look at running jobs or at a bounded part of the queue: only a longer one fills what they look at."""

every_policy = pytest.mark.parametrize(
    "policy", [name for name in policy_names() if name not in EVOLVING | SAME_CODE]
)


@dataclass(frozen=True)
class MeasuredCost:
    """Function calls of a simulation, and the events that it logged."""

    calls: int
    events: int

    @property
    def per_event(self) -> float:
        return self.calls / self.events


def cost(policy: str, topology: Topology, jobs: int, load: float) -> MeasuredCost:
    """The cost of simulating Philly-like jobs at a load."""
    spec = (
        f"philly-like:jobs={jobs},load={load},cluster_gpus={topology.gpus},gpus=1:80/4:10/8:10,max_s=200000"
    )
    workload = load_trace(spec, seed=5)
    state = ClusterState(topology, CostModel(topology))
    scheduler = Scheduler(state, parse_policy(policy).build(state))
    log = io.StringIO()
    engine = Engine(scheduler, workload.jobs, EventLog(log))
    profile = cProfile.Profile(subcalls=False)
    profile.runcall(engine.run)
    return MeasuredCost(sum(entry.callcount for entry in profile.getstats()), log.getvalue().count("\n"))


@every_policy
def test_four_times_the_jobs_cost_about_four_times_as_much(policy: str) -> None:
    """Another simulator took seventeen times as long; the longer run also has more to preempt."""
    topology = racks([[8] * 4] * 4)
    least = 60 if policy in SEARCHING else 125
    few, many = (cost(policy, topology, jobs, load=0.8) for jobs in (least, 4 * least))
    assert many.calls < 2 * 4 * few.calls
    assert many.per_event < 1.5 * few.per_event


@every_policy
def test_a_long_queue_does_not_make_an_event_dearer(policy: str) -> None:
    """All jobs wait at once: looking at the whole queue each time would cost four times as much an event.

    Under `srsf-delay` whom to stop is asked of a larger part of those who run, of whom there are no more.
    Slurm's backfill looks at up to 500 jobs a pass, more than the shorter queue has; here it is told 50.
    """
    topology = racks([[8] * 4] * 4)
    asked = "slurm:bf_max_job_test=50" if policy == "slurm" else policy
    least = 250 if policy in FULL_LATE else 100
    few, many = (cost(asked, topology, jobs, load=50) for jobs in (least, 4 * least))
    assert many.per_event < (2.5 if policy == "srsf-delay" else 2) * few.per_event


@every_policy
def test_ten_times_the_cluster_costs_little_more(policy: str) -> None:
    jobs = 100 if policy in SEARCHING else 300
    small, large = (cost(policy, racks([[8] * 4] * count), jobs, load=0.8) for count in (3, 30))
    assert large.calls < 1.75 * small.calls
