"""JPS online, on elastic jobs and several GPU types: `python -m analysis.studies.jps_online`."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean

import click

from analysis.studies.common import StudyCommand, policies_option, publish, seeds_option, write_option
from analysis.studies.hadar import HadarSetting, read_setting, run
from dally.jobs.job import Job, JobKind
from dally.markdown import table
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


def policy_table(setting: HadarSetting, workloads: Sequence[Sequence[Job]], policies: Sequence[str]) -> str:
    """Markdown: a row for each policy, means over the workloads.

    Fairness is Jain's index of how much faster jobs end than on their own part of the cluster.
    """
    rows = []
    for spec in policies:
        found = [run(setting, spec, jobs) for jobs in workloads]
        runs = [each.run for each in found]
        rows.append(
            [
                f"`{spec}`",
                f"{fmean(each.jct_s for each in runs) / 3600:.2f}",
                f"{fmean(each.summary.makespan_s for each in runs) / 3600:.1f}",
                f"{fmean(each.summary.queue_s.mean for each in runs) / 3600:.2f}",
                f"{fmean(jain(1 / each.fairness) for each in found):.3f}",
                f"{fmean(each.resizes for each in runs):.0f}",
                f"{fmean(each.stops for each in runs):.0f}",
            ]
        )
        click.echo("  ".join(rows[-1]), err=True)
    times = ("mean JCT, h", "total duration, h", "waiting, h")
    return table(["policy", *times, "Jain", "resizes", "moves and stops"], rows)


@click.command(cls=StudyCommand)
@click.option("--jobs", type=click.IntRange(1), default=40, show_default=True, help="Of each workload.")
@seeds_option
@policies_option(POLICIES)
@click.option(
    "--split",
    type=click.Choice([each.value for each in Split]),
    default="proportional",
    show_default=True,
    help="Of a batch over several GPU types.",
)
@write_option
def main(jobs: int, seeds: Sequence[int], policies: Sequence[str], split: str, page: Path | None) -> None:
    """Elastic jobs on three types of GPUs, cluster `hadar-60`, under JPS and others."""
    setting, parts = read_setting(Split(split)), []
    for name, spec in WORKLOADS.items():
        drawn = [[elastic(job) for job in generate(spec.format(jobs=jobs), seed)] for seed in seeds]
        click.echo(name, err=True)
        parts.append(f"{name}:\n\n{policy_table(setting, drawn, policies)}")
    publish([("jps-online", "\n\n".join(parts))], page)


if __name__ == "__main__":
    main()
