"""The controller under a wall clock that can be stepped; the machine's own clock stays as it is.

Only a whole machine has a wall clock, no namespace has one of its own. So the controller is started by
`python -m testbed.drills.stepped_clock FILE ARGUMENTS...`: the command `dally ARGUMENTS...`, in which
`time.time` adds the seconds that stand in FILE at that moment. Slurm and the jobs keep the true time, as if
the controller's machine alone were wrong.
"""

import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from unittest import mock

from dally.commands import main as dally
from dally.hosts.network import JoinedNetwork
from dally.hosts.processes import Command, Running
from slurm_plugin.local_cluster.cluster import LocalCluster
from slurm_plugin.local_cluster.slurm_files import LocalClusterSpec

_DALLY = ("-m", "dally")


class SteppedCluster(LocalCluster):
    """A lab whose controller lives under a clock that is wrong by the seconds in a file, if that is there."""

    def __init__(self, spec: LocalClusterSpec, network: JoinedNetwork | None, file: Path) -> None:
        super().__init__(spec, network)
        self._file = file

    def start(self, command: Command) -> Running:
        """Start a command; if it is `python -m dally`, or keeps that running, its clock is the wrong one."""
        return super().start(replace(command, argv=stepped(command.argv, self._file)))


def stepped(argv: tuple[str, ...], file: Path) -> tuple[str, ...]:
    """A command with Dally under the wrong clock; as it is if there is no Dally in it."""
    for place in range(len(argv) - 1):
        if argv[place : place + 2] == _DALLY:
            return (*argv[: place + 1], __name__, str(file), *argv[place + 2 :])
    return argv


def wrong_time(file: Path, true_time: Callable[[], float]) -> Callable[[], float]:
    """A clock that is wrong by what stands in a file; right while that holds no number."""

    def now() -> float:
        try:
            return true_time() + float(file.read_text(encoding="ascii"))
        except (OSError, ValueError):
            return true_time()

    return now


def main() -> None:
    """Run `dally` under the wrong clock."""
    file = Path(sys.argv[1])
    sys.argv = ["dally", *sys.argv[2:]]
    with mock.patch("time.time", wrong_time(file, time.time)):
        dally()


if __name__ == "__main__":
    main()
