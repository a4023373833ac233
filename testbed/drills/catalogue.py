"""The drills: what each breaks, and what must then be seen to have happened."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from testbed.drills.fault_context import DrillError, FaultContext
from testbed.drills.stepped_clock import SteppedCluster
from testbed.drills.workload import WIDE
from testbed.running.controller import ControllerFiles
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
_SHORT_GRACE_S = 4
_EXCHANGED = {
    f"--checkpoint-grace={GRACE_S}": f"--checkpoint-grace={_SHORT_GRACE_S}",
    "-m workloads.train": "-m testbed.drills.ignore_signals",
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
    breaks: Callable[[FaultContext], None]
    back_within_s: float
    shows: Mapping[str, int] = field(default_factory=dict)
    prepares: Callable[[FaultContext], None] = lambda context: None


def kill_controller(context: FaultContext, kills: int = _KILLS) -> None:
    """Kill the controller at random moments, one of them soon after its start."""
    context.until_training(WIDE, 1)
    for number in range(kills):
        context.pause(context.draw.uniform(0.0, 2.5) if number == 1 else context.draw.uniform(2.0, 7.0))
        context.inject("the controller is killed", context.kill_controller)
        context.recover()
        context.until_started(number + 2)


def restart_slurmctld(context: FaultContext) -> None:
    """Kill slurmctld as soon as it has saved what it knows and start it again, then freeze it."""
    context.until_training(WIDE)
    begun_s = time.time()
    context.until(lambda: context.local_slurm.saved_s() > begun_s, "slurmctld has saved what it knows")
    context.inject("slurmctld is killed", context.local_slurm.kill_controller)
    context.pause(4.0)
    context.recover(context.local_slurm.start_controller)
    context.pause(8.0)
    context.inject(f"slurmctld is frozen for {_FREEZE_S:g} s", context.local_slurm.pause_controller)
    context.pause(_FREEZE_S)
    context.recover(context.local_slurm.resume_controller)


def take_node_down(context: FaultContext) -> None:
    """Lose a node on which a job trains, with all that runs there; it is back when Slurm has given it up."""
    context.until_training(WIDE)
    nodes = context.nodes_of(WIDE)
    if not nodes:
        raise DrillError(f"job {WIDE} trains and Slurm does not show where")
    node = nodes[-1]
    context.inject(f"node {node}, where job {WIDE} trains, dies", lambda: context.local_slurm.kill_node(node))
    context.pause(_NODE_AWAY_S)
    context.recover(lambda: context.local_slurm.start_node(node))


def cut_uplink(context: FaultContext) -> None:
    """Cut a rack off while a job trains on both sides."""
    context.until_training(WIDE)
    network = context.local_slurm.network
    assert network
    rack = list(network.spec.hosts_of)[-1]
    context.inject(f"the uplink of rack {rack} is cut for {_CUT_S:g} s", lambda: network.cut(rack))
    context.pause(_CUT_S)
    context.recover(lambda: network.mend(rack))
    # Slurm asks a node that it has given up for a sign of life only once in minutes; a new slurmd gives one.
    for node in network.spec.hosts_of[rack]:
        context.local_slurm.kill_slurmd(node)
        context.local_slurm.start_node(node)


def limit_disk(context: FaultContext) -> None:
    """Give the controller's state a small file system of its own."""
    state = context.base / "state"
    state.mkdir(parents=True)
    assert context.local_slurm.network
    context.local_slurm.network.limit_folder(state, _STATE_BYTES)


def fill_disk(context: FaultContext) -> None:
    """Fill the file system of the controller's state to the last byte, and empty it later."""
    context.until_training(WIDE)
    filler = str(context.base / "state" / "filler.pt")

    def fill() -> None:
        done = context.local_slurm.attempt("dd", "if=/dev/zero", f"of={filler}", "bs=4096")
        if "No space left" not in done.stderr:
            raise DrillError(f"the disk is not full: {done.stderr.strip()}")

    context.inject(f"the disk with the controller's state is full for {_FULL_S:g} s", fill)
    context.pause(_FULL_S)
    context.recover(lambda: context.local_slurm.run("rm", filler))


def ignore_checkpoint_signal(context: FaultContext) -> None:
    """Exchange a job's program, before it is submitted, for one that ignores its checkpoint signal."""
    script = context.base / JOBS_FOLDER / WIDE / SCRIPT
    context.until(script.exists, "the jobs' scripts were there")
    text = ignoring_checkpoint_signal(script.read_text(encoding="utf-8"))
    said = f"job {WIDE} ignores its checkpoint signal; its grace is {_SHORT_GRACE_S} s"
    context.inject(said, lambda: script.write_text(text, encoding="utf-8"))


def ignoring_checkpoint_signal(script: str) -> str:
    """A job's script with a program that ignores its checkpoint signal, and checkpoints all the same.

    Raises:
        DrillError: It is not such a script as was thought.
    """
    for old, new in _EXCHANGED.items():
        if old not in script:
            raise DrillError(f"a job's script has no {old!r}, so the job cannot be made to ignore its signal")
        script = script.replace(old, new)
    return script


def own_clock(context: FaultContext) -> None:
    """Give the controller a wall clock of its own."""
    slurm = context.local_slurm
    context.cluster = SteppedCluster(slurm.spec, slurm.network, _clock_file(context))


def step_clock(context: FaultContext) -> None:
    """Step the controller's wall clock ahead, then far back; each time a new controller meets it, too."""
    context.until_training(WIDE)
    for seconds in (_STEP_S, -_STEP_S):
        way = "ahead" if seconds > 0 else "behind"

        def step(text: str = f"{seconds}") -> None:
            _clock_file(context).write_text(text, encoding="ascii")

        context.inject(f"the controller's wall clock jumps to {abs(seconds):g} s {way}", step)
        context.recover()
        context.pause(5.0)
        context.inject("under this clock the controller is killed", context.kill_controller)
        context.recover()
        context.pause(7.0)


def _clock_file(context: FaultContext) -> Path:
    return ControllerFiles(context.base).log.with_name("clock-is-wrong-by.pt")


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
    Drill("uplink-cut", f"a rack's uplink carries nothing for {_CUT_S:g} s", cut_uplink, 45.0, {"fail": 1}),
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
        ignore_checkpoint_signal,
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
