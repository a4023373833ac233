"""Runs under Slurm: which nodes are idle, and the srun command that puts ranks on them."""

import math
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from dally.errors import DallyError
from profiler.hosts.local_process import LocalProcess
from profiler.hosts.processes import Command, Running
from profiler.hosts.rank_commands import draw_port, rank_argv
from profiler.orders import Run

_ANSWER_S = 60.0
_WAIT_FOR_NODES_S = 120
"""How long srun waits for the nodes, should somebody else have taken them meanwhile."""


class SlurmError(DallyError):
    """Slurm does not answer, or refused something."""


@dataclass(frozen=True, slots=True)
class IdleNode:
    """A node without jobs, and the address at which others reach it."""

    name: str
    address: str


def idle_nodes(partition: str | None) -> tuple[IdleNode, ...]:
    """The idle nodes of a partition, of the default one for None.

    Raises:
        SlurmError: Slurm does not answer, or there is no such partition.
    """
    return parse_nodes(_ask("sinfo", "--noheader", "--Node", "--format=%N|%o|%t|%P"), partition)


def parse_nodes(text: str, partition: str | None) -> tuple[IdleNode, ...]:
    """The idle nodes in what sinfo printed, each once.

    Raises:
        SlurmError: Slurm has no such partition.
    """
    rows = [line.split("|") for line in text.splitlines() if line.count("|") == 3]
    names = {row[3] for row in rows}
    chosen = (
        names & {partition, f"{partition}*"} if partition else {name for name in names if name[-1:] == "*"}
    )
    if not chosen:
        asked = f"no partition {partition}" if partition else "no default partition"
        known = ", ".join(sorted(name.rstrip("*") for name in names))
        raise SlurmError(f"{asked}; --partition can be {known or 'none, there is none'}")
    idle = (IdleNode(*row[:2]) for row in rows if row[2] == "idle" and row[3] in chosen)
    return tuple(dict.fromkeys(idle))


def configuration_folder() -> Path:
    """Where slurm.conf lies.

    Raises:
        SlurmError: Slurm does not answer.
    """
    for line in _ask("scontrol", "show", "config").splitlines():
        name, _, value = line.partition("=")
        if name.strip() == "SLURM_CONF":
            return Path(value.strip()).parent
    raise SlurmError("scontrol show config names no SLURM_CONF; give the cluster with --cluster")


def srun_argv(run: Run, address: str, partition: str | None, timeout_s: float) -> tuple[str, ...]:
    """The srun command of a run: whole nodes, ranks on them in the order of the run's hosts.

    Args:
        run: What to launch.
        address: Of the first host, where the ranks meet.
        partition: None for the default one.
        timeout_s: After which Slurm ends it, rounded up to minutes.
    """
    ranks = [host for host in run.hosts for _ in range(run.shape.gpus_per_node)]
    return (
        "srun",
        f"--job-name=profile-{run.name}",
        *(() if partition is None else (f"--partition={partition}",)),
        f"--nodes={len(run.hosts)}",
        f"--ntasks={len(ranks)}",
        # The order of ranks is ours, not that of Slurm's list of nodes.
        f"--nodelist={','.join(ranks)}",
        "--distribution=arbitrary",
        f"--gres=gpu:{run.shape.gpus_per_node}",
        # Whole nodes, and all of their cores and memory for every rank.
        "--exclusive",
        "--mem=0",
        "--cpu-bind=none",
        "--mpi=none",
        "--kill-on-bad-exit=1",
        f"--time={math.ceil(timeout_s / 60)}",
        f"--immediate={_WAIT_FOR_NODES_S}",
        f"--export=ALL,MASTER_ADDR={address},MASTER_PORT={draw_port()}",
        *rank_argv(run),
    )


class Slurm:
    """The Slurm cluster that the client commands reach."""

    def __init__(self, addresses: Mapping[str, str], partition: str | None, timeout_s: float) -> None:
        """Name what is alike for all runs.

        Args:
            addresses: Node -> where others reach it.
            partition: None for the default one.
            timeout_s: After which Slurm ends a run.
        """
        self._addresses = addresses
        self._partition = partition
        self._timeout_s = timeout_s

    def commands(self, run: Run) -> tuple[Command, ...]:
        """The srun of a run."""
        address = self._addresses[run.hosts[0]]
        return (Command("srun", srun_argv(run, address, self._partition, self._timeout_s)),)

    def start(self, command: Command) -> Running:
        """Start it."""
        return LocalProcess(command)

    def shown(self, command: Command) -> str:
        """The line that does the same in a shell."""
        return command.shown()


def _ask(*argv: str) -> str:
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=_ANSWER_S)
    except FileNotFoundError as error:
        raise SlurmError(f"{argv[0]} is missing; Slurm's client commands are needed") from error
    except subprocess.TimeoutExpired as error:
        raise SlurmError(f"{argv[0]} did not answer within {_ANSWER_S:g} s") from error
    if done.returncode:
        said = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        raise SlurmError(f"{argv[0]}: {said[-1].removeprefix(f'{argv[0]}: ')}")
    return done.stdout
