"""A scheduler built anew from plain data, at any moment, decides as the one that has watched all along."""

import io
import json

import pytest
from hypothesis import HealthCheck, given, settings

from dally.jobs.knowledge import Knowledge, Known
from dally.plan import Plan, Wait
from dally.policies.registry import PolicySpec, parse_policy, policy_names
from dally.profiles.costs import CostModel
from dally.profiles.files import ProfileSet, load_profiles
from dally.runs.records import EventLog
from dally.scheduling.scheduler import Scheduler
from dally.state import ClusterState, JobHistory, JobState, Phase
from simulator.engine import Engine
from tests.worlds import SEARCHING, World, worlds

PROFILES = ProfileSet(
    "two", tuple(each for name in ("dally", "gavel") for each in load_profiles(name).profiles)
)
"""No model whose batch is worth more in the course of training: that a job's speed changed while it ran, a
scheduler that is built anew learns from reports, which simulated jobs do not make."""
MODELS = ("", "resnet50", "bert-large", "resnet-50", "transformer")
WORLDS = worlds(models=MODELS, varying=True)
POLICIES = (
    *policy_names(),
    "srsf-delay:lease_s=300,guard_share=0.2",
    "srsf-delay:fair=user,lease_s=60",
    "dally:lease_s=600",
    "dally:timers=manual,machine=1,rack=2,lease_s=900",
    "fifo:backfill=easy",
    "slurm:switch_wait_s=900",
    "tiresias:promote=1,limits=1000+5000+9000,quantum_s=90,regroup_s=500",
    "gandiva:slice_s=400",
    "gavel:objective=ftf,hold_s=0",
    "jps:search=sampled",
    "ones:gate=all,two_epochs=stretch",
)


class Rebuilding(Scheduler):
    """Compares each plan with that of a scheduler rebuilt from snapshot and jobs."""

    def __init__(self, state: ClusterState, spec: PolicySpec) -> None:
        super().__init__(state, spec.build(state))
        self._spec = spec

    def decide(self, now: float) -> Plan:
        """Decide twice."""
        plan = super().decide(now)
        assert acts(self._rebuilt(now).decide(now)) == acts(plan)
        return plan

    def _rebuilt(self, now: float) -> Scheduler:
        state = ClusterState(self.state.topology, self.state.costs, self.state.knows)
        twin = Scheduler(state, self._spec.build(state))
        twin.policy.restore(json.loads(json.dumps(self.policy.snapshot())))
        twin.beliefs.restore(json.loads(json.dumps(self.beliefs.snapshot())))
        for job in sorted(self.state.jobs.values(), key=lambda job: job.order):
            twin.submit(job.job, now, past(job))
        for job_id in self.state.running:
            job = self.state.jobs[job_id]
            twin.resume(job_id, job.allocation, job.since_s, job.ready_s, now, job.speed)
        for machine, gpus in self.state.withheld.items():
            state.withhold(machine, gpus)
        return twin


def past(job: JobState) -> JobHistory:
    return JobHistory(
        job.origin_s,
        job.first_start_s if job.phase is Phase.WAITING or job.first_start_s < job.since_s else float("inf"),
        job.work_before_s,
        job.run_before_s,
        job.training_before_s,
        job.preemptions,
        job.more_before_s,
    )


def acts(plan: Plan) -> list[object]:
    """What a plan does.

    Waits that are on record need not be said again, though a rebuilt policy does.
    """
    return [decision for decision in plan.decisions if not isinstance(decision, Wait)]


@pytest.mark.parametrize(
    ("policy", "knowledge"),
    [
        *((policy, Knowledge.EXACT) for policy in POLICIES),
        *(("srsf-delay:lease_s=60", each) for each in ("limits", "history", "auto", "none")),
    ],
)
def test_a_rebuilt_scheduler_decides_the_same(policy: str, knowledge: str) -> None:
    examples = 12 if policy.partition(":")[0] in SEARCHING else 25
    more = settings(max_examples=examples, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    more(given(world=WORLDS)(lambda world: decides_the_same(parse_policy(policy), knowledge, world)))()


def decides_the_same(spec: PolicySpec, knowledge: str, world: World) -> None:
    averaging = spec.policy.averaging(spec.knobs)
    costs = CostModel(world.topology, PROFILES, batching=spec.policy.batching, averaging=averaging)
    scheduler = Rebuilding(ClusterState(world.topology, costs, Known(Knowledge(knowledge))), spec)
    Engine(scheduler, world.jobs, EventLog(io.StringIO()), world.outages, costs=costs).run()
