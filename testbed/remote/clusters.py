"""Clusters on hosts as `dally testbed` uses them: a private one that stays, and one of others."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from dally.hosts.hosts_file import read_hosts_file
from slurm_plugin.local_cluster.cluster import Cluster
from testbed.persistent.shape import HostsShape, SlurmPlace
from testbed.remote.existing_slurm import find_slurm
from testbed.remote.head_node import HeadNode
from testbed.remote.hosts import CommandLog, Hosts
from testbed.remote.private_slurm import PrivateSlurm


@contextmanager
def private_slurm(shape: HostsShape) -> Iterator[tuple[SlurmPlace, Callable[[], bool]]]:
    """A private Slurm that ends with this context; with it, what tells whether it has ended on a host.

    Raises:
        DallyError: A host cannot be reached, or it does not come up there; nothing of it is left.
    """
    with Hosts(shape.hosts(), CommandLog(Path(shape.logs))) as hosts:
        slurm = PrivateSlurm(hosts, Path(shape.shared), shape.fake_gpus)
        with slurm as cluster:
            place = SlurmPlace(
                str(cluster.conf), str(cluster.work), cluster.partition, dict(cluster.interfaces)
            )
            yield place, lambda: slurm.ended


@contextmanager
def opened_private(shape: HostsShape, place: SlurmPlace) -> Iterator[Cluster]:
    """A private Slurm that is up, over connections of one's own.

    Raises:
        DallyError: A host cannot be reached.
    """
    with Hosts(shape.hosts(), CommandLog(Path(shape.logs))) as hosts:
        head = hosts.file.hosts[0].name
        yield HeadNode(hosts, head, Path(place.conf), Path(place.work), place.partition, place.interfaces)


@contextmanager
def opened_existing(
    hosts_file: Path, partition: str, work: Path, reservation: str, conf: Path | None, logs: Path
) -> Iterator[Cluster]:
    """A Slurm of others, through the first host of a file; nothing is left there but the run's folders.

    Raises:
        DallyError: The hosts cannot be reached, or no such Slurm is there.
    """
    with Hosts(read_hosts_file(hosts_file), CommandLog(logs)) as hosts:
        yield find_slurm(hosts, partition, work, reservation, conf)
