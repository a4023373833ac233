"""A Slurm cluster reached through one host over SSH: commands run there."""

from collections.abc import Mapping
from pathlib import Path

from dally.errors import DallyError
from dally.hosts.network import Traffic
from dally.hosts.processes import Command, Running
from dally.hosts.ssh import each
from slurm_plugin.local_cluster.cluster import ASK_S, ClusterError
from testbed.remote.hosts import Hosts


class HeadNode:
    """What runs commands on a head node; it is a `slurm_plugin.local_cluster.cluster.Cluster`.

    Attributes:
        hosts: The connected hosts.
        name: The head node's name among them.
        conf: Slurm's configuration there.
        work: Folder that the head and all nodes share.
        partition: The partition to use.
        python: The head node's interpreter.
        interfaces: The network interfaces whose traffic is told, by the names of their hosts.
        interface: Their name if all have the same one; else empty.
    """

    def __init__(
        self,
        hosts: Hosts,
        name: str,
        conf: Path,
        work: Path,
        partition: str,
        interfaces: Mapping[str, str],
        variables: Mapping[str, str] | None = None,
    ) -> None:
        """Run nothing yet; `variables` are environment variables of all commands, besides SLURM_CONF."""
        self.hosts, self.name, self.interfaces = hosts, name, interfaces
        self.conf, self.work, self.partition = conf, work, partition
        self.python = hosts.host(name).python
        names = set(interfaces.values())
        self.interface = names.pop() if len(names) == 1 else ""
        self._variables = {**(variables or {}), "SLURM_CONF": str(conf)}

    def start(self, command: Command) -> Running:
        """Start a command in the work folder of the head node; it ends with the connection.

        Raises:
            ProcessError: It cannot be started.
        """
        return self.hosts.start(Command(command.name, self.argv(*command.argv), command.env, self.name))

    def ask(self, *argv: str, stdin: str = "", timeout_s: float = ASK_S) -> str:
        """Run a command in the work folder of the head node to its end; its standard output.

        Raises:
            ClusterError: It failed or took too long; the message holds what it said.
        """
        shown, prepared = " ".join(argv), self.argv(*argv)
        try:
            answer = self.hosts.attempt(self.name, *prepared, stdin=stdin, timeout_s=timeout_s)
        except DallyError as error:
            raise ClusterError(f"{shown}: {error}") from error
        if answer.status != 0:
            said = " | ".join((answer.stderr or answer.stdout).strip().splitlines())
            raise ClusterError(f"{shown} failed ({answer.status}): {said or answer.reason}")
        return answer.stdout

    def traffic(self) -> Mapping[str, Traffic]:
        """What each host's network interface has carried since it came up, where it can be read."""

        def traffic_of(name: str) -> Traffic:
            folder = f"/sys/class/net/{self.interfaces[name]}/statistics"
            sent, received = self.hosts.ask(name, "cat", f"{folder}/tx_bytes", f"{folder}/rx_bytes").split()
            return Traffic(int(sent), int(received))

        found = each(self.interfaces, traffic_of)
        return {name: one for name, one in found.items() if isinstance(one, Traffic)}

    def argv(self, *argv: str) -> tuple[str, ...]:
        """What runs a command on the head node."""
        variables = (f"{name}={value}" for name, value in self._variables.items())
        return ("env", f"--chdir={self.work}", *variables, *argv)
