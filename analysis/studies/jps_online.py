"""JPS online, on elastic jobs and several GPU types: `python -m analysis.studies.jps_online`."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import click

from analysis.studies.common import (
    Cell,
    StudyCommand,
    mean_cell,
    policies_option,
    policy_table,
    publish,
    run_all,
    seeds_option,
    write_option,
)
from analysis.studies.hadar import HadarRun, read_setting, run
from dally.jobs.job import Job, JobKind
from dally.policies.jps.instance import jain
from dally.profiles.gang_iteration import Split
from dally.traces.generators import generate
from dally.traces.published_workloads import GAVEL_SINGLE

MOST_GPUS = 8
"""Gavel's table knows no more GPUs of a job."""

POLICIES = (
    "jps",
    "jps:search=sampled,markets=30",
    "jps:search=sampled,markets=30,beta=0.5",
    "optimus",
    "elastic-scaling",
    "gavel",
    "hadar:utility=completion",
)
WORKLOADS = {
    "Hadar's classes, all at once": "hadar:jobs={jobs}",
    "Hadar's classes, a job each 2,600 s": "hadar:jobs={jobs},gap_s=2600",
    "Gavel's jobs, a job each 2,700 s": "gavel:jobs={jobs},gap_s=2700",
}


def elastic(job: Job) -> Job:
    """A job that runs on one to eight GPUs, if its model has a table of several."""
    if job.model in GAVEL_SINGLE:
        return job
    return replace(job, kind=JobKind.ELASTIC, min_gpus=1, max_gpus=max(job.gpus, MOST_GPUS))


COLUMNS: Sequence[tuple[str, Cell[HadarRun]]] = (
    ("mean JCT, h", mean_cell("{:.2f}", lambda each: each.run.jct_s / 3600)),
    ("total duration, h", mean_cell("{:.1f}", lambda each: each.run.summary.makespan_s / 3600)),
    ("waiting, h", mean_cell("{:.2f}", lambda each: each.run.summary.queue_s.mean / 3600)),
    ("Jain", mean_cell("{:.3f}", lambda each: jain(1 / each.fairness))),
    ("resizes", mean_cell("{:.0f}", lambda each: each.run.resizes)),
    ("moves and stops", mean_cell("{:.0f}", lambda each: each.run.stops)),
)
"""Means over the seeds; Jain's index is of how much faster jobs end than on their own part of the cluster."""


@click.command(cls=StudyCommand)
@click.option("--jobs", type=click.IntRange(1), default=40, show_default=True, help="Of each workload.")
@seeds_option
@policies_option(POLICIES)
@write_option
def main(jobs: int, seeds: Sequence[int], policies: Sequence[str], page: Path | None) -> None:
    """Elastic jobs on three types of GPUs, cluster `hadar-60`, under JPS and others."""
    # A batch over several GPU types is split by their speeds.
    parts, one = [], partial(run, read_setting(Split.PROPORTIONAL))
    for name, spec in WORKLOADS.items():
        trace = spec.format(jobs=jobs)
        drawn = {f"seed {seed}": [elastic(job) for job in generate(trace, seed)] for seed in seeds}
        parts.append(f"{name}:\n\n{policy_table(run_all(policies, drawn, one), COLUMNS)}")
    publish([("jps-online", "\n\n".join(parts))], page)


if __name__ == "__main__":
    main()
