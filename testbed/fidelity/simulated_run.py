"""Simulates a live run again: the same workload, cluster, profiles and policy."""

import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from dally.cluster.topology import Allocation
from dally.jobs.job import Job
from dally.jobs.knowledge import Knowledge
from dally.policies.registry import PolicySpec, parse_policy
from dally.profiles.costs import CostModel
from dally.runs.records import CLUSTER, JobRecord, read_events, read_jobs
from dally.traces import load_trace
from simulator.inputs import Inputs, load_scenario
from simulator.scenario import Scenario, simulate
from testbed.fidelity.live_run import LiveRun
from testbed.fidelity.slowdowns import HeldSpan
from testbed.running.folder import PROFILES, WORKLOAD
from testbed.running.scheduler import FACT, set_alike

FOLDER = "simulated"
"""Where in the live run's folder the simulated one lies."""

Holding = tuple[Allocation, float, float]
"""GPUs that a job held, from when to when."""

_STARTS, _STOPS = {"start", "migrate", "resize"}, {"preempt", "fail", "migrate", "resize", "end"}


@dataclass(frozen=True, slots=True)
class SimulatedRun:
    """What the simulator says of a live run.

    Attributes:
        costs: What placements cost on this cluster, by these profiles.
        jobs: The jobs of the workload, by name.
        records: What became of them, by name.
        spans: All intervals of running.
    """

    costs: CostModel
    jobs: Mapping[str, Job]
    records: Mapping[str, JobRecord]
    spans: Sequence[HeldSpan]


def load_again(run: LiveRun, contention: bool) -> Scenario:
    """What a live run was given; schedulers know the limits of its jobs, as Slurm does, if it says them.

    Args:
        run: The live run.
        contention: Whether jobs that share links slow each other.

    Raises:
        InputError: One of the run's inputs is wrong.
    """
    trace = str(run.folder / WORKLOAD)
    limited = all(job.time_limit_s is not None for job in load_trace(trace).jobs)
    inputs = Inputs(
        trace=trace,
        cluster=str(run.folder / CLUSTER),
        profiles=str(run.folder / PROFILES),
        mixed_profiles=True,
        contention=contention,
        knowledge=Knowledge.LIMITS if limited else Knowledge.EXACT,
    )
    return load_scenario(inputs)


def policy_again(run: LiveRun) -> PolicySpec:
    """The policy of a live run; Slurm's own set as it was set there."""
    return set_alike(parse_policy(run.policy), run.facts.get(FACT, {}))


def simulate_again(run: LiveRun, scenario: Scenario) -> SimulatedRun:
    """Simulate what a live run did; the folder of the simulation lies in that of the run."""
    partial = run.folder / f".{FOLDER}.{os.getpid()}.partial"
    try:
        simulate(scenario, policy_again(run), partial)
        _replace(partial, run.folder / FOLDER)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return read_simulated(run.folder / FOLDER, scenario, policy_again(run))


def read_simulated(folder: Path, scenario: Scenario, spec: PolicySpec) -> SimulatedRun:
    """Read a simulation back.

    Raises:
        InputError: It is not a run folder.
    """
    averaging = spec.policy.averaging(spec.knobs)
    costs = CostModel(scenario.topology, scenario.profiles, averaging=averaging)
    jobs = {job.job_id: job for job in scenario.jobs}
    records = {record.job_id: record for record in read_jobs(folder)}
    return SimulatedRun(costs, jobs, records, _spans(folder, jobs, costs))


def _replace(partial: Path, folder: Path) -> None:
    """Give a finished folder its name, in place of an older one."""
    shutil.rmtree(folder, ignore_errors=True)
    partial.rename(folder)


def _spans(folder: Path, jobs: Mapping[str, Job], costs: CostModel) -> list[HeldSpan]:
    return [
        _span(jobs[job_id], place, number, costs)
        for job_id, places in _holdings(folder, costs).items()
        for number, place in enumerate(places)
    ]


def _span(job: Job, holding: Holding, number: int, costs: CostModel) -> HeldSpan:
    """A simulated interval; it trains once its start, or its restart, is paid.

    The simulator counts its traffic from the beginning.
    """
    allocation, start_s, end_s = holding
    startup_s = costs.restart_s(job) if number else costs.launch_s(job)
    return HeldSpan(job, allocation, start_s, min(start_s + startup_s, end_s), end_s, start_s)


def _holdings(folder: Path, costs: CostModel) -> dict[str, list[Holding]]:
    """GPUs that jobs held, from when to when, from the events."""
    index = costs.topology.machine_index
    began: dict[str, tuple[Allocation, float]] = {}
    held: dict[str, list[Holding]] = {}
    for event in read_events(folder):
        job_id, now = str(event.get("job", "")), float(event["t"])
        if event["event"] in _STOPS and job_id in began:
            held.setdefault(job_id, []).append((*began.pop(job_id), now))
        if event["event"] in _STARTS:
            gpus = tuple(sorted((index[name], count) for name, count in event["gpus"].items()))
            began[job_id] = gpus, now
    return held
