"""The drills: what each breaks, and what must then be seen to have happened."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from slurm_plugin.local_cluster.local_slurm import LocalSlurm
from testbed.drills.scene import DrillError, Scene
from testbed.drills.stepped_clock import SteppedCluster
from testbed.drills.workload import WIDE
from testbed.running.control import Desk
from testbed.running.folder import JOBS_FOLDER
from testbed.running.script import GRACE_S, SCRIPT

_KILLS = 4
_FREEZE_S = 15.0
_NODE_AWAY_S = 36.0
_CUT_S = 45.0
"""Slurm gives a silent node up after SlurmdTimeout, 30 s in a local cluster."""

_FULL_S = 12.0
_STATE_BYTES = 2 << 20
_STEP_S = 300.0
_DEAF_GRACE_S = 4
_DEAF = {
    f"--checkpoint-grace={GRACE_S}": f"--checkpoint-grace={_DEAF_GRACE_S}",
    "-m workloads.train": "-m testbed.drills.deaf",
    " --checkpoint checkpoint.pt": " --checkpoint-every 10 --checkpoint checkpoint.pt",
}
"""What is exchanged in a job's script."""


@dataclass(frozen=True, slots=True)
class Drill:
    """One drill.

    Attributes:
        name: What it is called.
        says: What it breaks, in words.
        breaks: Breaks it, in the middle of the run.
        prepares: What must be different before the run begins.
        back_within_s: The controller must be well again so soon after the fault is over.
        shows: Events that must be in the run's record, and how often at least: else the fault did not strike.
    """

    name: str
    says: str
    breaks: Callable[[Scene], None]
    back_within_s: float
    shows: Mapping[str, int] = field(default_factory=dict)
    prepares: Callable[[Scene], None] = lambda scene: None


def kill_controller(scene: Scene, kills: int = _KILLS) -> None:
    """Kill the controller at random moments, one of them soon after its start."""
    scene.until_training(WIDE, 1)
    for number in range(kills):
        scene.pause(scene.draw.uniform(0.0, 2.5) if number == 1 else scene.draw.uniform(2.0, 7.0))
        scene.break_("the controller is killed", scene.kill_controller)
        scene.mend()
        scene.until_started(number + 2)


def restart_slurmctld(scene: Scene) -> None:
    """Kill slurmctld as soon as it has saved what it knows and start it again, then freeze it."""
    scene.until_training(WIDE)
    begun_s = time.time()
    scene.until(lambda: scene.local_slurm.saved_s() > begun_s, "slurmctld has saved what it knows")
    scene.break_("slurmctld is killed", scene.local_slurm.kill_controller)
    scene.pause(4.0)
    scene.mend(scene.local_slurm.start_controller)
    scene.pause(8.0)
    scene.break_(f"slurmctld is frozen for {_FREEZE_S:g} s", scene.local_slurm.pause_controller)
    scene.pause(_FREEZE_S)
    scene.mend(scene.local_slurm.resume_controller)


def take_node_down(scene: Scene) -> None:
    """Lose a node on which a job trains, with all that runs there; it is back when Slurm has given it up."""
    scene.until_training(WIDE)
    nodes = scene.nodes_of(WIDE)
    if not nodes:
        raise DrillError(f"job {WIDE} trains and Slurm does not show where")
    node = nodes[-1]
    scene.break_(f"node {node}, where job {WIDE} trains, dies", lambda: scene.local_slurm.kill_node(node))
    scene.pause(_NODE_AWAY_S)
    scene.mend(lambda: scene.local_slurm.start_node(node))


def cut_uplink(scene: Scene) -> None:
    """Cut a rack off while a job trains on both sides."""
    scene.until_training(WIDE)
    network = scene.local_slurm.network
    assert network
    rack = list(network.spec.hosts_of)[-1]
    scene.break_(f"the uplink of rack {rack} is cut for {_CUT_S:g} s", lambda: network.cut(rack))
    scene.pause(_CUT_S)
    scene.mend(lambda: network.mend(rack))
    # Slurm asks a node that it has given up for a sign of life only once in minutes; a new slurmd gives one.
    for node in network.spec.hosts_of[rack]:
        scene.local_slurm.kill_slurmd(node)
        scene.local_slurm.start_node(node)


def limit_disk(scene: Scene) -> None:
    """Give the controller's state a small file system of its own."""
    state = scene.base / "state"
    state.mkdir(parents=True)
    assert scene.local_slurm.network
    scene.local_slurm.network.limit_folder(state, _STATE_BYTES)


def fill_disk(scene: Scene) -> None:
    """Fill the file system of the controller's state to the last byte, and empty it later."""
    scene.until_training(WIDE)
    filler = str(scene.base / "state" / "filler.pt")

    def fill() -> None:
        done = scene.local_slurm.attempt("dd", "if=/dev/zero", f"of={filler}", "bs=4096")
        if "No space left" not in done.stderr:
            raise DrillError(f"the disk is not full: {done.stderr.strip()}")

    scene.break_(f"the disk with the controller's state is full for {_FULL_S:g} s", fill)
    scene.pause(_FULL_S)
    scene.mend(lambda: scene.local_slurm.run("rm", filler))


def make_deaf(scene: Scene) -> None:
    """Exchange a job's program, before it is submitted, for one that ignores its checkpoint signal."""
    script = scene.base / JOBS_FOLDER / WIDE / SCRIPT
    scene.until(script.exists, "the jobs' scripts were there")
    text = deafened(script.read_text(encoding="utf-8"))
    said = f"job {WIDE} ignores its checkpoint signal; its grace is {_DEAF_GRACE_S} s"
    scene.break_(said, lambda: script.write_text(text, encoding="utf-8"))


def deafened(script: str) -> str:
    """A job's script with a program that ignores its checkpoint signal, and checkpoints all the same.

    Raises:
        DrillError: It is not such a script as was thought.
    """
    for old, new in _DEAF.items():
        if old not in script:
            raise DrillError(f"a job's script has no {old!r}, so the job cannot be made deaf")
        script = script.replace(old, new)
    return script


def own_clock(scene: Scene) -> None:
    """Give the controller a wall clock of its own."""
    local_slurm: LocalSlurm = scene.local_slurm
    scene.cluster = SteppedCluster(local_slurm.spec, local_slurm.network, _clock_file(scene))


def step_clock(scene: Scene) -> None:
    """Step the controller's wall clock ahead, then far back; each time a new controller meets it, too."""
    scene.until_training(WIDE)
    for seconds in (_STEP_S, -_STEP_S):
        words = (
            f"the controller's wall clock jumps to {abs(seconds):g} s {'ahead' if seconds > 0 else 'behind'}"
        )

        def step(text: str = f"{seconds}") -> None:
            _clock_file(scene).write_text(text, encoding="ascii")

        scene.break_(words, step)
        scene.mend()
        scene.pause(5.0)
        scene.break_("under this clock the controller is killed", scene.kill_controller)
        scene.mend()
        scene.pause(7.0)


def _clock_file(scene: Scene) -> Path:
    return Desk(scene.base).log.with_name("clock-is-wrong-by.pt")


DRILLS = (
    Drill(
        "controller-kill",
        f"SIGKILL for the controller, {_KILLS} times at random moments",
        kill_controller,
        20.0,
        {"controller_starts": _KILLS + 1},
    ),
    Drill(
        "slurmctld-restart",
        f"slurmctld is killed and started again, then frozen for {_FREEZE_S:g} s",
        restart_slurmctld,
        45.0,
        {"slurm_unavailable": 1, "recovered": 1},
    ),
    Drill(
        "node-down",
        f"a node dies in mid-job with all its processes, and is back after {_NODE_AWAY_S:g} s",
        take_node_down,
        20.0,
        {"fail": 1},
    ),
    Drill(
        "uplink-cut",
        f"a rack's uplink carries nothing for {_CUT_S:g} s",
        cut_uplink,
        45.0,
        {"fail": 1},
    ),
    Drill(
        "disk-full",
        f"the disk with the controller's state is full for {_FULL_S:g} s",
        fill_disk,
        30.0,
        {"journal_error": 1, "recovered": 1},
        limit_disk,
    ),
    Drill(
        "deaf-job",
        "a job ignores its checkpoint signal",
        make_deaf,
        20.0,
        {f"preempt {WIDE}": 1},
    ),
    Drill(
        "clock-step",
        f"the controller's wall clock is stepped {_STEP_S / 60:g} minutes ahead, then as far behind",
        step_clock,
        20.0,
        {"controller_starts": 3},
        own_clock,
    ),
)


def find_drill(name: str) -> Drill | None:
    """The drill of a name; None if there is none."""
    return next((drill for drill in DRILLS if drill.name == name), None)
