"""Runs between the hosts of a local network: what they need to know of it."""

import shlex
from dataclasses import replace

from dally.hosts.local_process import LocalProcess
from dally.hosts.network import LocalNetwork
from dally.hosts.network_spec import INTERFACE, NetworkSpec
from dally.hosts.processes import Command, Running
from dally.profiles.schema import PointLink
from profiler.driver.plan import PlannedHost, PlannedRack
from profiler.launch.here import count_gpus
from profiler.launch.rank_commands import Launcher, rank_commands, thread_variables
from profiler.spec import MeasurementRun
from workloads.settings import Backend


class LocalHosts(Launcher):
    """The hosts of a local network."""

    def __init__(self, network: LocalNetwork, most_ranks: int) -> None:
        """Divide this machine among so many ranks; the network must be up when something is started."""
        self._network = network
        self._variables = thread_variables(most_ranks)
        self._gpus = count_gpus()

    def commands(self, run: MeasurementRun) -> tuple[Command, ...]:
        """One for each rank."""
        commands = []
        for command in rank_commands(run, self._network.address(run.hosts[0])):
            # What makes the collectives take the emulated links, and not what ranks of one machine share.
            variables = {"DALLY_HOST": command.host, "GLOO_SOCKET_IFNAME": INTERFACE}
            if run.spec.backend is not Backend.GLOO:
                variables = {
                    "LOCAL_RANK": str(int(command.env["RANK"]) % max(1, self._gpus)),  # hosts share the GPUs
                    "DALLY_HOST": command.host,
                    "NCCL_HOSTID": command.host,
                    "NCCL_NET": "Socket",
                    "NCCL_SOCKET_IFNAME": f"={INTERFACE}",
                    "NCCL_MULTI_RANK_GPU_ENABLE": "1",
                }
            commands.append(replace(command, env={**command.env, **self._variables, **variables}))
        return tuple(commands)

    def start(self, command: Command) -> Running:
        """Start it inside its host."""
        return LocalProcess(replace(command, argv=self._network.command(command.host, command.argv)))

    def shown(self, command: Command) -> str:
        """The line that does the same in a shell, where there is a namespace of the host's name."""
        variables = (f"{name}={value}" for name, value in command.env.items())
        return shlex.join(("ip", "netns", "exec", command.host, "env", *variables, *command.argv))


def racks_of(spec: NetworkSpec, ranks: int) -> tuple[PlannedRack, ...]:
    """The racks of a local network, with so many ranks on each host."""
    return tuple(
        PlannedRack(
            tuple(PlannedHost(name, ranks, _link(rack.host_rate_bps)) for name in hosts),
            _link(rack.uplink_rate_bps),
        )
        for rack, hosts in zip(spec.racks, spec.hosts_of.values(), strict=True)
    )


def _link(rate_bps: float | None) -> PointLink | None:
    return None if rate_bps is None else PointLink(rate_bps, None)
