"""A cluster that is none: sbatch takes jobs, squeue shows them as a test says, files are real."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dally.hosts.network import Traffic
from dally.hosts.processes import Command, Running
from slurm_plugin.local_cluster.cluster import ASK_S, ClusterError
from testbed.running import head_files

PROC = "cpu  100 0 100 700 0 0 0 100\nMemTotal: 1000 kB\nMemAvailable: 400 kB\n"
VERSION = {"Slurm": {"version": {"major": 22}}}


def shown_job(number: int, comment: str, state: str = "PENDING", **more: Any) -> dict[str, Any]:
    """A job as `squeue --json` of 22.05 shows it."""
    return {"job_id": number, "job_state": state, "comment": comment, "submit_time": 1000, **more}


def running_job(number: int, comment: str, start_s: int, node: str, gpus: int) -> dict[str, Any]:
    """A job that runs on one node."""
    detail = [f"gpu:h100:{gpus}(IDX:0)"]
    return shown_job(number, comment, "RUNNING", start_time=start_s, nodes=node, gres_detail=detail)


class FakeRunning:
    """A daemon that does nothing."""

    stdout: Iterable[bytes] = ()
    stderr: Iterable[bytes] = ()

    def __init__(self) -> None:
        self.stopped = False

    def wait(self) -> int | None:
        return 0

    def stop(self) -> None:
        self.stopped = True


@dataclass
class FakeTestbedCluster:
    """The `Cluster` of tests.

    Attributes:
        folder: Where everything lies.
        queue: What squeue shows, by number of the job.
        on_poll: Called before each look at the queue.
        refusals: What the next submissions are refused with, in order.
        submitted: The command lines of all submissions.
        cancelled: Numbers of jobs that were cancelled.
        daemons: What was started.
    """

    folder: Path
    queue: dict[int, dict[str, Any]] = field(default_factory=dict)
    on_poll: Callable[["FakeTestbedCluster"], None] = lambda cluster: None
    refusals: list[str] = field(default_factory=list)
    submitted: list[tuple[str, ...]] = field(default_factory=list)
    cancelled: list[str] = field(default_factory=list)
    daemons: list[FakeRunning] = field(default_factory=list)
    answers: bool = True
    python: str = sys.executable
    partition: str = "gpu"
    interface: str = "eth0"

    @property
    def conf(self) -> Path:
        return self.folder / "etc" / "slurm.conf"

    @property
    def work(self) -> Path:
        return self.folder / "work"

    def start(self, command: Command) -> Running:
        self.daemons.append(FakeRunning())
        return self.daemons[-1]

    def traffic(self) -> Mapping[str, Traffic]:
        return {"r1": Traffic(1, 2)}

    def ask(self, *argv: str, stdin: str = "", timeout_s: float = ASK_S) -> str:
        if "squeue" in argv:
            return self._squeue()
        if "--parsable" in argv:
            return self._submit(argv)
        if argv[0] == "scancel":
            return self._cancel(argv[1:])
        if "status" in argv:
            return '{"healthy": true}'
        if argv[0] == "cat" and "/proc/stat" in argv:
            return PROC
        if (
            argv[0] == "rm"
            or head_files.__name__ in argv
            or "-c" in argv
            or "testbed.running.gpu_counters" in argv
        ):
            return subprocess.run(
                argv, input=stdin, capture_output=True, text=True, timeout=timeout_s, check=True
            ).stdout
        if argv == ("scontrol", "show", "config"):
            return "SchedulerParameters     = bf_interval=1,x=2\nSchedulerType = sched/backfill\n"
        raise ClusterError(f"{argv[0]}: not here")

    def _squeue(self) -> str:
        if not self.answers:
            raise ClusterError("squeue: Unable to contact slurm controller")
        self.on_poll(self)
        return json.dumps({"meta": VERSION, "errors": [], "jobs": list(self.queue.values())})

    def _submit(self, argv: tuple[str, ...]) -> str:
        if self.refusals:
            raise ClusterError(self.refusals.pop(0))
        self.submitted.append(argv)
        comment = next(word.removeprefix("--comment=") for word in argv if word.startswith("--comment="))
        number = len(self.submitted)
        self.queue[number] = shown_job(number, f"dally:model=x {comment}")
        return f"{number}\n"

    def _cancel(self, numbers: Iterable[str]) -> str:
        for number in numbers:
            self.cancelled.append(number)
            self.queue[int(number)]["job_state"] = "CANCELLED"
        return ""
