"""What a fault may see of a drill and do to it: the cluster, and its run."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random

from dally.errors import DallyError
from slurm_plugin.local_cluster.cluster import Cluster
from slurm_plugin.local_cluster.local_slurm import LocalSlurm
from testbed.running.controller import ControllerFiles
from testbed.running.folder import JOBS_FOLDER
from testbed.running.json_lines import append_line, read_lines
from testbed.running.restarter import daemon_file
from testbed.running.script import SCRIPT, STEPS

FAULTS = "faults.jsonl"
_LONGEST_S = 60.0
_POLL_S = 0.1


class DrillError(DallyError):
    """A drill cannot be held."""


@dataclass(frozen=True, slots=True)
class Fault:
    """Something that was broken; times in seconds since 1970.

    Attributes:
        said: What, in words.
        begin_s: When.
        end_s: When it was over; None if it never was.
    """

    said: str
    begin_s: float
    end_s: float | None


class FaultContext:
    """One drill while it goes on.

    Args:
        local_slurm: The cluster, up.
        folder: The run's folder.
        base: The same on the head node.
        draw: Chooses moments.
        ended: Whether the run is over.

    Attributes:
        cluster: What the run is carried out on; a drill may put another in its place before it begins.
    """

    def __init__(
        self, local_slurm: LocalSlurm, folder: Path, base: Path, draw: Random, ended: Callable[[], bool]
    ) -> None:
        self.local_slurm, self.folder, self.base, self.draw = local_slurm, folder, base, draw
        self.cluster: Cluster = local_slurm.cluster
        self._ended = ended

    def inject(self, said: str, fault: Callable[[], object]) -> None:
        """Cause a fault, and note it."""
        append_line(self.folder / FAULTS, t=round(time.time(), 3), broken=said)
        fault()

    def recover(self, undo: Callable[[], object] = lambda: None) -> None:
        """Undo the last fault, and note when that was done."""
        undo()
        append_line(self.folder / FAULTS, t=round(time.time(), 3), mended=True)

    def pause(self, seconds: float) -> None:
        """Let things go on for so long, or until the run is over."""
        until_s = time.monotonic() + seconds
        while time.monotonic() < until_s and not self._ended():
            time.sleep(_POLL_S)

    def until(self, holds: Callable[[], bool], what: str) -> None:
        """Wait until something holds.

        Raises:
            DrillError: It does not in time, or the run is over before.
        """
        until_s = time.monotonic() + _LONGEST_S
        while not holds():
            if self._ended():
                raise DrillError(f"the run was over before {what}")
            if time.monotonic() > until_s:
                raise DrillError(f"waited {_LONGEST_S:g} s for {what}")
            time.sleep(_POLL_S)

    def until_training(self, job_id: str, steps: int = 3) -> None:
        """Wait until a job has done some steps."""
        log = self.base / JOBS_FOLDER / job_id / STEPS
        self.until(lambda: len(read_lines(log)) >= steps, f"job {job_id} had done {steps} steps")

    def nodes_of(self, job_id: str) -> list[str]:
        """The nodes that a job runs on now."""
        shown = self.local_slurm.run("squeue", "--noheader", "--states=RUNNING", "--format=%o %N")
        wanted = str(self.base / JOBS_FOLDER / job_id / SCRIPT)
        for line in shown.splitlines():
            command, _, nodes = line.strip().partition(" ")
            if command == wanted:
                return self.local_slurm.run("scontrol", "show", "hostnames", nodes).split()
        return []

    def kill_controller(self) -> None:
        """Kill Dally's controller; it is restarted like any daemon of a run."""
        pid = daemon_file(ControllerFiles(self.base).log, "pid").read_text(encoding="ascii").strip()
        self.local_slurm.attempt("kill", "-KILL", pid)

    def until_started(self, times: int) -> None:
        """Wait until the controller has so often said that it starts."""
        log = ControllerFiles(self.base).log
        self.until(
            lambda: [line.get("event") for line in read_lines(log)].count("controller_starts") >= times,
            f"the controller was started {times} times",
        )


def read_faults(path: Path) -> list[Fault]:
    """All that was broken in a drill, in order."""
    found: list[Fault] = []
    for line in read_lines(path):
        if "broken" in line:
            found.append(Fault(line["broken"], line["t"], None))
        elif found:
            found[-1] = Fault(found[-1].said, found[-1].begin_s, line["t"])
    return found
