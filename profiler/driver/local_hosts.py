"""Runs between the hosts of a local network: what they need to know of it."""

import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TypeVar

from dally.hosts.local_process import LocalProcess
from dally.hosts.network import LocalNetwork
from dally.hosts.network_spec import INTERFACE, NetworkSpec
from dally.hosts.processes import Command, Running
from dally.profiles.schema import PointLink
from profiler.driver.plan import PlannedHost, PlannedRack
from profiler.launch.here import count_gpus
from profiler.launch.rank_commands import Launcher, rank_commands, thread_variables
from profiler.launch.user_program import UserProgram
from profiler.spec import MeasurementRun, PlannedRun
from workloads.settings import Backend

_Run = TypeVar("_Run", bound=PlannedRun)

_GLOO_OVER_LINKS = {"GLOO_SOCKET_IFNAME": INTERFACE}
"""What makes gloo take the emulated links, and not what ranks of one machine share."""


def _nccl_over_links(host: str) -> dict[str, str]:
    """The same for NCCL, on this host."""
    return {
        "NCCL_HOSTID": host,
        "NCCL_NET": "Socket",
        "NCCL_SOCKET_IFNAME": f"={INTERFACE}",
        "NCCL_MULTI_RANK_GPU_ENABLE": "1",
    }


class _InHosts(Launcher[_Run]):
    """Hosts in network namespaces."""

    _network: LocalNetwork

    def start(self, command: Command) -> Running:
        """Start it inside its host."""
        return LocalProcess(replace(command, argv=self._network.command(command.host, command.argv)))

    def shown(self, command: Command) -> str:
        """The line that does the same in a shell, where there is a namespace of the host's name."""
        variables = (f"{name}={value}" for name, value in command.env.items())
        return shlex.join(("ip", "netns", "exec", command.host, "env", *variables, *command.argv))


class LocalHosts(_InHosts[MeasurementRun]):
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
            variables = {"DALLY_HOST": command.host}
            if run.spec.backend is Backend.GLOO:
                variables |= _GLOO_OVER_LINKS
            else:  # hosts share the GPUs
                variables |= _nccl_over_links(command.host)
                variables["LOCAL_RANK"] = str(int(command.env["RANK"]) % max(1, self._gpus))
            commands.append(replace(command, env={**command.env, **self._variables, **variables}))
        return tuple(commands)


class LocalProgramPlace(_InHosts[PlannedRun]):
    """Hosts in network namespaces, which share the CPUs and GPUs of this machine."""

    def __init__(self, program: UserProgram, network: LocalNetwork, most_ranks: int, gpus: int) -> None:
        """Divide the cores among so many ranks, and as many GPUs as there are among the hosts of a run."""
        self._program, self._network, self._gpus = program, network, gpus
        self._threads = thread_variables(most_ranks)

    def commands(self, run: PlannedRun) -> tuple[Command, ...]:
        """One for each host, with GPUs of its own where there are enough."""
        commands = []
        per_host = run.shape.gpus_per_node
        for rank, command in enumerate(self._program.commands(run, self._network.address(run.hosts[0]))):
            links = _GLOO_OVER_LINKS | _nccl_over_links(command.host)
            if self._gpus >= run.shape.gpus:
                own = range(rank * per_host, (rank + 1) * per_host)
                links["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, own))
            commands.append(replace(command, env={**self._threads, **command.env, **links}))
        return tuple(commands)

    @contextmanager
    def hold(
        self, run: PlannedRun, say: Callable[[str], None]
    ) -> Iterator[tuple[PlannedRun, Launcher[PlannedRun]]]:
        """Have the network up for one run: with it ends whatever the program has left behind."""
        with self._network:
            yield run, self


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
