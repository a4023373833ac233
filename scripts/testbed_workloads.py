"""Draws the testbed's shipped workloads, each from its seed: `python scripts/testbed_workloads.py`."""

from dataclasses import replace
from math import log
from pathlib import Path

from dally.jobs.job import Job
from dally.traces.common_csv import write_workload
from dally.traces.model_mix import assign_models
from dally.traces.synthetic import WorkloadShape, synthesize

FOLDER = Path(__file__).parents[1] / "testbed" / "running" / "workloads"
MIX = "mobilenetv3=3,resnet18=3,resnet50=4,alexnet=1,bert-base=1"
SIZES = ((1, 0.22), (2, 0.28), (4, 0.36), (8, 0.14))
SMALL = SIZES[:3]
MOST_GPUS = {"bert-base": 1, "mobilenetv3": 2}
"""Many ranks of these would keep the machine's two cores busy, and 16 of the first need 25 GB."""

LEAST_S, MOST_S = 20.0, 150.0


def shape(
    jobs: int, gpus: tuple[tuple[int, float], ...], median_s: float, gap_s: float, cv: float
) -> WorkloadShape:
    """Jobs of a median duration, submitted with gaps between them."""
    return WorkloadShape(gpus, log(median_s), 0.5, MOST_S, gap_s, cv, jobs)


WORKLOADS = {
    "demo": (5, shape(12, SMALL, 30.0, 4.0, 1.0)),
    "forty": (40, shape(40, SIZES, 30.0, 5.0, 1.0)),
    "burst": (11, shape(16, SIZES, 50.0, 0.0, 1.0)),
    "steady": (12, shape(16, SIZES, 40.0, 9.0, 1.0)),
    "waves": (13, shape(18, SIZES, 45.0, 10.0, 3.0)),
    "mixed": (14, shape(30, SIZES, 40.0, 9.0, 1.0)),
    "calm": (15, shape(18, SIZES, 45.0, 18.0, 1.0)),
}


def small_enough(job: Job) -> Job:
    """The job within the limits of one machine."""
    gpus = min(job.gpus, MOST_GPUS.get(job.model, job.gpus))
    return replace(
        job, gpus=gpus, duration_s=round(max(LEAST_S, job.duration_s)), submit_s=round(job.submit_s, 1)
    )


if __name__ == "__main__":
    for name, (seed, drawn) in WORKLOADS.items():
        jobs = assign_models(synthesize(name, drawn, seed), MIX, seed)
        write_workload([small_enough(job) for job in jobs], FOLDER / f"{name}.csv")
