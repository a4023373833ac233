"""Runs on this machine, which its ranks share; and how many GPUs it has."""

import os
import subprocess
from dataclasses import replace
from itertools import takewhile

from dally.errors import DallyError
from dally.hosts.processes import Command
from profiler.launch.rank_commands import Launcher, rank_commands, thread_variables
from profiler.spec import MeasurementRun

_ANSWER_S = 60.0


class Here(Launcher[MeasurementRun]):
    """This machine."""

    def __init__(self, most_ranks: int) -> None:
        """Divide its cores among so many ranks, so that one alone computes as fast as one of many."""
        self._variables = thread_variables(most_ranks)

    def commands(self, run: MeasurementRun) -> tuple[Command, ...]:
        """One for each rank."""
        # The machine's name need not lead to an address.
        commands = rank_commands(run, "127.0.0.1")
        return tuple(replace(each, env={**each.env, **self._variables}) for each in commands)


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
