"""Sleeping jobs on a local Slurm with a database, and what `sacct` has of them: a history like a site's.

`python -m analysis.studies.sleepers --jobs 300 --seed 1 --out FOLDER` leaves jobs.sacct and cluster/ there.
"""

import re
import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass
from math import exp
from pathlib import Path
from random import Random

import click

from analysis.advise.naming import COLUMNS
from analysis.studies.accounting_database import add_accounting
from analysis.studies.common import StudyCommand
from slurm_plugin.local_cluster.local_slurm import LocalSlurm, make_user, temporary_slurm
from slurm_plugin.local_cluster.slurm_files import LocalClusterSpec

ACCOUNTS = {"vision": ("dally-alice",), "language": ("dally-bob",)}
_NAMES = {"dally-alice": ("train-resnet50", "vgg11-sweep"), "dally-bob": ("bert-large-ft", "debug")}
_GPUS = {1: 40, 2: 15, 4: 20, 8: 20, 16: 5}
_LEAST_S, _MEDIAN_S, _SIGMA, _MOST_S = 2.0, 15.0, 0.9, 100.0
_QUIET_S = 600.0
FILES = ("slurm.conf", "gres.conf", "topology.conf")


@dataclass(frozen=True, slots=True)
class Sleeper:
    """A job that holds GPUs and sleeps."""

    submit_s: float
    user: str
    name: str
    gpus: int
    sleep_s: float


def draw(jobs: int, gap_s: float, seed: int) -> list[Sleeper]:
    """So many jobs with exponential gaps of this mean and log-normal lengths, seconds."""
    source, now, drawn = Random(f"sleepers/{seed}"), 0.0, []
    users = [user for users in ACCOUNTS.values() for user in users]
    for _ in range(jobs):
        user = source.choice(users)
        (gpus,) = source.choices([*_GPUS], [*_GPUS.values()])
        sleep_s = _MEDIAN_S * exp(source.gauss(0, _SIGMA))
        sleep_s = min(max(sleep_s, _LEAST_S), _MOST_S)
        drawn.append(Sleeper(now, user, source.choice(_NAMES[user]), gpus, round(sleep_s, 1)))
        now += source.expovariate(1 / gap_s)
    return drawn


def run(local_slurm: LocalSlurm, jobs: Sequence[Sleeper]) -> None:
    """Submit the jobs each at its time, and wait until all have ended.

    Raises:
        ClusterError: Slurm refuses one, or they do not end.
    """
    begin_s = time.monotonic()
    for job in jobs:
        time.sleep(max(0.0, begin_s + job.submit_s - time.monotonic()))
        nodes = -(-job.gpus // local_slurm.spec.gpus)
        options = ["--time=3", "--output=/dev/null", f"--job-name={job.name}"]
        options += [f"--nodes={nodes}", f"--gres=gpu:{job.gpus // nodes}", f"--wrap=sleep {job.sleep_s}"]
        local_slurm.run("sbatch", "--parsable", *options, user=job.user)
    local_slurm.wait_for(
        lambda: not local_slurm.run("squeue", "--noheader").strip(), "the jobs to end", _QUIET_S
    )


def history(local_slurm: LocalSlurm) -> str:
    """What sacct says of all jobs that have ended, once the database has them all."""
    since = ("--starttime=now-1day", f"--format={COLUMNS}")
    line = ("sacct", "--allusers", "--allocations", "--parsable2", *since)
    unsettled = re.compile(r"\|(RUNNING|PENDING|COMPLETING)\|")
    local_slurm.wait_for(
        lambda: not unsettled.search(local_slurm.run(*line)), "the database to have all ends"
    )
    return local_slurm.run("env", "TZ=UTC", *line)


@click.command(cls=StudyCommand)
@click.option("--jobs", type=click.IntRange(1), default=300, show_default=True, help="How many.")
@click.option("--gap-s", type=float, default=1.0, show_default=True, help="Mean time between submissions.")
@click.option("--seed", type=int, default=1, show_default=True, help="Of sizes, lengths and gaps.")
@click.option("--out", type=click.Path(path_type=Path), required=True, help="Folder to write into.")
def main(jobs: int, gap_s: float, seed: int, out: Path) -> None:
    """Run sleeping jobs under Slurm's own scheduler, and write what sacct has of them."""
    for user in (user for users in ACCOUNTS.values() for user in users):
        make_user(user)
    with temporary_slurm(LocalClusterSpec) as local_slurm:
        add_accounting(local_slurm, ACCOUNTS)
        run(local_slurm, draw(jobs, gap_s, seed))
        (out / "cluster").mkdir(parents=True, exist_ok=True)
        (out / "jobs.sacct").write_text(history(local_slurm), encoding="utf-8")
        for name in FILES:
            shutil.copy(local_slurm.spec.conf.parent / name, out / "cluster" / name)
    click.echo(f"history: {out / 'jobs.sacct'}; cluster: {out / 'cluster'}")


if __name__ == "__main__":
    main()
