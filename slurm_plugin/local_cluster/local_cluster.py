"""A local cluster as a `Cluster`, in the process that owns it or in any other: what runs workloads on it."""

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from dally.hosts.local_process import LocalProcess
from dally.hosts.network import JoinedNetwork, Traffic
from dally.hosts.processes import Command, Running
from slurm_plugin.local_cluster.cluster import ASK_S, ClusterError
from slurm_plugin.local_cluster.slurm_files import LocalClusterSpec


class LocalCluster:
    """A local cluster that is up, as a `cluster.Cluster`; this machine is its head node.

    Attributes:
        spec: What the cluster is made of.
        network: Its network, if its nodes have one.
    """

    def __init__(self, spec: LocalClusterSpec, network: JoinedNetwork | None) -> None:
        """Nothing is started; all it does is said to the cluster that is there."""
        self.spec = spec
        self.network = network

    @property
    def conf(self) -> Path:
        """Its slurm.conf; with a network, `cluster.toml` beside it has the true links."""
        return self.spec.conf

    @property
    def work(self) -> Path:
        """The folder in which commands run and anybody may write."""
        return self.spec.work

    @property
    def python(self) -> str:
        """This process's own interpreter."""
        return sys.executable

    @property
    def partition(self) -> str:
        """The cluster's first partition."""
        return self.spec.partitions[0]

    @property
    def interface(self) -> str:
        """The network interface of every node; empty where all share the machine's."""
        return self.spec.interface

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
        shown = " ".join(argv)
        try:
            done = subprocess.run(
                self.argv(*argv), input=stdin, capture_output=True, text=True, timeout=timeout_s
            )
        except subprocess.TimeoutExpired as error:
            raise ClusterError(f"{shown} took longer than {timeout_s:g} s") from error
        if done.returncode:
            said = " | ".join((done.stderr or done.stdout).strip().splitlines())
            raise ClusterError(f"{shown} failed ({done.returncode}): {said}")
        return done.stdout

    def traffic(self) -> Mapping[str, Traffic]:
        """What each link has carried so far; empty without a network."""
        return self.network.traffic() if self.network else {}

    def argv(self, *argv: str) -> tuple[str, ...]:
        """The command that runs a command on the head node; it may be signalled like the command itself."""
        prepared = (*_in_environment(self.spec), *argv)
        return around(self.network, prepared) if self.network else prepared


def around(network: JoinedNetwork, argv: tuple[str, ...]) -> tuple[str, ...]:
    """A command on the core switch of a network that ends with who waits for it outside, after SIGTERM too.

    A program waits outside for the one inside: it leaves SIGTERM, which goes to the group, to the one inside,
    and if it is killed, the one inside gets SIGTERM.
    """
    inside = ("setpriv", "--pdeathsig", "TERM", "env", "--default-signal=TERM", *argv)
    return ("setpriv", "--pdeathsig", "KILL", "env", "--ignore-signal=TERM", *network.core_command(inside))


def slurm_environment(spec: LocalClusterSpec) -> dict[str, str]:
    """The environment for commands that speak to the cluster: this process's without Slurm's variables."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("SLURM")}
    return {**inherited, "PATH": search_path(), "SLURM_CONF": str(spec.conf)}


def search_path() -> str:
    """Where programs are looked for: also those that Debian leaves out of an ordinary user's search path."""
    return f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin"


def _in_environment(spec: LocalClusterSpec) -> tuple[str, ...]:
    """`env` with what makes the cluster's environment of this process's own, in the work folder."""
    foreign = (f"--unset={name}" for name in os.environ if name.startswith("SLURM"))
    own = (f"PATH={search_path()}", f"SLURM_CONF={spec.conf}")
    return "env", f"--chdir={spec.work}", *foreign, *own
