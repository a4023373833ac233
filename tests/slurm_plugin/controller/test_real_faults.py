"""What becomes of jobs on real Slurm when controllers, daemons, nodes, disks and clocks fail."""

import shutil
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path

import pytest

from slurm_plugin.client.command_line import CommandLine
from slurm_plugin.client.slurm import Hold, SlurmJob, State
from slurm_plugin.controller.journal import NAME
from slurm_plugin.local_cluster.local_slurm import LocalSlurm
from slurm_plugin.local_cluster.slurm_files import LocalClusterSpec
from slurm_plugin.request import Request, encode
from tests.patience import LONGEST_S, wait_until
from tests.slurm_plugin.real import (
    CHECKPOINT_AND_EXIT,
    CHECKPOINT_AND_GO_ON,
    IGNORE_ALL,
    ControllerProcess,
    NotedRun,
    job_script,
    lost_steps,
    read_runs,
    run_twice_at_once,
)

FROZEN_S = 20.0
MANY = 160
"""More than twice the cluster's GPUs: most wait for others to end."""
MANY_S = 300.0
ALICE = "dally-alice"
QUICK = "dally:lease_s=2,timers=no-wait"


class FaultySite:
    """A local cluster, its controller's process, and what its jobs wrote down."""

    def __init__(self, local_slurm: LocalSlurm, policy: str = QUICK):
        self.local_slurm, self.slurm = local_slurm, CommandLine(local_slurm.environment)
        self.state_dir = local_slurm.spec.folder / "srsf-delay"
        self.config = local_slurm.spec.folder / "dally.toml"
        self.jobs: list[str] = []
        self.controller: ControllerProcess | None = None
        values = {
            "policy": policy,
            "cluster": str(local_slurm.spec.conf.parent),
            "state_dir": str(self.state_dir),
            "poll_s": 0.5,
            "start_timeout_s": 5.0,
            "backoff_s": 1.0,
            "max_requeues": 1000,
        }
        lines = ['partitions = ["gpu"]', *(f"{name} = {value!r}" for name, value in values.items())]
        self.config.write_text("\n".join(lines), encoding="utf-8")

    def start(self, *options: str) -> ControllerProcess:
        """Start a controller, in place of the one before, which is no more."""
        assert self.controller is None or not self.controller.runs, "one controller at a time"
        self.controller = ControllerProcess(self.config, self.local_slurm.environment, *options)
        return self.controller

    def submit(self, traps: str, nodes: int = 8) -> str:
        """A job over whole nodes; its number."""
        comment = encode(Request(signal="USR1", grace_s=3, tag=f"{len(self.jobs) + 1:x}"))
        options = (f"--nodes={nodes}", "--gres=gpu:8", "--hold", "--requeue", "--output=/dev/null")
        said = self.local_slurm.run(
            "sbatch",
            "--parsable",
            *options,
            f"--comment={comment}",
            user=ALICE,
            stdin=job_script(traps, steps=1),
        )
        self.jobs.append(said.strip())
        return self.jobs[-1]

    def finish(self) -> None:
        """From now on jobs end when they have done their steps."""
        (self.local_slurm.work / "finish").touch()

    def wait(self, holds: Callable[[], object], what: str, timeout_s: float = LONGEST_S) -> float:
        """Wait until something holds; how long it took, seconds."""

        def looked() -> object:
            assert self.controller is None or self.controller.is_sound, self.said()
            return holds()

        began = time.monotonic()
        wait_until(looked, lambda: f"{what}: {self.runs()}; {self.said()}", timeout_s, 0.1)
        return time.monotonic() - began

    def seen(self) -> dict[str, SlurmJob]:
        """Our jobs as Slurm shows them."""
        return {job.job_id: job for job in self.slurm.jobs()}

    def shown(self) -> dict[str, str]:
        """State and reason of each job."""
        return {name: f"{job.state_name} {job.hold} {job.reason}" for name, job in self.seen().items()}

    def runs(self) -> list[NotedRun]:
        """What really ran."""
        return read_runs(self.local_slurm.work / "ran")

    def managed_jobs(self) -> list[str]:
        """What the journal still holds."""
        path = f"file:{self.state_dir / NAME}?mode=ro"
        with closing(sqlite3.connect(path, uri=True, timeout=5.0)) as database:
            return [job for (job,) in database.execute("SELECT job FROM jobs")]

    def running(self) -> list[str]:
        """Jobs that run."""
        return [name for name, job in self.seen().items() if job.state is State.RUNNING]

    def said(self) -> str:
        """The end of what controllers wrote."""
        return self.controller.said() if self.controller else ""

    def wait_dead(self, point: str) -> None:
        """Wait until the controller has come to where it dies."""
        self.wait(lambda: not (self.controller and self.controller.runs), f"a controller to come to: {point}")

    def recovers(self) -> None:
        """Wait until a job is started anew; `pytest -rP` shows how long it took."""
        runs = len(self.runs())
        print(f"{self.wait(lambda: len(self.runs()) > runs, 'a new run'):.1f} s until the next run")

    def submit_many(self, count: int) -> None:
        """Many small jobs at once."""
        script = self.local_slurm.work / "small.sh"
        script.write_text(job_script("", steps=0), encoding="ascii")
        command = (
            f"for n in $(seq {count}); do sbatch --parsable --gres=gpu:1 --hold --output=/dev/null "
            f"--comment=dally:tag=$(printf %x $n) {script} || exit 1; done"
        )
        self.jobs += self.local_slurm.run("bash", "-c", command, user=ALICE, timeout_s=120).split()

    def ended(self) -> set[str]:
        """Jobs that have ended."""
        return {name for name, job in self.seen().items() if job.state is State.ENDED}

    def end(self, loses_steps: bool = False) -> None:
        """Let all jobs finish, and check that it ends as when nothing goes wrong.

        Args:
            loses_steps: Jobs may have had to do again what they did since their last checkpoint.
        """
        self.finish()
        self.wait(lambda: self.ended() == set(self.jobs), "all jobs to end")
        self.wait(lambda: not self.managed_jobs(), "the controller to see that all jobs ended")
        runs = self.runs()
        assert {name: job.state_name for name, job in self.seen().items()} == dict.fromkeys(
            self.jobs, "COMPLETED"
        )
        assert {run.job_id for run in runs} == set(self.jobs)
        assert not run_twice_at_once(runs)
        assert loses_steps or not lost_steps(runs)

    def stop(self) -> None:
        """Kill the controller."""
        if self.controller:
            self.controller.kill()

    def close(self) -> None:
        """Kill the controller and end the cluster."""
        self.stop()
        self.local_slurm.stop()


@pytest.fixture
def site(local_slurm: LocalSlurm) -> Iterator[FaultySite]:
    """A local cluster whose jobs take turns every two seconds."""
    site = FaultySite(local_slurm)
    yield site
    site.stop()


def take_turns(site: FaultySite, *traps: str) -> None:
    """Jobs that each want the whole cluster."""
    for each in traps or (CHECKPOINT_AND_EXIT, CHECKPOINT_AND_GO_ON):
        site.submit(each)


def die_at(site: FaultySite, points: Iterable[str]) -> None:
    """Start controllers that die at these steps, one after the other, then one that lives."""
    for point in points:
        site.start("--kill-at", point)
        site.wait_dead(point)
    site.start()


def test_undisturbed_jobs_that_take_turns_lose_nothing(site: FaultySite) -> None:
    take_turns(site)
    site.start()
    site.wait(lambda: len(site.runs()) >= 4, "two turns each")
    site.end()


EVER = ("cycle", "observed", "decided", "cycle done")
RELEASE = ("release", "before update", "amid update", "before release", "amid release", "release done")
RESERVE = ("reserve", "before create", "amid create", "reserve done", *RELEASE)
STOP = ("signal", "before signal", "amid signal", "signal done")
REQUEUE = ("requeue", "before requeuehold", "amid requeuehold", "requeue done")
CORRECT = ("correct", "before uhold", "amid uhold", "correct done")


@pytest.mark.parametrize("points", [EVER, RESERVE, CORRECT], ids=["ever", "reserve", "correct"])
def test_a_controller_killed_at_each_step_loses_nothing(site: FaultySite, points: tuple[str, ...]) -> None:
    take_turns(site)
    die_at(site, points)
    site.end()


@pytest.mark.parametrize("traps", [CHECKPOINT_AND_EXIT, CHECKPOINT_AND_GO_ON], ids=["exit", "go on"])
def test_a_controller_killed_while_it_stops_jobs_loses_no_checkpoint(site: FaultySite, traps: str) -> None:
    take_turns(site, traps, traps)
    die_at(site, (*STOP, *REQUEUE))
    site.end()


def test_orders_that_outlive_their_controller_start_no_job_twice(site: FaultySite) -> None:
    take_turns(site)
    slurmctld = int((site.local_slurm.spec.folder / "run" / "slurmctld.pid").read_text(encoding="ascii"))
    for point in ("before update", "before release", "before signal", "before requeuehold", "before uhold"):
        controller = site.start("--kill-at", point, "--freeze", str(slurmctld))
        site.wait(lambda: " T " in Path(f"/proc/{slurmctld}/stat").read_text(encoding="ascii"), point)
        site.wait(controller.commands, "a command to wait for slurmctld")
        controller.kill()
        site.local_slurm.resume_controller()
    site.start()
    site.end()


def test_a_job_that_ignores_signals_is_stopped_all_the_same(site: FaultySite) -> None:
    stubborn = site.submit(IGNORE_ALL)
    site.submit(CHECKPOINT_AND_EXIT)
    site.start()
    site.wait(lambda: [run.job_id for run in site.runs()].count(stubborn) == 2, "two turns")
    site.end(loses_steps=True)


def test_slurmctld_stopped_and_started_again_loses_nothing(site: FaultySite) -> None:
    take_turns(site)
    site.start()
    site.wait(site.running, "a job to run")
    site.local_slurm.stop_controller()
    site.wait(lambda: "Unavailable" in site.said(), "the controller to notice")
    site.local_slurm.start_controller()
    site.recovers()
    site.end()


def test_slurmctld_killed_and_started_again_loses_no_job(site: FaultySite) -> None:
    take_turns(site)
    site.start()
    site.wait(lambda: len(site.runs()) >= 3, "turns")
    site.local_slurm.kill_controller()
    site.wait(lambda: "Unavailable" in site.said(), "the controller to notice")
    site.local_slurm.start_controller()
    site.recovers()
    site.end(loses_steps=True)


def test_slurmctld_that_does_not_answer_for_long_is_waited_for(site: FaultySite) -> None:
    take_turns(site)
    site.start()
    site.wait(site.running, "a job to run")
    site.local_slurm.pause_controller()
    resume_s = time.monotonic() + FROZEN_S
    site.wait(lambda: "Unavailable" in site.said(), "the controller to notice")
    site.wait(lambda: time.monotonic() > resume_s, "time to pass")
    site.local_slurm.resume_controller()
    site.recovers()
    site.end()


def test_a_cluster_with_other_racks_and_fewer_nodes_is_taken_as_it_is(site: FaultySite) -> None:
    running, too_large = site.submit(CHECKPOINT_AND_EXIT, nodes=4), site.submit(CHECKPOINT_AND_EXIT, nodes=8)
    site.start()
    site.wait(site.running, "a job to run")
    site.stop()
    site.local_slurm.rewrite(replace(site.local_slurm.spec, nodes=6, racks=2))
    small = site.submit(CHECKPOINT_AND_EXIT, nodes=3)
    site.start()
    site.wait(lambda: small in {run.job_id for run in site.runs()}, "the new job to run")
    site.finish()
    site.wait(lambda: site.ended() == {running, small}, "what fits to end")
    assert site.shown()[too_large] == "PENDING none PartitionNodeLimit"
    assert {run.nodes for run in site.runs() if run.job_id == small} <= {"n[1-3]", "n[4-6]"}
    assert not run_twice_at_once(site.runs())


def test_a_lost_node_sends_its_job_elsewhere(cluster_folder: Path, users: tuple[str, ...]) -> None:
    local_slurm = LocalSlurm(LocalClusterSpec(cluster_folder, extra_conf=("SlurmdTimeout=5",)))
    local_slurm.start()
    with closing(FaultySite(local_slurm)) as site:
        site.submit(CHECKPOINT_AND_EXIT, nodes=2)
        site.start()
        site.wait(site.runs, "it to run")
        local_slurm.kill_node("n1")
        site.recovers()
        site.end(loses_steps=True)
        assert [run.nodes for run in site.runs()] == ["n[1-2]", "n[3-4]"]


def test_slurmd_killed_and_started_again_disturbs_nothing(site: FaultySite) -> None:
    take_turns(site)
    site.start()
    site.wait(site.running, "a job to run")
    site.local_slurm.kill_slurmd("n1")
    site.local_slurm.start_node("n1")
    site.recovers()
    site.end()


def delete(folder: Path) -> None:
    for path in folder.iterdir():
        path.unlink()


def overwrite(folder: Path) -> None:
    (folder / NAME).write_bytes(b"x" * (folder / NAME).stat().st_size)


def cut(folder: Path) -> None:
    (folder / NAME).write_bytes((folder / NAME).read_bytes()[:5000])


@pytest.mark.parametrize(
    ("damage", "point"),
    [(delete, "signal done"), (delete, "release done"), (overwrite, "requeue done"), (cut, "correct")],
)
def test_a_lost_journal_is_rebuilt_from_slurm(
    site: FaultySite, damage: Callable[[Path], None], point: str
) -> None:
    take_turns(site)
    site.start("--kill-at", point)
    site.wait_dead(point)
    damage(site.state_dir)
    site.start()
    site.recovers()
    site.end()


def test_a_full_disk_stops_the_controller_and_not_the_jobs(site: FaultySite) -> None:
    site.state_dir.mkdir()
    site.local_slurm.run("mount", "-t", "tmpfs", "-o", "size=400k", "tmpfs", str(site.state_dir))
    try:
        take_turns(site)
        site.start()
        site.wait(site.running, "a job to run")
        filler = site.state_dir / "filler"
        with suppress(OSError), filler.open("wb", buffering=0) as file:
            while True:
                file.write(bytes(4096))
        site.wait(lambda: "JournalError" in site.said(), "the disk to be full")
        filler.unlink()
        site.recovers()
        site.end()
    finally:
        site.stop()
        site.local_slurm.run("umount", str(site.state_dir))


def test_clock_steps_stop_nothing(site: FaultySite) -> None:
    take_turns(site)
    for shift_s in (-3600, 3600, 0):
        site.start(f"--clock-shift-s={shift_s}")
        site.submit(CHECKPOINT_AND_EXIT)
        site.recovers()
        site.stop()
    site.start()
    site.end()


def test_many_jobs_at_once_all_run_once(local_slurm: LocalSlurm) -> None:
    with closing(FaultySite(local_slurm, "fifo")) as site:
        site.finish()
        site.start()
        site.submit_many(MANY)
        site.wait(lambda: len(site.ended()) == MANY, "all to end", MANY_S)
        site.end()
        assert len(site.runs()) == MANY


def test_slurmctld_killed_and_back_with_an_older_state_runs_no_job_twice(local_slurm: LocalSlurm) -> None:
    """Two jobs ran and two waited as the state was kept; since then all have ended."""
    with closing(FaultySite(local_slurm, "fifo")) as site:
        state, kept = local_slurm.spec.folder / "state", local_slurm.spec.folder / "kept"
        site.start()
        for _ in range(4):
            site.submit("", nodes=4)
        site.wait(lambda: len(site.running()) == 2, "two jobs to run")
        local_slurm.stop_controller()
        shutil.copytree(state, kept)
        local_slurm.start_controller()
        site.finish()
        site.wait(lambda: site.ended() == set(site.jobs) and not site.managed_jobs(), "all to end")
        local_slurm.kill_controller()
        shutil.rmtree(state)
        shutil.copytree(kept, state)
        local_slurm.start_controller()
        site.wait(lambda: set(site.managed_jobs()) == set(site.jobs), "the controller to meet all again")

        def all_held() -> bool:
            shown = site.seen().values()
            return all(job.state is State.PENDING and job.hold is Hold.USER for job in shown)

        for job in site.running():  # as slurmctld does once it misses them on their nodes
            local_slurm.run("scontrol", "requeue", job)
        site.wait(all_held, "all to be held")
        assert sorted(run.job_id for run in site.runs()) == sorted(site.jobs)
        local_slurm.run("scontrol", "release", site.jobs[2], user=ALICE)
        site.wait(lambda: len(site.runs()) == 5, "the one that its user wants again to run")
