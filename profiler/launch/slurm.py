"""Runs under Slurm: the job that holds the nodes of a run, and the srun that puts its ranks on them."""

import math
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from threading import Thread

from dally.hostlist import expand, fold
from dally.hosts.local_process import LocalProcess
from dally.hosts.processes import Command
from profiler.launch.rank_commands import Launcher, draw_port, rank_argv
from profiler.launch.slurm_nodes import PartitionNode, SlurmError
from profiler.spec import RANK_HOSTS, MeasurementRun, PlannedRun

_SEGMENTS_SINCE = (24, 5)
_JOB = re.compile(r"Pending job allocation (\d+)")
_OF_SRUN = ("ACCOUNT", "QOS", "RESERVATION", "WCKEY", "CONSTRAINT")
"""What variables SLURM_* say to srun that salloc wants to hear as SALLOC_*."""

_STEP = ("--mem=0", "--cpu-bind=none", "--mpi=none", "--kill-on-bad-exit=1", "--export=ALL")
"""Of every srun: all cores and memory of the nodes for every task."""

_TELL_AND_HOLD = 'echo "$SLURM_JOB_ID $SLURM_JOB_NODELIST"; exec cat'
"""What salloc runs when it has the nodes: it lasts until standard input closes, at the latest with us."""


@dataclass(frozen=True, slots=True)
class SlurmClient(Launcher[MeasurementRun]):
    """The Slurm cluster that the client commands reach.

    Attributes:
        nodes: All nodes of the partition, by name.
        partition: None for the default one.
        timeout_s: After which Slurm ends a run, rounded up to minutes.
        version: Of Slurm, like (24, 11).
        job: The job that holds the nodes of the run; None where srun is to get them itself.
    """

    nodes: Mapping[str, PartitionNode]
    partition: str | None
    timeout_s: float
    version: tuple[int, int]
    job: str | None = None

    def commands(self, run: MeasurementRun) -> tuple[Command, ...]:
        """The srun of a run, whose ranks find their numbers by the node they are on, whatever its order."""
        job = self.job_options(run) if self.job is None else (f"--jobid={self.job}",)
        per_host = run.shape.gpus_per_node
        step = (
            f"--nodes={len(run.hosts)}",
            f"--ntasks={len(run.hosts) * per_host}",
            f"--ntasks-per-node={per_host}",
            f"--gres=gpu:{per_host}",
            *_STEP,
        )
        argv = ("srun", *dict.fromkeys((*job, *step)), *rank_argv(run))
        env = {
            RANK_HOSTS: ",".join(run.hosts),
            "MASTER_ADDR": self.nodes[run.hosts[0]].address,
            "MASTER_PORT": str(draw_port()),
        }
        return (Command("srun", argv, env),)

    def on_node(self, host: str, gpus: int, argv: Sequence[str]) -> tuple[str, ...]:
        """The srun that runs a command once, with so many GPUs, on one of the nodes that the job holds."""
        job = () if self.job is None else (f"--jobid={self.job}",)
        one = (f"--nodelist={host}", "--nodes=1", "--ntasks=1", "--ntasks-per-node=1", f"--gres=gpu:{gpus}")
        return ("srun", *job, *one, *_STEP, *argv)

    def job_options(self, run: PlannedRun) -> tuple[str, ...]:
        """The options that get a run's hosts, whole, from Slurm."""
        others = self.others(run.hosts)
        return (
            f"--job-name=profile-{run.name}",
            *(() if self.partition is None else (f"--partition={self.partition}",)),
            f"--nodes={len(run.hosts)}",
            # Under topology/block, nodes that are named are refused where fewer blocks could hold as many,
            # or together with a segment; the same nodes are given if all others are excluded.
            *((f"--exclude={others}",) if others else ()),
            *(("--segment=1",) if self.version >= _SEGMENTS_SINCE else ()),
            f"--ntasks-per-node={run.shape.gpus_per_node}",
            f"--gres=gpu:{run.shape.gpus_per_node}",
            "--exclusive",
            "--mem=0",
            f"--time={math.ceil(self.timeout_s / 60)}",
        )

    def others(self, hosts: Sequence[str]) -> str:
        """The host list of all other nodes of the partition; empty if there are none."""
        return fold([name for name in self.nodes if name not in hosts])


class Allocation:
    """A job that waits for nodes and then holds them, until `stop` or until this process is gone.

    Attributes:
        job: Its number; None until it is told, at the latest with the nodes.
    """

    def __init__(self, options: Sequence[str]) -> None:
        """Submit it.

        Args:
            options: Of salloc.

        Raises:
            ProcessError: It cannot be started.
        """
        argv = ("salloc", *options, "--wait-all-nodes=1", "sh", "-c", _TELL_AND_HOLD)
        # What variables say to srun, salloc is to hear too, unless it has been told itself.
        said = {name: os.environ.get(f"SLURM_{name}", "") for name in _OF_SRUN}
        env = {f"SALLOC_{name}": value for name, value in said.items() if value}
        own = {name: value for name, value in env.items() if name not in os.environ}
        self._salloc = LocalProcess(Command("salloc", argv, own), open_stdin=True)
        self._events: SimpleQueue[tuple[str, str]] = SimpleQueue()
        self._said = ""
        self._open = 2
        self.job: str | None = None
        for name, pipe in (("out", self._salloc.stdout), ("err", self._salloc.stderr)):
            Thread(target=_read, args=(name, pipe, self._events.put), daemon=True).start()

    def wait(self, timeout_s: float) -> tuple[str, ...] | None:
        """Wait for the nodes; their names, None if they have not come yet.

        Raises:
            SlurmError: Slurm refused the job, or somebody cancelled it.
        """
        while True:
            try:
                source, line = self._events.get(timeout=timeout_s)
            except Empty:
                return None
            if source == "out" and line:
                self.job, _, hosts = line.partition(" ")
                return expand(hosts)
            if not line:
                self._open -= 1
            elif found := _JOB.search(line):
                self.job = found[1]
            elif "error: " in line or not self._said:
                self._said = line.removeprefix("salloc: ").removeprefix("error: ")
            if not self._open:
                gone = f"job {self.job} left the queue: " if self.job else ""
                raise SlurmError(f"salloc: {gone}{self._said}")

    def stop(self) -> None:
        """Cancel it, whether it waits or has the nodes."""
        self._salloc.stop()


def _read(name: str, pipe: Iterable[bytes], put: Callable[[tuple[str, str]], None]) -> None:
    """Put every line of a pipe, without empty ones, and at its end an empty one."""
    for line in pipe:
        if text := line.decode(errors="replace").strip():
            put((name, text))
    put((name, ""))
