"""JPS online, on elastic jobs and several GPU types: `python -m analysis.studies.jps_online`."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean

import click

from analysis.studies.elastic_runs import Counted
from analysis.studies.hadar import HadarSetting, finish_time_fairness, read_setting
from dally.errors import DallyError
from dally.jobs.job import Job, JobKind
from dally.markdown import replace_section, table
from dally.policies.jps.instance import jain
from dally.policies.registry import parse_policy
from dally.profiles.gang_iteration import Split
from dally.runs.summary import Summary, summarise
from dally.scheduling.scheduler import Scheduler
from dally.state import ClusterState
from dally.traces.generators import generate
from dally.traces.published_workloads import GAVEL_SINGLE
from simulator.engine import Engine

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


@dataclass(frozen=True, slots=True)
class OnlineRun:
    """One run: its summary, Jain's index of how much faster jobs end than on their own part, and changes."""

    summary: Summary
    fairness: float
    resizes: int
    stops: int


def elastic(job: Job) -> Job:
    """A job that runs on one to eight GPUs, if its model has a table of several."""
    if job.model in GAVEL_SINGLE:
        return job
    return replace(job, kind=JobKind.ELASTIC, min_gpus=1, max_gpus=max(job.gpus, MOST_GPUS))


def run(setting: HadarSetting, spec: str, jobs: Sequence[Job]) -> OnlineRun:
    """Simulate a policy.

    Raises:
        DallyError: It leaves jobs waiting for ever, or gets nothing done.
    """
    state, log = ClusterState(setting.topology, setting.costs), Counted()
    ended = Engine(Scheduler(state, parse_policy(spec).build(state)), jobs, log).run()
    if not ended.complete:
        raise DallyError(f"{spec}: {ended.note}")
    summary = summarise(ended.records, setting.topology.gpus, ended.end_s)
    speeds = 1 / finish_time_fairness(setting, jobs, ended.records)
    stops = log.counts["migrate"] + log.counts["preempt"]
    return OnlineRun(summary, jain(speeds), log.counts["resize"], stops)


def policy_table(setting: HadarSetting, workloads: Sequence[Sequence[Job]], policies: Sequence[str]) -> str:
    """Markdown: a row for each policy, means over the workloads."""
    rows = []
    for spec in policies:
        runs = [run(setting, spec, jobs) for jobs in workloads]
        rows.append(
            [
                f"`{spec}`",
                f"{fmean(each.summary.jct_s.mean for each in runs) / 3600:.2f}",
                f"{fmean(each.summary.makespan_s for each in runs) / 3600:.1f}",
                f"{fmean(each.summary.queue_s.mean for each in runs) / 3600:.2f}",
                f"{fmean(each.fairness for each in runs):.3f}",
                f"{fmean(each.resizes for each in runs):.0f}",
                f"{fmean(each.stops for each in runs):.0f}",
            ]
        )
        click.echo("  ".join(rows[-1]), err=True)
    header = [
        "policy",
        "mean JCT, h",
        "total duration, h",
        "waiting, h",
        "Jain",
        "resizes",
        "moves and stops",
    ]
    return table(header, rows)


@click.command()
@click.option("--jobs", type=click.IntRange(1), default=40, show_default=True, help="Of each workload.")
@click.option("--seed", "seeds", type=int, multiple=True, default=(1, 2, 3), show_default=True)
@click.option("--policy", "policies", multiple=True, default=POLICIES, help="NAME[:knob=value,...].")
@click.option(
    "--split",
    type=click.Choice([each.value for each in Split]),
    default="proportional",
    show_default=True,
    help="Of a batch over several GPU types.",
)
@click.option("--write", type=click.Path(path_type=Path), help="Put the tables into this document.")
def main(jobs: int, seeds: Sequence[int], policies: Sequence[str], split: str, write: Path | None) -> None:
    """Elastic jobs on three types of GPUs, cluster `hadar-60`, under JPS and others."""
    try:
        setting, parts = read_setting(Split(split)), []
        for name, spec in WORKLOADS.items():
            drawn = [[elastic(job) for job in generate(spec.format(jobs=jobs), seed)] for seed in seeds]
            click.echo(name, err=True)
            parts.append(f"{name}:\n\n{policy_table(setting, drawn, policies)}")
        body = "\n\n".join(parts)
        if write is None:
            click.echo(body)
            return
        text = replace_section(write.read_text(encoding="utf-8"), "jps-online", body)
        write.write_text(text, encoding="utf-8")
    except (DallyError, OSError) as error:
        raise click.ClickException(str(error)) from error


if __name__ == "__main__":
    main()
