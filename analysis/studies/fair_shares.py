"""Whose share of the GPU time moves against Slurm's own order: `python -m analysis.studies.fair_shares`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import click

from analysis.studies.common import (
    StudyCommand,
    StudyRun,
    publish,
    run_all,
    simulate,
    write_option,
)
from analysis.weekly_shares import Shares, WeeklyGpuTime, share_changes
from dally.cluster import load_cluster
from dally.jobs.job import Job
from dally.jobs.knowledge import Knowledge, Known
from dally.markdown import table
from dally.profiles.files import load_profiles
from dally.words import duration
from simulator.inputs import Inputs, load_scenario
from simulator.priorities import AccountSettings, PrioritySettings, SimulatedPriorities

SLURM, POLICY = "slurm", "srsf-delay"
RATIOS = (0.0, 0.5, 0.75, 0.9)
TRACES = Path("../shared/traces")
MIX = "resnet50=0.3,bert-large=0.25,vgg11=0.15,alexnet=0.1,resnet18=0.1,mobilenetv3=0.1"


@dataclass(frozen=True, slots=True)
class SharedSite:
    """A workload on a cluster whose users have shares.

    Attributes:
        trace: Trace file, or generated workload.
        cluster: Its cluster.
        load: GPU time asked for over that of the cluster.
        priorities: Weights and shares.
        ratio: How far the policy may reorder; see `ClusterState`.
    """

    trace: str
    cluster: str
    load: float
    priorities: PrioritySettings
    ratio: float = 0.0


def accounts(users: int, shares: Sequence[float]) -> dict[str, AccountSettings]:
    """Accounts with such shares, among which the users of a generated workload are dealt out in turn."""
    names = [f"user-{number}" for number in range(users)]
    return {
        f"account-{place}": AccountSettings(shares=each, users=tuple(names[place :: len(shares)]))
        for place, each in enumerate(shares)
    }


def sites() -> dict[str, SharedSite]:
    """What is simulated, by name: a generated workload, and Venus where its trace is there."""
    four = PrioritySettings(accounts=accounts(24, (4, 3, 2, 1)))
    generated = "venus-like:jobs=4000,users=24"
    found = {"generated": SharedSite(generated, "dally-256", 1.0, four)}
    venus = TRACES / "helios_venus.csv.gz"
    if venus.exists():
        found["venus"] = SharedSite(str(venus), "venus", 1.2, PrioritySettings())
    return found


@dataclass(frozen=True, slots=True)
class SharedRun:
    """One simulation.

    Attributes:
        run: Its figures.
        shares: Of each week in which jobs were submitted until its end, the part of the GPU time by owner.
    """

    run: StudyRun
    shares: Sequence[Shares]


def simulate_site(policy: str, site: SharedSite) -> SharedRun:
    """Run a policy on a site."""
    jobs, cluster = site_jobs(site), load_cluster(site.cluster)
    payer = SimulatedPriorities(site.priorities, cluster.gpus).payer
    log = WeeklyGpuTime({job.job_id: payer(job) for job in jobs}, jobs[-1].submit_s)
    run = simulate(
        policy,
        jobs,
        cluster,
        load_profiles("realistic"),
        Known(Knowledge.LIMITS),
        log=log,
        priorities=site.priorities,
        priority_ratio=site.ratio,
    )
    return SharedRun(run, log.shares())


def site_jobs(site: SharedSite) -> Sequence[Job]:
    """The jobs of a site."""
    asked = Inputs(
        site.trace,
        site.cluster,
        profiles="realistic",
        model_mix=MIX,
        load=site.load,
        min_duration_s=1.0,
        skip_bad=True,
    )
    return load_scenario(asked).jobs


def shifts(before: SharedRun, after: SharedRun, users: bool) -> list[float]:
    """How much each user's, or account's, part of a week is greater or less, of all weeks; 0 to 1."""
    changes = share_changes(before.shares, after.shares)
    return [change.size for change in changes if bool(change.owner[1]) is users]


def moved(before: SharedRun, after: SharedRun) -> float:
    """The part of the GPU time that went to other users in a week, on average; 0 to 1."""
    return sum(shifts(before, after, users=True)) / 2 / len(before.shares)


def shares_table(slurm: SharedRun, by_ratio: Mapping[float, SharedRun]) -> str:
    """Markdown: Slurm, and a row for each ratio."""
    several = len({owner[0] for week in slurm.shares for owner in week}) > 1
    rows = [[f"`{SLURM}`", duration(slurm.run.jct_s), "", *_waits(slurm), "", "", "", f"{slurm.run.stops:,}"]]
    for ratio, run in by_ratio.items():
        of_users, of_accounts = (shifts(slurm, run, users) for users in (True, False))
        rows.append(
            [
                f"`{POLICY}`, ratio {ratio:g}",
                duration(run.run.jct_s),
                f"{run.run.jct_s / slurm.run.jct_s - 1:+.0%}",
                *_waits(run),
                f"{100 * max(of_accounts):.1f}" if several else "",
                f"{100 * max(of_users):.1f}",
                f"{moved(slurm, run):.1%}",
                f"{run.run.stops:,}",
            ]
        )
    headings = (
        *("policy", "mean JCT", "against Slurm", "p99 wait", "longest wait"),
        *("largest shift of an account, points", "of a user", "GPU time moved", "stops and moves"),
    )
    return table(headings, rows)


def _waits(run: SharedRun) -> tuple[str, str]:
    summary = run.run.summary
    return duration(summary.queue_s.p99), duration(summary.longest_wait_s)


@click.command(cls=StudyCommand)
@write_option
def main(page: Path | None) -> None:
    """Compare who gets the GPU time of each week under Slurm's own order and under the default policy."""
    known = sites()
    slurm = run_all([SLURM], known, simulate_site)[SLURM]
    at_ratios = {
        f"{name} at {ratio:g}": replace(site, ratio=ratio) for name, site in known.items() for ratio in RATIOS
    }
    found = run_all([POLICY], at_ratios, simulate_site)[POLICY]
    tables = (
        (name, shares_table(slurm[name], {ratio: found[f"{name} at {ratio:g}"] for ratio in RATIOS}))
        for name in known
    )
    publish(tables, page)


if __name__ == "__main__":
    main()
