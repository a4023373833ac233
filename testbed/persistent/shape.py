"""What a persistent cluster is made of: network namespaces of this machine, or hosts over SSH."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from dally.errors import InputError
from dally.hosts.hosts_file import HostsFile, read_hosts_file
from dally.hosts.network_spec import NetworkSpec, Rack
from dally.words import plural
from slurm_plugin.local_cluster.slurm_files import LocalClusterSpec

_MOST_HOSTS = 64
"""Each is a slurmd that wants a port, memory and, when ranks run, a share of the cores."""


@dataclass(frozen=True, slots=True)
class LocalClusterShape:
    """Racks of hosts on this machine and their links.

    Attributes:
        racks: Hosts of each rack.
        gpus: GPUs of each host; nothing is behind them.
        rate_bps: Of each host's link, each way, bits per second.
        uplink_bps: Of each rack's link to the core.
        gpu_types: Of the GPUs, one for all hosts or one for each rack.

    Raises:
        InputError: A number is out of range.
    """

    racks: tuple[int, ...] = (2, 2, 2, 2)
    gpus: int = 2
    rate_bps: float = 1e9
    uplink_bps: float = 200e6
    gpu_types: tuple[str, ...] = ("h100",)

    def __post_init__(self) -> None:
        if not 0 < sum(self.racks) <= _MOST_HOSTS:
            raise InputError(f"the racks have {sum(self.racks)} hosts, must be 1 to {_MOST_HOSTS} in all")
        self.spec(Path("/"))  # refuses what Slurm or the network cannot be

    def spec(self, folder: Path, port: int = 0) -> LocalClusterSpec:
        """The cluster in a folder; its ports are found unless given."""
        racks = tuple(Rack(hosts, self.rate_bps, self.uplink_bps) for hosts in self.racks)
        return LocalClusterSpec(
            folder,
            gpus=self.gpus,
            gpu_types=self.gpu_types,
            port=port,
            network=NetworkSpec(racks),
            preload=find_spec("torch") is not None,
        )

    def shown(self) -> str:
        """A description for people."""
        return (
            f"{plural(sum(self.racks), 'node')} of {plural(self.gpus, 'GPU')} ({', '.join(self.gpu_types)}) "
            f"in {plural(len(self.racks), 'rack')} ({', '.join(map(str, self.racks))}), "
            f"{shown_rate(self.rate_bps)} a node, {shown_rate(self.uplink_bps)} between racks"
        )


@dataclass(frozen=True, slots=True)
class HostsShape:
    """Hosts that become a cluster.

    Attributes:
        hosts_file: The file that names them, absolute.
        sha256: Of that file; another text means another cluster.
        shared: A folder that all hosts share.
        fake_gpus: Whether their GPUs are pretended.
        logs: Folder of the logs of what is run on them.
    """

    hosts_file: str
    sha256: str
    shared: str
    fake_gpus: bool
    logs: str = field(compare=False)

    def hosts(self) -> HostsFile:
        """The hosts.

        Raises:
            InputError: The file is wrong, or not the one that was there when the cluster came up.
        """
        found = read_hosts_file(Path(self.hosts_file))
        if _sha256(Path(self.hosts_file)) != self.sha256:
            raise InputError(
                f"{self.hosts_file} has changed since the testbed came up; "
                "put it back, or `dally testbed down` and `up` again"
            )
        return found

    def shown(self) -> str:
        """A description for people."""
        hosts = self.hosts().hosts
        gpus = f"{sum(host.gpus for host in hosts)} {'pretended ' if self.fake_gpus else ''}GPUs"
        racks = len({host.rack for host in hosts})
        return f"{len(hosts)} hosts of {self.hosts_file} with {gpus} in {racks} racks, sharing {self.shared}"


Shape = LocalClusterShape | HostsShape


@dataclass(frozen=True, slots=True)
class SlurmPlace:
    """Where a private Slurm is on its hosts; the first of the file is the head node.

    Attributes:
        conf: Its slurm.conf.
        work: The folder that all its nodes share.
        partition: Its partition.
        interfaces: The network interfaces of the hosts, by the hosts' names.
    """

    conf: str
    work: str
    partition: str
    interfaces: Mapping[str, str]


def hosts_shape(hosts_file: Path, shared: Path, fake_gpus: bool, logs: Path) -> HostsShape:
    """The cluster of the hosts that a file names.

    Raises:
        InputError: The file is wrong, or the shared folder's path is not absolute.
    """
    read_hosts_file(hosts_file)
    if not shared.is_absolute():
        raise InputError(f"--shared is {shared}, must be an absolute path, the same on all hosts")
    return HostsShape(
        str(hosts_file.absolute()), _sha256(hosts_file), str(shared), fake_gpus, str(logs.absolute())
    )


def read_shape(fields: Mapping[str, Any]) -> Shape:
    """A shape from its fields as JSON has them.

    Raises:
        KeyError, TypeError: These are not those of one.
    """
    if "hosts_file" in fields:
        return HostsShape(**fields)
    given: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in fields.items()
    }
    return LocalClusterShape(**given)


def shown_rate(rate_bps: float) -> str:
    """A rate for people, such as `200 Mb/s`."""
    return f"{rate_bps / 1e9:g} Gb/s" if rate_bps >= 1e9 else f"{rate_bps / 1e6:g} Mb/s"


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
