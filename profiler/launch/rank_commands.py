"""What launches a run, what its ranks execute, and the commands of one that is launched rank by rank."""

import os
import random
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Generic, TypeVar

from dally.hosts.local_process import LocalProcess
from dally.hosts.processes import Command, Running
from profiler.spec import MeasurementRun, PlannedRun, format_spec

_Run = TypeVar("_Run", bound=PlannedRun)

_PORTS = range(20_000, 30_000)
"""Below those that Linux gives out of itself."""


class Launcher(ABC, Generic[_Run]):
    """A place where runs of a kind can be launched: of ranks that measure, or of a user's program."""

    @abstractmethod
    def commands(self, run: _Run) -> Sequence[Command]:
        """What makes up a run; of ranks that measure, the first one's standard output has the messages."""

    def start(self, command: Command) -> Running:
        """Start one of these commands."""
        return LocalProcess(command)

    def shown(self, command: Command) -> str:
        """The line that does the same in a shell."""
        return command.shown()

    @contextmanager
    def hold(self, run: _Run, say: Callable[[str], None]) -> Iterator[tuple[_Run, "Launcher[_Run]"]]:
        """Get the hosts of a run, if they are not there, and hold them until the end, however it comes.

        Args:
            run: As planned.
            say: Told what it waits for.

        Yields:
            The run on the hosts that it got, and what launches it there.

        Raises:
            NoRoomError: No hosts lie as the run needs them, or they did not come in time.
        """
        yield run, self


def rank_argv(run: MeasurementRun) -> tuple[str, ...]:
    """What every rank executes; with -P, as a folder of the user's may be called like a package of ours."""
    return (sys.executable, "-P", "-m", "profiler.rank", format_spec(run.spec))


def thread_variables(most_ranks: int) -> dict[str, str]:
    """What divides this machine's cores among its ranks, unless the user has done so.

    Ranks that compute with more threads than there are cores wait for each other in every operation: backward
    of a small model took ten times as long.

    Args:
        most_ranks: On this machine, of the largest run: a rank of a smaller one is to be no faster.
    """
    cores = len(os.sched_getaffinity(0))
    return {"OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", str(max(1, cores // most_ranks)))}


def draw_port() -> int:
    """A port for ranks to meet at; drawn, as it is to be free on a host that is not this one."""
    return random.choice(_PORTS)


def rank_commands(run: MeasurementRun, address: str) -> tuple[Command, ...]:
    """One command for each rank, rank 0 first, with the variables that torchrun would set.

    Args:
        run: What is launched.
        address: Of the first host, where the ranks meet.
    """
    per_host = run.shape.gpus_per_node
    port = str(draw_port())
    common = {"WORLD_SIZE": str(run.shape.gpus), "MASTER_ADDR": address, "MASTER_PORT": port}
    commands = []
    for rank in range(len(run.hosts) * per_host):
        host = run.hosts[rank // per_host]
        env = {"RANK": str(rank), "LOCAL_RANK": str(rank % per_host), **common}
        commands.append(Command(f"rank {rank} on {host}", rank_argv(run), env, host))
    return tuple(commands)
