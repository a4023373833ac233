"""The controller on real Slurm: what users and administrators see happen to their jobs."""

import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from dally.cluster import load_cluster
from dally.scheduling.recording.replay import replay
from slurm_plugin.client.command_line import CommandLine
from slurm_plugin.config import Config
from slurm_plugin.controller.controller import Controller
from slurm_plugin.controller.journal import Journal
from slurm_plugin.controller.managed_job import JobPhase, ManagedJob
from slurm_plugin.local_cluster.local_slurm import LocalSlurm
from slurm_plugin.local_cluster.slurm_files import LocalClusterSpec
from slurm_plugin.submit.hints import site_lua
from tests.patience import LONGEST_S, wait_until

LUA = Path(__file__).parents[3] / "slurm_plugin" / "site" / "job_submit.lua"

ADVICE = re.compile(r"^dally-sbatch: (note: no |warning: the script has no trap ).*\n", re.MULTILINE)

CHECKPOINTING = """#!/bin/sh
trap 'exit 85' USR1
step=$(cat $1.step 2>/dev/null || echo 0)
echo "start $SLURM_JOB_ID from $step on $SLURM_JOB_NODELIST restart ${SLURM_RESTART_COUNT:-0}" >>$1.log
while [ "$step" -lt 1000 ]; do step=$((step + 1)); echo $step >$1.step; sleep 0.2; done
"""
SLEEP = "#!/bin/sh\nsleep $1\n"


class RealSite:
    """A local cluster with a controller that runs in this process, cycle by cycle."""

    def __init__(
        self,
        local_slurm: LocalSlurm,
        policy: str,
        max_requeues: int = 3,
        partitions: tuple[str, ...] = ("gpu",),
    ) -> None:
        self.local_slurm = local_slurm
        config_file = local_slurm.work / "dally.toml"
        state = local_slurm.spec.folder / "srsf-delay"
        config_file.write_text(
            f"partitions = {[*partitions]}\n"
            f'cluster = "{local_slurm.spec.conf.parent}"\n'
            f'url = ""\npolicy = "{policy}"\n'
        )
        self.record = state / "facts.jsonl"
        self.config = Config(
            partitions,
            policy=policy,
            state_dir=str(state),
            start_timeout_s=15.0,
            backoff_s=3.0,
            max_requeues=max_requeues,
            record=str(self.record),
        )
        self.environment = {**local_slurm.environment, "DALLY_CONFIG": str(config_file)}
        self.journal = Journal(state)
        topology = load_cluster(str(local_slurm.spec.conf.parent))
        self.prefix = local_slurm.cluster.argv() if local_slurm.network else ()
        self.slurm = CommandLine(local_slurm.environment, self.prefix, timeout_s=30.0)
        self.controller = Controller(self.slurm, self.config, topology, None, self.journal)
        for name, text in (("sleep.sh", SLEEP), ("train.sh", CHECKPOINTING)):
            (local_slurm.work / name).write_text(text)

    def submit(self, *arguments: str) -> str:
        """`dally-sbatch`, as root; the job's number."""
        wrapper = "from slurm_plugin.submit.sbatch import main; main()"
        command = [*self.prefix, sys.executable, "-c", wrapper, "--parsable", *arguments]
        done = subprocess.run(
            command,
            env=self.environment,
            cwd=self.local_slurm.work,
            capture_output=True,
            text=True,
            timeout=LONGEST_S,
        )
        assert (done.returncode, ADVICE.sub("", done.stderr)) == (0, "")
        return done.stdout.strip()

    def until(self, holds: Callable[[], object], what: str = "") -> None:
        """Cycles until something holds."""

        def cycled() -> object:
            self.controller.cycle()
            return holds()

        def waiting() -> str:
            said = {each.job_id: (each.phase.name, each.reason) for each in self.managed_jobs.values()}
            return f"{what}: {said}"

        wait_until(cycled, waiting, pause_s=0.1)

    def decide_again(self) -> None:
        """What was recorded so far comes out the same."""
        found = replay(self.record)
        assert found.differences == []
        assert found.decisions > 0

    @property
    def managed_jobs(self) -> dict[str, ManagedJob]:
        """The controller's managed_jobs."""
        return self.controller.reconciler.managed_jobs

    def state(self, job: str) -> str:
        """A job's state as squeue shows it."""
        return self.local_slurm.run("squeue", "-h", "-r", "--states=all", "-j", job, "-o", "%T").strip()

    def nodes(self, job: str) -> str:
        """The nodes a job holds."""
        return self.local_slurm.run("squeue", "-h", "-r", "-j", job, "-o", "%N").strip()

    def was_requeued(self, job: str, times: int) -> bool:
        """Whether the controller has seen a job requeued so often."""
        return self.managed_jobs[job].restarts == times

    def reason(self, job: str) -> str:
        """Why a job is pending."""
        return self.local_slurm.run("squeue", "-h", "-r", "-j", job, "-o", "%r").strip()


@pytest.fixture
def site(local_slurm: LocalSlurm) -> Iterator[RealSite]:
    """A local cluster whose jobs wait for a near placement for ten seconds."""
    real = RealSite(local_slurm, "dally:timers=manual,machine=1,rack=2,lease_s=5")
    yield real
    real.decide_again()
    real.journal.close()


def sleeping(site: RealSite, seconds: int, *options: str) -> str:
    return site.submit(*options, "--output=/dev/null", "sleep.sh", str(seconds))


def test_a_job_runs_on_one_machine_and_is_forgotten_when_it_ends(site: RealSite) -> None:
    job = sleeping(site, 1, "--gpus-per-node=4", "--model=resnet50")
    assert site.reason(job) == "JobHeldUser"
    site.until(lambda: site.state(job) == "RUNNING")
    assert site.nodes(job) == "n1"
    site.until(lambda: job not in site.managed_jobs)
    assert site.state(job) == "COMPLETED"


def test_nodes_that_a_user_gives_back_are_for_others(site: RealSite) -> None:
    job = sleeping(site, 60, "-N8", "--gres=gpu:8", "--no-kill")
    site.until(lambda: site.state(job) == "RUNNING")
    other = sleeping(site, 60, "-N1", "--gres=gpu:8")
    site.until(lambda: other in site.managed_jobs)
    site.local_slurm.run("scontrol", "update", f"JobId={job}", "NumNodes=7")
    site.until(lambda: site.state(other) == "RUNNING")
    assert (site.nodes(job), site.nodes(other)) == ("n[1-7]", "n8")
    assert site.managed_jobs[job].phase.name is JobPhase.RUNNING


def test_two_nodes_come_from_one_rack_and_gpus_are_shared_on_a_node(site: RealSite) -> None:
    small = [sleeping(site, 60, "--gpus=4") for _ in range(2)]
    pair = sleeping(site, 60, "-N2", "--gres=gpu:8")
    site.until(lambda: site.state(pair) == "RUNNING")
    assert {site.nodes(job) for job in small} == {"n1"}
    assert site.nodes(pair) == "n[3-4]"


def test_a_far_placement_is_declined_until_the_timer_is_over(site: RealSite) -> None:
    for name in ("n1", "n3", "n5", "n7"):
        site.local_slurm.run(
            "sbatch",
            "--partition=other",
            f"--nodelist={name}",
            "--gres=gpu:8",
            "-o/dev/null",
            "--wrap=sleep 300",
        )
    site.local_slurm.wait_for(
        lambda: "PENDING" not in site.local_slurm.run("squeue", "-h", "-o", "%T"), "others to run"
    )
    pair = sleeping(site, 60, "-N2", "--gres=gpu:8")
    site.until(lambda: pair in site.managed_jobs)
    began = time.monotonic()
    assert "no rack has 16 free GPUs" in site.managed_jobs[pair].reason
    site.until(lambda: site.state(pair) == "RUNNING")
    assert time.monotonic() - began > 8
    assert site.nodes(pair) == "n[2,4]"


def test_a_checkpointing_job_gives_way_and_goes_on_from_its_step(local_slurm: LocalSlurm) -> None:
    site = RealSite(local_slurm, "dally:timers=no-wait,lease_s=8")
    options = ("--checkpoint-signal=USR1", "--checkpoint-grace=20", "--output=/dev/null")
    long = site.submit(*options, "-N8", "--gres=gpu:8", "train.sh", str(local_slurm.work / "long"))
    site.until(lambda: site.state(long) == "RUNNING")
    site.until(lambda: (local_slurm.work / "long.step").exists())
    short = sleeping(site, 3, "-N8", "--gres=gpu:8")
    site.until(lambda: site.state(short) == "RUNNING")
    assert site.state(long) == "PENDING"
    site.until(lambda: site.state(long) == "RUNNING")
    site.until(lambda: len((local_slurm.work / "long.log").read_text().splitlines()) == 2)
    first, second = (line.split() for line in (local_slurm.work / "long.log").read_text().splitlines())
    assert (first[3], first[-1], second[-1]) == ("0", "0", "1")
    assert int(second[3]) > 0, "it goes on from its checkpoint"
    site.journal.close()
    site.decide_again()


def test_an_elastic_job_starts_on_what_is_free_of_a_node_and_grows_under_another_controller(
    local_slurm: LocalSlurm,
) -> None:
    policy = "elastic-scaling:interval_s=1"
    site = RealSite(local_slurm, policy)
    local_slurm.run("scontrol", "update", "NodeName=n[2-8]", "State=DRAIN", "Reason=test")
    others = local_slurm.run(
        "sbatch", "--parsable", "-pother", "--gres=gpu:6", "-o/dev/null", "--wrap=sleep 300"
    ).strip()
    local_slurm.wait_for(lambda: site.state(others) == "RUNNING", "others to run")
    options = ("--checkpoint-signal=USR1", "--checkpoint-grace=20", "--output=/dev/null")
    size = ("--ntasks=4", "--gpus-per-task=1", "--min-gpus=1", "--max-gpus=8")
    job = site.submit(*options, *size, "train.sh", str(local_slurm.work / "elastic"))
    site.until(lambda: site.state(job) == "RUNNING", "to start")
    site.until(lambda: (local_slurm.work / "elastic.step").exists())
    assert site.managed_jobs[job].gpus == {"n1": 2}
    site.journal.close()
    site.decide_again()
    site = RealSite(local_slurm, policy)
    local_slurm.run("scancel", others)
    site.until(lambda: site.managed_jobs[job].gpus == {"n1": 8} and site.state(job) == "RUNNING", "to grow")
    assert (
        site.managed_jobs[job].tasks,
        site.managed_jobs[job].restarts,
        site.managed_jobs[job].refusals.count,
    ) == (4, 1, 0)
    site.journal.close()
    site.decide_again()


def test_tasks_of_an_array_are_placed_one_by_one_within_their_limit(site: RealSite) -> None:
    array = sleeping(site, 4, "--array=1-3%2", "--gres=gpu:8")
    site.until(lambda: len(running(site)) == 2)
    assert running(site) == {f"{array}_1", f"{array}_2"}
    site.until(lambda: f"{array}_3" in running(site))


def running(site: RealSite) -> set[str]:
    return set(site.local_slurm.run("squeue", "-h", "-r", "-t", "RUNNING", "-o", "%i").split())


def test_a_job_can_be_cancelled_at_every_stage(site: RealSite) -> None:
    first = sleeping(site, 60, "-N8", "--gres=gpu:8")
    site.local_slurm.run("scancel", first)
    second = sleeping(site, 60, "-N8", "--gres=gpu:8")
    site.until(lambda: site.state(second) == "RUNNING")
    third = sleeping(site, 60, "-N8", "--gres=gpu:8")
    site.until(lambda: third in site.managed_jobs)
    site.local_slurm.run("scancel", third, second)
    site.until(lambda: not site.managed_jobs)
    assert not site.controller.scheduler.state.jobs


def test_an_administrators_hold_and_release_are_respected(site: RealSite) -> None:
    job = sleeping(site, 60, "--gres=gpu:8")
    site.local_slurm.run("scontrol", "hold", job)
    site.until(lambda: job in site.managed_jobs)
    assert site.managed_jobs[job].reason == "held by an administrator"
    site.local_slurm.run("scontrol", "release", job)
    site.until(lambda: job in running(site))


def test_a_job_released_by_hand_is_left_to_slurm(site: RealSite) -> None:
    whole = sleeping(site, 60, "-N8", "--gres=gpu:8")
    site.until(lambda: whole in running(site))
    job = sleeping(site, 60, "--gres=gpu:8")
    site.until(lambda: job in site.managed_jobs)
    site.local_slurm.run("scontrol", "release", job)
    site.until(lambda: site.managed_jobs[job].phase.name is JobPhase.RELEASED)
    site.local_slurm.run("scancel", whole)
    site.until(lambda: job in running(site))
    assert site.managed_jobs[job].phase.name is JobPhase.RELEASED


def test_an_administrator_moves_a_job_to_another_partition(site: RealSite) -> None:
    site.until(lambda: True)
    job = sleeping(site, 60, "--gres=gpu:8")
    move = ("scontrol", "update", f"JobId={job}", "Partition=other")
    # 26.05 says now and then that a resource is unavailable, and obeys when told again.
    site.local_slurm.wait_for(lambda: not site.local_slurm.attempt(*move).returncode, "the job to be moved")
    site.until(lambda: job in running(site))
    assert site.managed_jobs[job].phase.name is JobPhase.RELEASED


def test_nobody_takes_the_nodes_between_decision_and_start(site: RealSite) -> None:
    """A job of another partition waits for the same nodes all the while."""
    whole = sleeping(site, 3, "-N8", "--gres=gpu:8")
    site.until(lambda: whole in running(site))
    rival = site.local_slurm.run(
        "sbatch", "--parsable", "--partition=other", "-N8", "--gres=gpu:8", "-o/dev/null", "--wrap=sleep 5"
    ).strip()
    ours = sleeping(site, 3, "-N8", "--gres=gpu:8")
    site.until(lambda: site.state(rival) == "COMPLETED")
    site.until(lambda: site.state(ours) == "COMPLETED")


def test_a_job_that_was_requeued_too_often_is_preempted_no_more(site: RealSite) -> None:
    job = site.submit("--checkpoint-signal=USR1", "--gres=gpu:8", "-o/dev/null", "sleep.sh", "300")
    for restarts in range(1, 4):
        site.until(lambda: site.state(job) == "RUNNING")
        assert site.managed_jobs[job].job.preemptible
        site.local_slurm.run("scontrol", "requeue", job)
        site.until(partial(site.was_requeued, job, restarts))
    site.until(lambda: site.state(job) == "RUNNING")
    assert not site.managed_jobs[job].job.preemptible


def test_a_plain_sbatch_is_caught_by_the_plugin_and_placed(
    cluster_folder: Path, users: tuple[str, ...]
) -> None:
    files = {"job_submit.lua": LUA.read_text(), "dally_site.lua": site_lua(["gpu"], [], "hold", {})}
    local_slurm = LocalSlurm(LocalClusterSpec(cluster_folder, lua_files=files))
    local_slurm.start()
    try:
        site = RealSite(local_slurm, "dally")
        said = local_slurm.run(
            "sbatch", "--parsable", "--gres=gpu:2", "-o/dev/null", "--wrap=sleep 60", user=users[0]
        )
        job = said.strip()
        assert site.reason(job) == "JobHeldUser"
        site.until(lambda: site.state(job) == "RUNNING")
        assert site.managed_jobs[job].job.user == users[0]
        site.journal.close()
    finally:
        local_slurm.stop()
