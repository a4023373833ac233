"""Slurm's own queue and Dally's on a real Slurm, neither of which runs dry, with a large job on each side.

`python -m tests.slurm_plugin.both_queues 300` feeds both for so many seconds, twice, and says how long the
large job waited. Plain jobs of root are Slurm's own; those of an ordinary user are Dally's.
"""

import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from random import Random

from slurm_plugin.client.slurm import Hold, SlurmJob, State
from slurm_plugin.local_cluster.local_slurm import LocalSlurm, make_user
from slurm_plugin.local_cluster.slurm_files import LocalClusterSpec
from slurm_plugin.submit.hints import site_lua
from tests.slurm_plugin.controller.test_real_controller import RealSite

NODES, GPUS = 4, 2
USER = "dally-alice"
SIDES = {"slurm": "root", "dally": USER}
"""The user whose plain jobs are of a side."""

LIMIT = "--time=2"


@dataclass(frozen=True)
class BothOutcome:
    """What became of a run.

    Attributes:
        waited_s: How long the large job waited; None if it never started.
        started: How many small jobs of each side started meanwhile.
    """

    waited_s: float | None
    started: dict[str, int]


@contextmanager
def both_site(folder: Path, policy: str = "fifo") -> Iterator[RealSite]:
    """Four nodes of two GPUs in two racks, with job_submit.lua."""
    make_user(USER)
    lua = (resources.files("slurm_plugin") / "site" / "job_submit.lua").read_text(encoding="utf-8")
    files = {"job_submit.lua": lua, "dally_site.lua": site_lua(["gpu"], [])}
    local_slurm = LocalSlurm(LocalClusterSpec(folder, NODES, 2, GPUS, partitions=("gpu",), lua_files=files))
    local_slurm.start()
    try:
        for number in range(1, NODES + 1):
            feature = f"rack{(number + 1) // 2}"
            has = (f"AvailableFeatures={feature}", f"ActiveFeatures={feature}")
            local_slurm.run("scontrol", "update", f"NodeName=n{number}", *has)
        yield RealSite(local_slurm, policy)
    finally:
        local_slurm.stop()


def submit(site: RealSite, user: str, *options: str, seconds: int) -> str:
    """A plain job; its number."""
    command = ("sbatch", "--parsable", "--output=/dev/null", "--chdir=/tmp", *options)
    return site.local_slurm.run(*command, f"--wrap=sleep {seconds}", user=user).strip()


def at_terminal(site: RealSite, *words: str) -> subprocess.Popen[str]:
    """A command of an ordinary user that waits at a terminal."""
    command = ["setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups", *site.prefix, *words]
    return subprocess.Popen(
        command,
        env=site.environment,
        cwd="/tmp",
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def feed_both(
    site: RealSite, large_of: str, seconds: float, lasting_s: tuple[int, int] = (5, 15)
) -> BothOutcome:
    """Keep both queues full of small jobs until a large job among them has started, or some seconds are over.

    Args:
        site: A site of `both_site`.
        large_of: Whose the large job is, `slurm` or `dally`.
        seconds: How long it may wait.
        lasting_s: Shortest and longest time of a small job.
    """
    random, large, deadline = Random(0), "", time.monotonic() + seconds
    seen: dict[str, SlurmJob] = {}
    while time.monotonic() < deadline and not (large and _has_started(seen.get(large))):
        jobs = site.controller._slurm.jobs()
        seen |= {job.job_id: job for job in jobs}
        for user in SIDES.values():
            waiting = [each for each in jobs if each.user == user and each.state is State.PENDING]
            for _ in range(5 - len(waiting)):
                gres = f"--gres=gpu:{random.choice([1, 1, 2])}"
                submit(site, user, gres, LIMIT, seconds=random.randint(*lasting_s))
        if not large and any(_has_started(job) for job in seen.values()):
            large = submit(site, SIDES[large_of], f"-N{NODES}", f"--gres=gpu:{GPUS}", LIMIT, seconds=5)
        site.controller.cycle()
        time.sleep(0.2)
    started = {
        side: sum(job.user == user and _has_started(job) for job in seen.values())
        for side, user in SIDES.items()
    }
    for job in seen:
        site.local_slurm.run("scancel", job)
    site.until(lambda: not site.managed_jobs, "for all to end")
    found = seen.get(large)
    waited_s = found.start_s - found.submit_s if found is not None and found.start_s is not None else None
    return BothOutcome(waited_s, started)


def _has_started(job: SlurmJob | None) -> bool:
    return job is not None and job.start_s is not None


def is_held(job: SlurmJob) -> bool:
    """Whether a job waits for Dally."""
    return job.state is State.PENDING and job.hold is Hold.USER and job.admin_comment.startswith("dally:")


def main() -> None:
    """Feed both queues for so many seconds (300) with a large job of one side, then of the other."""
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 300.0
    with both_site(Path(tempfile.mkdtemp(prefix="dally-", dir="/tmp"))) as site:
        for side in SIDES:
            print(side, feed_both(site, side, seconds))


if __name__ == "__main__":
    main()
