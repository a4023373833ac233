"""Forks ranks for tests from a process that has loaded torch: `python -m` and this module's name, SOCKET.

What `workloads.preload` does for trainings, for any `python -m MODULE ARGUMENTS`.
"""

import os
import runpy
import sys
from collections.abc import Sequence
from pathlib import Path

from profiler.rank import session as _loaded  # noqa: F401
from workloads import preload


def run_module(words: Sequence[str]) -> int:
    """Run a module as Python's option -m does; its exit code."""
    if os.environ["SLURMD_NODENAME"] == Path(sys.argv[1]).name:
        del os.environ["SLURMD_NODENAME"]  # it named the socket; no Slurm runs here
    sys.argv = [*words]
    try:
        runpy.run_module(words[0], run_name="__main__", alter_sys=True)
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else 1
    return 0


if __name__ == "__main__":
    preload.main(run_module)
