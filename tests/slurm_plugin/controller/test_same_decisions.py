"""The simulator and the controller over a fake Slurm decide the same, in the same order."""

import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from math import ceil, inf
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import HealthCheck, given, settings

from dally.cluster.topology import Allocation, Topology
from dally.jobs.job import Job, JobKind
from dally.jobs.knowledge import Knowledge, Known
from dally.plan import Wait
from dally.policies.common.estimates import restart_s
from dally.policies.common.in_rounds import InRounds
from dally.policies.registry import parse_policy
from dally.profiles.costs import CostModel
from dally.profiles.files import ProfileSet, load_profiles
from dally.runs.records import EventLog
from dally.scheduling.scheduler import Scheduler
from dally.state import ClusterState
from dally.testing.worlds import World, worlds
from simulator.engine import Engine
from slurm_plugin.request import Request, encode
from tests.slurm_plugin.fake_job import SubmitSpec
from tests.slurm_plugin.worlds import FakeSite

PROFILES = ProfileSet("both", (*load_profiles("dally").profiles, *load_profiles("gavel").profiles))
POLICIES = (
    "a-srpt",
    "srsf-delay",
    "dally:lease_s=600",
    "dally:timers=manual,machine=1,rack=2,lease_s=900",
    "dally:timers=no-wait,lease_s=700",
    "fifo",
    "hadar:round_s=500",
    "hadar-e:round_s=500",
    "jps",
    "sjf",
    "slurm",
)
"""Policies that preempt in order are left out: they say that a job which they stopped waits when they are
asked next, which the controller does sooner.

Policies of rounds say a wait again then, with another reason: when the next round is, not why the last one
left a job waiting.
"""

Act = tuple[object, ...]


def written_down(monkeypatch: pytest.MonkeyPatch) -> list[Act]:
    """What any scheduler is told from now on, with the time."""
    acts: list[Act] = []
    start, preempt, finish = Scheduler.start, Scheduler.preempt, Scheduler.finish
    explained = Scheduler.wait_explained

    def noted_start(self: Scheduler, job: str, gpus: Allocation, now: float, speed: float) -> object:
        acts.append((round(now, 6), "start", job, gpus))
        return start(self, job, gpus, now, speed)

    def noted_preempt(self: Scheduler, job: str, now: float, resized: bool = False) -> object:
        acts.append((round(now, 6), "preempt", job))
        return preempt(self, job, now, resized)

    def noted_finish(self: Scheduler, job: str, now: float) -> object:
        acts.append((round(now, 6), "finish", job))
        return finish(self, job, now)

    def noted_wait_explained(self: Scheduler, wait: Wait) -> None:
        in_rounds = isinstance(self.policy, InRounds)
        act = (round(wait.until_s, 6), "wait", wait.job_id, wait.level, "" if in_rounds else wait.reason)
        if not in_rounds or act not in acts:
            acts.append(act)
        explained(self, wait)

    for noted in (noted_start, noted_preempt, noted_finish, noted_wait_explained):
        monkeypatch.setattr(Scheduler, noted.__name__.removeprefix("noted_"), noted)
    return acts


def in_order(acts: Sequence[Act]) -> tuple[list[Act], list[Act]]:
    """What was done, and the waits; jobs that end at one moment end in any order."""
    done = [act for act in acts if act[1] != "wait"]
    groups = groupby(done, key=lambda act: act[:2] if act[1] == "finish" else id(act))
    waits = [act for act in acts if act[1] == "wait"]
    return [act for _, group in groups for act in sorted(group, key=repr)], waits


def simulate(policy: str, knowledge: str, topology: Topology, jobs: Sequence[Job]) -> None:
    spec = parse_policy(policy)
    averaging = spec.policy.averaging(spec.knobs)
    costs = CostModel(topology, PROFILES, assumed_slowdown=1.25, averaging=averaging)
    state = ClusterState(topology, costs, Known(Knowledge(knowledge)))
    scheduler = Scheduler(state, spec.build(state))
    assert Engine(scheduler, jobs, EventLog(io.StringIO())).run().complete


def control(policy: str, knowledge: str, topology: Topology, jobs: Sequence[Job]) -> None:
    """The jobs go to the fake Slurm when the simulator would let them arrive, and run as long as there."""
    with TemporaryDirectory() as folder:
        site = FakeSite(Path(folder), topology, policy, PROFILES, knowledge=knowledge, step_times="ignore")
        site.slurm.enforces_limits = False
        site.slurm.remember_s = inf  # else the policy is asked more often than in the simulator: it says more
        coming = list(jobs)
        wakeup_s = inf
        while coming or site.controller.reconciler.managed_jobs:
            event_s = site.slurm.next_event_s
            arrival_s = coming[0].submit_s if coming else inf
            site.now_s = max(site.now_s, min(wakeup_s, arrival_s, inf if event_s is None else event_s))
            site.slurm.advance(site.now_s)
            while coming and coming[0].submit_s <= site.now_s:
                submit(site, coming.pop(0))
            wakeup_s = site.controller.cycle()


def submit(site: FakeSite, job: Job) -> None:
    signal = "USR1" if job.preemptible else ""
    each = job.gpus_per_machine or 1
    request = Request(
        job.model,
        signal,
        grace_s=0,
        min_gpus=job.min_gpus or 0,
        max_gpus=job.max_gpus or 0,
        max_copies=job.max_copies,
    )
    assert job.job_id == site.slurm.submit(
        SubmitSpec(
            nodes=job.gpus // each,
            gpus_per_node=each,
            gpu_type=job.gpu_type or "",
            run_time_s=run_time(site, job),
            time_limit_s=job.time_limit_s,
            user=job.user,
            job_name=job.job_name,
            comment=encode(request),
        )
    )


def run_time(site: FakeSite, job: Job) -> Callable[[Mapping[str, int]], float]:
    def seconds(gpus: Mapping[str, int]) -> float:
        state = site.controller.scheduler.state
        life = state.jobs[job.job_id]
        machines = site.topology.machine_index
        allocation = tuple(sorted((machines[node], count) for node, count in gpus.items()))
        slowdown = state.costs.cost(job, allocation).slowdown
        ready_s = site.now_s + restart_s(life, state.costs)
        return ready_s + (job.duration_s - life.work_before_s) * slowdown - site.now_s

    return seconds


def as_slurm_numbers(world: World) -> list[Job]:
    """The jobs that one `--gres` describes, numbered as Slurm will; those with one copy are plain jobs there.

    Their times are moved apart: ends that coincide to the last bit in one world may not in the other. Limits
    are whole minutes, as Slurm has them.
    """
    shaped = [
        replace(
            job,
            gpus_per_machine=job.gpus_per_machine or job.gpus,
            kind=JobKind.RIGID if job.kind is JobKind.FORKED and job.max_copies == 1 else job.kind,
        )
        for job in world.jobs
        if job.gpus_per_machine or job.gpus <= largest_machine(world.topology, job.gpu_type)
    ]
    return [
        replace(
            job,
            job_id=str(place),
            submit_s=job.submit_s + place * 0.0712,
            duration_s=(duration_s := job.duration_s + place * 0.1234567),
            time_limit_s=60.0 * ceil(duration_s / 60),
            user=f"user{place % 2}",
            job_name=f"train-{place}" if place % 3 else "",
        )
        for place, job in enumerate(shaped, 1)
    ]


def as_rigid(job: Job) -> Job:
    """The job with the GPUs asked for only, if it is elastic."""
    elastic = job.kind is JobKind.ELASTIC
    return replace(job, kind=JobKind.RIGID, min_gpus=None, max_gpus=None) if elastic else job


def largest_machine(topology: Topology, gpu_type: str | None) -> int:
    """The most GPUs that one machine has of a type."""
    return max(machine.gpus for machine in topology.machines if gpu_type in (None, machine.gpu_type))


RESIZING = ("jps",)
"""These resize elastic jobs, which costs a restart on Slurm and less in a simulation."""

KNOWN = (
    *((policy, "auto") for policy in POLICIES),
    *(("srsf-delay", each) for each in ("limits", "history", "none")),
)


@pytest.mark.parametrize(("policy", "knowledge"), KNOWN)
@settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(world=worlds(models=("", "resnet50", "bert-large", "resnet-50", "a3c"), failing=False, varying=True))
def test_simulator_and_controller_decide_the_same(policy: str, knowledge: str, world: World) -> None:
    jobs = as_slurm_numbers(world)
    if policy in RESIZING:
        jobs = [as_rigid(job) for job in jobs]
    with pytest.MonkeyPatch.context() as patch:
        acts = written_down(patch)
        simulate(policy, knowledge, world.topology, jobs)
        simulated = in_order(acts)
        acts.clear()
        control(policy, knowledge, world.topology, jobs)
        assert in_order(acts) == simulated
