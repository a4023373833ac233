"""Simulates policies on a site, some at a time, and gives what became of each job."""

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import BrokenExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from analysis.advise.site import ModelAssumption, Site
from analysis.weekly_shares import Shares, WeeklyGpuTime
from dally.errors import DallyError
from dally.jobs.priority import DEFAULT_RATIO
from dally.jobs.segment_rule import SegmentRule
from dally.policies.registry import parse_policy
from dally.runs.records import JobRecord
from simulator.priorities import SimulatedPriorities
from simulator.scenario import simulate
from simulator.sweep.workers import LOCAL, workers

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class SimulationTask:
    """A policy to simulate.

    Attributes:
        policy: With its knobs.
        case: Which models jobs train; None: with the times as they really were.
        priority_ratio: How far priorities count, as in dally.toml, if the site has any.
        segments: What sets the segments of jobs; None: they have those that the history tells.
    """

    policy: str
    case: ModelAssumption | None = None
    priority_ratio: float = DEFAULT_RATIO
    segments: SegmentRule | None = None


@dataclass(frozen=True)
class SimulatedTimes:
    """What became of the jobs, in the history's order; seconds.

    Attributes:
        task: What was simulated.
        start_s: First starts.
        wait_s: Time without GPUs, over all waits of a job.
        jct_s: From submission to the end.
        preemptions: How often GPUs were taken.
        makespan_s: Until the last end.
        shares: Of each week, who had which part of the GPU time; empty where nobody has priorities.
    """

    task: SimulationTask
    start_s: Floats
    wait_s: Floats
    jct_s: Floats
    preemptions: int
    makespan_s: float
    shares: Sequence[Shares] = ()


def run(site: Site, task: SimulationTask) -> SimulatedTimes:
    """Simulate a task.

    Raises:
        DallyError: Not all jobs ended.
    """
    if task.case is None:
        scenario = site.as_it_was()
    else:
        scenario = site.under(task.case, task.priority_ratio, task.segments)
    records: dict[int, JobRecord] = {}
    gpu_time = None
    if site.priorities is not None:
        payer = SimulatedPriorities(site.priorities, scenario.topology.gpus).payer
        owners = {job.job_id: payer(job) for job in scenario.jobs}
        gpu_time = WeeklyGpuTime(owners, max(job.submit_s for job in scenario.jobs))
    policy = parse_policy(task.policy)
    finished = simulate(scenario, policy, None, log=gpu_time, keep=records.__setitem__)
    if not finished.complete:
        raise DallyError(f"the simulation of {task.policy} did not end: {finished.note}")
    ordered = [records[place] for place in range(len(scenario.jobs))]
    return SimulatedTimes(
        task,
        np.array([record.start_s for record in ordered], dtype=float),
        np.array([record.queue_s for record in ordered]),
        np.array([record.jct_s for record in ordered]),
        finished.summary.preemptions,
        finished.summary.makespan_s,
        gpu_time.shares() if gpu_time else [],
    )


Runner = Callable[[Sequence[SimulationTask]], list[SimulatedTimes]]


@contextmanager
def runner(site: Site, processes: int, tell: Callable[[SimulationTask], None]) -> Iterator[Runner]:
    """Give a function that simulates tasks of a site in so many processes, and calls `tell` after each."""

    def told(outcomes: Iterator[SimulatedTimes]) -> list[SimulatedTimes]:
        found = []
        for outcome in outcomes:
            tell(outcome.task)
            found.append(outcome)
        return found

    simulate_one = partial(run, site)
    if processes == 1:
        yield lambda tasks: told(map(simulate_one, tasks))
        return
    try:
        with workers(LOCAL, processes, {}) as pool:
            yield lambda tasks: told(pool.map(simulate_one, tasks))
    except BrokenExecutor as error:
        raise DallyError("a process that simulated was killed, perhaps because memory ran out") from error


def processes_here() -> int:
    """As many processes as this one may use cores."""
    return len(os.sched_getaffinity(0))
