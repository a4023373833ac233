"""Runs on hosts reached over SSH: their racks, and the commands of their ranks."""

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from dally.hosts.hosts_file import HostsFile, SshHost
from dally.hosts.processes import Command, Running
from dally.hosts.ssh import SshHosts
from profiler.driver.plan import PlannedHost, PlannedRack
from profiler.launch.rank_commands import Launcher, rank_commands
from profiler.launch.user_program import UserProgram
from profiler.spec import MeasurementRun, PlannedRun

_Run = TypeVar("_Run", bound=PlannedRun)

_PASSED_ON = ("NCCL_", "GLOO_")
"""How variables begin that the hosts get too, as sshd takes none from here."""


def _passed_on() -> dict[str, str]:
    """These variables, as they are set here."""
    return {name: value for name, value in os.environ.items() if name.startswith(_PASSED_ON)}


class _OverSsh(Launcher[_Run]):
    """Hosts reached over SSH."""

    _ssh: SshHosts

    def start(self, command: Command) -> Running:
        """Start it on its host."""
        return self._ssh.start(command)

    def shown(self, command: Command) -> str:
        """The ssh that does the same."""
        return self._ssh.shown(command)


class RemoteHosts(_OverSsh[MeasurementRun]):
    """The hosts of a hosts file."""

    def __init__(self, file: HostsFile, ssh: SshHosts) -> None:
        """Take connections, which must be open when something is started."""
        self._hosts = {host.name: host for host in file.hosts}
        self._ssh = ssh

    def commands(self, run: MeasurementRun) -> tuple[Command, ...]:
        """One for each rank."""
        commands = rank_commands(run, self._hosts[run.hosts[0]].login.address)
        return tuple(
            replace(
                command,
                argv=(self._hosts[command.host].python, *command.argv[1:]),
                env={**command.env, **_passed_on()},
            )
            for command in commands
        )


class RemoteProgramPlace(_OverSsh[PlannedRun]):
    """Hosts reached over SSH; the program runs there in the folder of the same path as the current one."""

    def __init__(self, program: UserProgram, file: HostsFile, ssh: SshHosts) -> None:
        """Take connections, which must be open when something is started."""
        self._program, self._ssh = program, ssh
        self._addresses = {host.name: host.login.address for host in file.hosts}

    def commands(self, run: PlannedRun) -> tuple[Command, ...]:
        """One for each host."""
        folder = ("env", f"--chdir={Path.cwd()}")
        return tuple(
            replace(command, argv=(*folder, *command.argv), env={**command.env, **_passed_on()})
            for command in self._program.commands(run, self._addresses[run.hosts[0]])
        )


def racks_of(hosts: Sequence[SshHost]) -> tuple[PlannedRack, ...]:
    """The racks of a hosts file, in the order in which it names them; nothing is known of their links."""
    names = dict.fromkeys(host.rack for host in hosts)
    return tuple(
        PlannedRack(tuple(PlannedHost(host.name, host.gpus) for host in hosts if host.rack == name))
        for name in names
    )
