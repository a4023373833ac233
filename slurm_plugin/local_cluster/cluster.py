"""What a workload needs of the Slurm cluster that it runs on, wherever that cluster is."""

from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from dally.errors import DallyError
from dally.hosts.network import Traffic
from dally.hosts.processes import Command, Running

ASK_S = 30.0
"""Longest wait for an answer of the head node, unless said otherwise."""


PRELOADED = "preloaded"
"""In the work folder, where nodes have processes that have loaded torch already, their sockets."""


class ClusterError(DallyError):
    """A cluster cannot be reached, or did not do what it was asked."""


class Cluster(Protocol):
    """A Slurm cluster as seen from its head node, where slurmctld and Dally's controller run."""

    @property
    def conf(self) -> Path:
        """The slurm.conf on the head node; gres.conf and topology.conf lie beside it."""

    @property
    def work(self) -> Path:
        """Folder that the head and all nodes share, for scripts, checkpoints and logs."""

    @property
    def python(self) -> str:
        """Interpreter on the head and the nodes that has Dally with its `training` extra."""

    @property
    def partition(self) -> str:
        """The partition whose jobs Dally schedules."""

    @property
    def interface(self) -> str:
        """Network interface over which ranks on different nodes talk; empty: whichever they choose."""

    def start(self, command: Command) -> Running:
        """Start a command on the head node, so that Slurm's programs speak to this cluster.

        It ends with this process, however that ends.

        Raises:
            ProcessError: It cannot be started.
        """

    def ask(self, *argv: str, stdin: str = "", timeout_s: float = ASK_S) -> str:
        """Run a command on the head node to its end; its standard output.

        Raises:
            ClusterError: It failed or took too long; the message holds what it said.
        """

    def traffic(self) -> Mapping[str, Traffic]:
        """What each link has carried so far: a node's by its name, a rack's uplink by the rack's.

        Empty where the links cannot be read.
        """
