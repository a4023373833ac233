"""Policies that choose sizes, or turns, on real Slurm: by what jobs report, without any profile."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dally.errors import DallyError
from slurm_plugin.controller.journal import read_events
from slurm_plugin.local_cluster.local_slurm import LocalSlurm
from slurm_plugin.local_cluster.slurm_files import LocalClusterSpec
from tests.slurm_plugin.controller.test_real_controller import RealSite

ROOT = Path(__file__).parents[3]
"""For three jobs that would take a minute and a half on a machine of its own."""

TRAIN = f"""#!/usr/bin/env python3
import os, re, signal, sys, time
sys.path.insert(0, {str(ROOT)!r})
asked = False
def ask(*_):
    global asked
    asked = True
signal.signal(signal.SIGUSR2, ask)
from dally.progress import Reporter

file, total = sys.argv[1], float(sys.argv[2])
samples = float(open(file).read()) if os.path.exists(file) else 0.0
parts = re.findall(r"([0-9]+)(?:\\(x([0-9]+)\\))?", os.environ["SLURM_TASKS_PER_NODE"])
gpus = sum(int(tasks) * int(nodes or 1) for tasks, nodes in parts)
reporter = Reporter(every_s=0.5)
step_s = 0.4 / gpus + 0.02  # of 40 samples: on 8 GPUs 6 times as fast as on one
while samples < total:
    time.sleep(step_s)
    samples += 40
    reporter.report(samples, total, batch=40, epoch=400, most_batch=320, loss=1 / samples, noise=400)
    if asked:
        with open(file + ".new", "w") as new:
            new.write(str(samples))
        os.replace(file + ".new", file)
        sys.exit(85)
"""


@pytest.fixture
def local_slurm(cluster_folder: Path) -> Iterator[LocalSlurm]:
    """Two nodes of four GPUs in one rack."""
    local_slurm = LocalSlurm(LocalClusterSpec(cluster_folder, nodes=2, racks=1, gpus=4))
    try:
        local_slurm.start()
    except DallyError as error:
        pytest.fail(str(error), pytrace=False)
    yield local_slurm
    local_slurm.stop()


def start(local_slurm: LocalSlurm, policy: str) -> RealSite:
    site = RealSite(local_slurm, policy, max_requeues=100)
    (local_slurm.work / "train.py").write_text(TRAIN)
    return site


def submit(site: RealSite, number: int, samples: int, *options: str) -> str:
    """A training of so many samples that reports, and can be put back; 1,000 take seven seconds on 8 GPUs."""
    return site.submit(
        *("--time=60", "--output=/dev/null", "--checkpoint-signal=USR2", "--checkpoint-grace=20"),
        f"--progress={site.local_slurm.work}/progress-%j.json",
        *options,
        str(site.local_slurm.work / "train.py"),
        *(str(site.local_slurm.work / f"step{number}"), str(samples)),
    )


ELASTIC = ("--ntasks=8", "--gpus-per-task=1", "--min-gpus=1", "--max-gpus=8")
RIGID = ("--nodes=2", "--gpus-per-node=4")


def gpus(site: RealSite, job: str) -> int:
    """That a job has, or is to have."""
    return sum(site.managed_jobs[job].gpus.values()) if job in site.managed_jobs else 0


def events(site: RealSite, *kinds: str) -> list[str]:
    """Whose these events are, in order."""
    state = Path(site.config.state_dir)
    return [str(each["job"]) for each in read_events(state) if each["event"] in kinds]


def all_end(site: RealSite, jobs: list[str]) -> None:
    site.until(lambda: not site.managed_jobs, "for all to end")
    assert {job: site.state(job) for job in jobs} == dict.fromkeys(jobs, "COMPLETED")


def heard(site: RealSite, job: str) -> Callable[[], bool]:
    """Whether the throughput of a job is known."""

    def holds() -> bool:
        managed = site.managed_jobs.get(job)
        return managed is not None and bool(managed.history.progress and managed.history.progress.throughputs)

    return holds


@pytest.mark.parametrize(
    "policy", ["ones:interval_s=2", "pollux:round_s=5,restart_s=2", "optimus:interval_s=5"]
)
def test_jobs_that_report_get_their_sizes_by_that_and_all_end(local_slurm: LocalSlurm, policy: str) -> None:
    """The first asks for all eight GPUs, which are idle: ones once let it keep one for most of its limit."""
    site = start(local_slurm, policy)
    first = submit(site, 1, 6000, *ELASTIC)
    site.until(heard(site, first), "for a first throughput")
    site.until(lambda: gpus(site, first) == 8 and site.state(first) == "RUNNING", "for all GPUs")
    others = [submit(site, number, 2000, *ELASTIC) for number in (2, 3)]
    site.until(lambda: all(site.state(job) == "RUNNING" for job in others), "for the others to run")
    site.journal.close()
    site.decide_again()
    known = progress(site, first)
    site = start(local_slurm, policy)  # another controller goes on
    assert progress(site, first) == known
    all_end(site, [first, *others])
    assert events(site, "resize"), "somebody got another size"
    assert set(events(site, "progress_reported")) == {first, *others}
    site.journal.close()
    site.decide_again()


def progress(site: RealSite, job: str) -> object:
    """What is known of a job by its reports."""
    return site.managed_jobs[job].history.progress if job in site.managed_jobs else None


def test_gavel_has_jobs_that_report_take_turns_and_all_end(local_slurm: LocalSlurm) -> None:
    site = start(local_slurm, "gavel:round_s=6,turn_restarts=0")
    jobs = [submit(site, number, 2500, *RIGID) for number in (1, 2, 3)]
    site.until(lambda: len(set(events(site, "start"))) == len(jobs), "for each to have had a turn")
    site.journal.close()
    site.decide_again()
    site = start(local_slurm, "gavel:round_s=6,turn_restarts=0")
    all_end(site, jobs)
    assert events(site, "preempt"), "they took turns"
    assert set(events(site, "progress_reported")) == set(jobs)
    site.journal.close()
    site.decide_again()


def test_a_job_whose_report_is_garbage_runs_to_its_end(local_slurm: LocalSlurm) -> None:
    site = start(local_slurm, "ones:interval_s=2")
    job = submit(site, 1, 2500, *ELASTIC)
    file = local_slurm.work / f"progress-{job}.json"
    torn = json.dumps({"samples": 40, "total": 2500})[:-9]

    def spoil() -> bool:
        file.write_text(torn)
        return site.state(job) == "COMPLETED"

    site.until(spoil, "for it to end")
    site.until(lambda: not site.managed_jobs, "for the controller to see it")
    site.journal.close()
    site.decide_again()
