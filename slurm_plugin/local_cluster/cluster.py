"""What a workload needs of the Slurm cluster that it runs on, wherever it is, and that of a local cluster."""

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from dally.errors import DallyError
from dally.hosts.local_process import LocalProcess
from dally.hosts.network import JoinedNetwork, Traffic
from dally.hosts.network_spec import INTERFACE
from dally.hosts.processes import Command, Running
from slurm_plugin.local_cluster.slurm_files import LocalClusterSpec

ASK_S = 30.0
"""Longest wait for an answer of the head node, unless said otherwise."""


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


class LocalCluster:
    """A local cluster that is up, as a `Cluster`; this machine is its head node.

    Attributes:
        spec: What the cluster is made of.
        network: Its network, if its nodes have one.
    """

    def __init__(self, spec: LocalClusterSpec, network: JoinedNetwork | None) -> None:
        """Start nothing: every command goes to the cluster that is there."""
        self.spec = spec
        self.network = network
        self.conf, self.work = spec.conf, spec.work
        self.interface = INTERFACE if spec.network else ""
        self.python = sys.executable
        self.partition = spec.partitions[0]

    def start(self, command: Command) -> Running:
        """Start a command in the work folder; it ends with the thread that does this.

        Raises:
            ProcessError: It cannot be started.
            NetworkError: The cluster's network is not up.
        """
        variables = (f"{name}={value}" for name, value in command.env.items())
        return LocalProcess(Command(command.name, self.argv("env", *variables, *command.argv)))

    def ask(self, *argv: str, stdin: str = "", timeout_s: float = ASK_S) -> str:
        """Run a command in the work folder to its end; its standard output.

        Raises:
            ClusterError: It failed or took too long; the message holds what it said.
            NetworkError: The cluster's network is not up.
        """
        done = self.attempt(*argv, stdin=stdin, timeout_s=timeout_s)
        if done.returncode:
            said = " | ".join((done.stderr or done.stdout).strip().splitlines())
            raise ClusterError(f"{' '.join(argv)} failed ({done.returncode}): {said}")
        return done.stdout

    def attempt(
        self, *argv: str, stdin: str = "", timeout_s: float = ASK_S
    ) -> subprocess.CompletedProcess[str]:
        """Like `ask`, but exit code, output and errors are for the caller to judge."""
        try:
            return subprocess.run(
                self.argv(*argv), input=stdin, capture_output=True, text=True, timeout=timeout_s
            )
        except subprocess.TimeoutExpired as error:
            raise ClusterError(f"{' '.join(argv)} took longer than {timeout_s:g} s") from error

    def traffic(self) -> Mapping[str, Traffic]:
        """What each link has carried so far; empty without a network."""
        return self.network.traffic() if self.network else {}

    def argv(self, *argv: str) -> tuple[str, ...]:
        """Return what runs a command on the head node; it may be signalled like the command itself.

        With a network, a program waits outside for the one inside. It leaves SIGTERM, which goes to the
        group, to the one inside; if it is killed, the one inside gets SIGTERM.
        """
        foreign = (f"--unset={name}" for name in os.environ if name.startswith("SLURM"))
        own = (f"PATH={search_path()}", f"SLURM_CONF={self.conf}")
        prepared = ("env", f"--chdir={self.work}", *foreign, *own, *argv)
        if not self.network:
            return prepared
        inside = ("setpriv", "--pdeathsig", "TERM", "env", "--default-signal=TERM", *prepared)
        outside = ("setpriv", "--pdeathsig", "KILL", "env", "--ignore-signal=TERM")
        return (*outside, *self.network.core_command(inside))


def search_path() -> str:
    """Where programs are looked for: also those that Debian leaves out of an ordinary user's search path."""
    return f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin"
