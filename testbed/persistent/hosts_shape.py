"""What a persistent cluster on hosts over SSH is made of: which hosts, and where its Slurm is on them."""

import hashlib
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from dally.errors import InputError
from dally.hosts.hosts_file import HostsFile, read_hosts_file
from testbed.persistent.shape import LabShape


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
        """What it is, in words."""
        hosts = self.hosts().hosts
        gpus = f"{sum(host.gpus for host in hosts)} {'pretended ' if self.fake_gpus else ''}GPUs"
        racks = len({host.rack for host in hosts})
        return f"{len(hosts)} hosts of {self.hosts_file} with {gpus} in {racks} racks"

    def options(self) -> str:
        """The options that ask for it."""
        said = shlex.join(["--hosts", self.hosts_file, "--shared", self.shared])
        return f"{said} --fake-gpus" if self.fake_gpus else said


@dataclass(frozen=True, slots=True)
class SlurmPlace:
    """Where a private Slurm is on its hosts; the first of the file is the head node.

    Attributes:
        conf: Its slurm.conf.
        work: The folder that all its nodes share.
        partition: Its partition.
        interfaces: The network interfaces of the hosts, by their names.
    """

    conf: str
    work: str
    partition: str
    interfaces: Mapping[str, str]


Shape = LabShape | HostsShape
"""What a persistent cluster is made of, of whichever kind."""


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


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
