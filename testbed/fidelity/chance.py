"""What chance alone does: simulations of one workload whose running times vary as much as real ones did."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from math import pi, sqrt
from random import Random

import numpy as np

from dally.policies.registry import PolicySpec
from simulator.scenario import Scenario, simulate_jobs

SIMULATIONS = 20


@dataclass(frozen=True, slots=True)
class Chance:
    """How far such simulations are from one another: no simulation can be closer to reality but by luck.

    Attributes:
        run_error: Mean absolute deviation of running times, relative.
        job_error: Mean absolute difference of completion times, relative, over jobs and pairs of simulations.
        makespan_error: The same of the makespan.
    """

    run_error: float
    job_error: float
    makespan_error: float


def chance(scenario: Scenario, policy: PolicySpec, run_error: float) -> Chance:
    """Compare each two simulations of a workload whose running times are off at random.

    They are off by a normal distribution with this mean absolute deviation, relative.
    """
    deviation = run_error * sqrt(pi / 2)
    jcts_s, makespans_s = [], []
    for seed in range(SIMULATIONS):
        source = Random(f"chance/{seed}")
        jobs = [
            replace(job, duration_s=job.duration_s * max(0.1, source.gauss(1.0, deviation)))
            for job in scenario.jobs
        ]
        run, records = simulate_jobs(replace(scenario, jobs=jobs), policy)
        jcts_s.append([record.jct_s for record in records])
        makespans_s.append([run.summary.makespan_s])
    return Chance(run_error, _apart(jcts_s), _apart(makespans_s))


def _apart(values: Sequence[Sequence[float]]) -> float:
    """Mean absolute difference of each two rows, relative to their mean."""
    pairs = [2 * np.abs(one - other) / (one + other) for one, other in combinations(np.array(values), 2)]
    return float(np.mean(pairs))
