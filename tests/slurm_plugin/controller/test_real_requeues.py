"""Jobs that somebody else requeues to be held, on real Slurm: they wait until somebody releases them."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from slurm_plugin.controller.managed_job import IneligiblePhase, JobPhase
from slurm_plugin.local_cluster.local_slurm import LocalSlurm
from slurm_plugin.local_cluster.slurm_files import LocalClusterSpec
from tests.slurm_plugin.controller.test_real_controller import RealSite

HELD, CHECKPOINTED = 42, 85
ENDS_ONCE = """#!/bin/bash
[ "$SLURM_RESTART_COUNT" ] || exit $1
sleep 60
"""
FAILS_ONCE = """#!/bin/bash
mkdir {} 2>/dev/null || exit 0
exit 1
"""


@pytest.fixture
def site(cluster_folder: Path) -> Iterator[RealSite]:
    """Two nodes whose prolog fails for the first job."""
    prolog = cluster_folder / "prolog.sh"
    prolog.parent.mkdir(parents=True, exist_ok=True)
    prolog.write_text(FAILS_ONCE.format(cluster_folder / "failed"))
    prolog.chmod(0o755)
    conf = (f"RequeueExitHold={HELD},{CHECKPOINTED}", f"Prolog={prolog}")
    local_slurm = LocalSlurm(LocalClusterSpec(cluster_folder, 2, 1, 2, partitions=("gpu",), extra_conf=conf))
    local_slurm.start()
    (local_slurm.work / "ends-once.sh").write_text(ENDS_ONCE)
    real = RealSite(local_slurm, "srsf-delay")
    yield real
    real.journal.close()
    local_slurm.stop()


def stays_held(site: RealSite, job: str) -> None:
    site.until(lambda: isinstance(site.managed_jobs[job].phase, IneligiblePhase), "the job to be held")
    for _ in range(3):
        site.controller.cycle()
    assert site.managed_jobs[job].reason.startswith("requeued and held")
    assert site.state(job) in ("PENDING", "SPECIAL_EXIT")


def starts_after_its_release(site: RealSite, job: str) -> None:
    site.local_slurm.run("scontrol", "release", job)
    site.until(lambda: site.state(job) == "RUNNING")
    site.controller.cycle()
    assert site.managed_jobs[job].phase.name is JobPhase.RUNNING


def test_by_a_failed_prolog_by_hand_and_for_their_exit_code(site: RealSite) -> None:
    job = site.submit("--gres=gpu:2", "--output=/dev/null", "sleep.sh", "60")
    site.until(lambda: job in site.managed_jobs)
    stays_held(site, job)
    drained = site.local_slurm.run("sinfo", "-h", "--states=drain", "-o", "%n").strip()
    starts_after_its_release(site, job)
    for state in ((), ("State=SpecialExit",)):
        site.local_slurm.run("scontrol", "requeuehold", *state, job)
        stays_held(site, job)
        starts_after_its_release(site, job)
    site.local_slurm.run("scancel", job)
    site.local_slurm.run("scontrol", "update", f"NodeName={drained}", "State=RESUME")
    ends = site.submit("--gres=gpu:2", "--output=/dev/null", "ends-once.sh", str(HELD))
    goes_on = site.submit("--gres=gpu:2", "--output=/dev/null", "ends-once.sh", str(CHECKPOINTED))
    site.until(lambda: {ends, goes_on} <= site.managed_jobs.keys())
    stays_held(site, ends)
    starts_after_its_release(site, ends)
    site.until(lambda: site.was_requeued(goes_on, 1) and site.state(goes_on) == "RUNNING")
