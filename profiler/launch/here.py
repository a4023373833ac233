"""Runs on this machine: torchrun starts the ranks."""

import os
import re
import socket
import subprocess
from collections.abc import Iterable
from dataclasses import replace
from itertools import takewhile
from tempfile import TemporaryDirectory

from dally.errors import DallyError
from dally.hosts.local_process import LocalProcess
from dally.hosts.processes import Command, Running
from profiler.launch.rank_commands import Launcher, rank_argv, thread_variables
from profiler.spec import MeasurementRun

_ANSWER_S = 60.0

# Of torchrun's report on ranks that failed; those that it ended itself got SIGTERM.
_RANK = re.compile(rb"\s*rank\s*: (\d+) ")
_KILLED = re.compile(rb"\s*exitcode\s*: -\d+ .*\((SIG\w+)\)")


class Here(Launcher[MeasurementRun]):
    """This machine."""

    def __init__(self, most_ranks: int) -> None:
        """Divide its cores among so many ranks, so that one alone computes as fast as one of many."""
        self._variables = thread_variables(most_ranks)

    def commands(self, run: MeasurementRun) -> tuple[Command, ...]:
        """The torchrun of a run."""
        python, safe_path, *arguments = rank_argv(run)
        ranks = f"--nproc-per-node={run.shape.gpus_per_node}"
        # The machine's name, which torchrun would take, need not lead to an address.
        rendezvous = ("--standalone", "--local-addr=127.0.0.1")
        torchrun = (python, safe_path, "-m", "torch.distributed.run", *rendezvous, ranks)
        # torchrun starts ranks without options for Python; this variable says the same as -P.
        variables = {**self._variables, "PYTHONSAFEPATH": "1"}
        return (Command("torchrun", (*torchrun, *arguments), variables),)

    def start(self, command: Command) -> Running:
        """Start it, with an end of its own for a rank that is killed."""
        return _Torchrun(command)


class _Torchrun(LocalProcess):
    """A torchrun that reports a rank which was killed as ranks report errors themselves, in one line.

    It makes a folder for logs even where there are none, and leaves it; here it goes with the run.
    """

    def __init__(self, command: Command) -> None:
        self._folder = TemporaryDirectory(prefix="profile-models-")
        super().__init__(replace(command, env={**command.env, "TMPDIR": self._folder.name}))

    @property
    def stderr(self) -> Iterable[bytes]:
        """The lines it writes to standard error, and that one."""
        rank = b""
        for line in super().stderr:
            yield line
            if found := _RANK.match(line):
                rank = found[1]
            elif rank and (found := _KILLED.match(line)) and found[1] != b"SIGTERM":
                yield b"rank %s on %s: killed by %s\n" % (rank, socket.gethostname().encode(), found[1])

    def stop(self) -> None:
        """End it and its ranks, and remove what they have left."""
        super().stop()
        self._folder.cleanup()


def count_gpus() -> int:
    """NVIDIA GPUs that programs started from here see; 0 without any.

    Raises:
        DallyError: The driver is there but does not answer.
    """
    try:
        done = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, timeout=_ANSWER_S)
    except FileNotFoundError:
        return 0
    except subprocess.TimeoutExpired as error:
        raise DallyError(f"nvidia-smi did not answer within {_ANSWER_S:g} s") from error
    there = sum(line.startswith("GPU ") for line in done.stdout.splitlines())
    return min(there, visible_gpus(os.environ.get("CUDA_VISIBLE_DEVICES"), there))


def visible_gpus(variable: str | None, there: int) -> int:
    """How many GPUs CUDA_VISIBLE_DEVICES leaves of those that are there.

    As CUDA reads it: numbers or UUIDs up to the first that is neither, such as -1, or Slurm's NoDevFiles.
    """
    if variable is None:
        return there
    names = [name.strip() for name in variable.split(",")]

    def is_gpu(name: str) -> bool:
        return name.startswith(("GPU-", "MIG-")) or (name.isdecimal() and int(name) < there)

    return len(list(takewhile(is_gpu, names)))
