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
    spec, folder = policy_again(run), run.folder / FOLDER
    partial = run.folder / f".{FOLDER}.{os.getpid()}.partial"
    try:
        simulate(scenario, spec, partial)
        shutil.rmtree(folder, ignore_errors=True)
        partial.rename(folder)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    averaging = spec.policy.averaging(spec.knobs)
    costs = CostModel(scenario.topology, scenario.profiles, averaging=averaging)
    jobs = {job.job_id: job for job in scenario.jobs}
    records = {record.job_id: record for record in read_jobs(folder)}
    return SimulatedRun(costs, jobs, records, _spans(folder, jobs, costs))


def _spans(folder: Path, jobs: Mapping[str, Job], costs: CostModel) -> list[HeldSpan]:
    """The intervals in which jobs held GPUs, job by job, from the events of a simulation.

    A job trains once its start, or its restart, is paid; the simulator counts its traffic from the beginning.
    """
    index = costs.topology.machine_index
    began: dict[str, tuple[Allocation, float]] = {}
    held: dict[str, list[HeldSpan]] = {}
    for event in read_events(folder):
        job_id, now = str(event.get("job", "")), float(event["t"])
        if event["event"] in _STOPS and job_id in began:
            job, (allocation, start_s), spans = jobs[job_id], began.pop(job_id), held.setdefault(job_id, [])
            startup_s = costs.restart_s(job) if spans else costs.launch_s(job)
            spans.append(HeldSpan(job, allocation, start_s, min(start_s + startup_s, now), now, start_s))
        if event["event"] in _STARTS:
            gpus = tuple(sorted((index[name], count) for name, count in event["gpus"].items()))
            began[job_id] = gpus, now
    return [span for spans in held.values() for span in spans]
