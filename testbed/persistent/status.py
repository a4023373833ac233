"""What there is to see of a persistent cluster: its nodes, jobs and links."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from slurm_plugin.local_cluster.cluster import Cluster, ClusterError
from testbed.persistent.control import find_persistent, opened_persistent
from testbed.persistent.hosts_shape import HostsShape, Shape
from testbed.persistent.state import PersistentError

_ANSWER_S = 15.0
_UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class NodeStatus:
    """A node: its state in sinfo's words."""

    name: str
    rack: str
    state: str


@dataclass(frozen=True, slots=True)
class JobStatus:
    """A job that waits or runs, as squeue tells it."""

    id: str
    state: str
    user: str
    nodes: str
    name: str


@dataclass(frozen=True, slots=True)
class LinkStatus:
    """A link, its rate each way if it is known, and what it has carried since it is up, seen from below."""

    name: str
    rate_bps: float | None
    sent_bytes: int
    received_bytes: int


@dataclass(frozen=True, slots=True)
class ClusterStatus:
    """All of it.

    Attributes:
        since_s: When it was asked for, seconds since 1970.
        conf: Its slurm.conf.
        cluster_file: Its tree with the true links; empty on hosts, whose links nobody knows.
        nodes: Rack by rack.
        jobs: Those of all users.
        links: Of nodes by their names, of racks by the racks'.
        problem: Why Slurm could not be asked; empty if it could.
    """

    since_s: float
    conf: str
    cluster_file: str
    nodes: tuple[NodeStatus, ...]
    jobs: tuple[JobStatus, ...]
    links: tuple[LinkStatus, ...]
    problem: str = ""


def read_status(folder: Path) -> ClusterStatus:
    """Look at the cluster that is up in a folder.

    Raises:
        PersistentError: None is.
        NetworkError: Its network is gone.
        DallyError: A host of it cannot be reached.
    """
    state = find_persistent(folder)
    if state is None:
        raise PersistentError(f"no testbed is up in {folder}")
    problem = ""
    states: dict[str, str] = {}
    jobs: tuple[JobStatus, ...] = ()
    with opened_persistent(folder) as cluster:
        try:
            states, jobs = _states(cluster), _jobs(cluster)
        except ClusterError as error:
            problem = str(error)
        links = _links(cluster, _rates(state.shape))
    nodes = tuple(
        NodeStatus(name, rack, states.get(name, _UNKNOWN))
        for rack, names in _racks(state.shape).items()
        for name in names
    )
    on_hosts = isinstance(state.shape, HostsShape)
    cluster_file = "" if on_hosts else str(cluster.conf.with_name("cluster.toml"))
    return ClusterStatus(state.since_s, str(cluster.conf), cluster_file, nodes, jobs, links, problem)


def _racks(shape: Shape) -> Mapping[str, Sequence[str]]:
    """The names of the racks, each with those of its nodes."""
    if not isinstance(shape, HostsShape):
        return shape.spec(Path("/")).racks_of()
    racks: dict[str, list[str]] = {}
    for host in shape.hosts().hosts:
        racks.setdefault(host.rack, []).append(host.name)
    return racks


def _rates(shape: Shape) -> Mapping[str, float]:
    """The rates of links by their names, where they are known."""
    if isinstance(shape, HostsShape):
        return {}
    racks = _racks(shape)
    nodes = (name for names in racks.values() for name in names)
    return dict.fromkeys(nodes, shape.rate_bps) | dict.fromkeys(racks, shape.uplink_bps)


def _states(cluster: Cluster) -> dict[str, str]:
    argv = ("sinfo", "--noheader", "--Node", f"--partition={cluster.partition}", "--format=%N %T")
    lines = cluster.ask(*argv, timeout_s=_ANSWER_S).splitlines()
    return {name: state for name, _, state in (line.partition(" ") for line in lines)}


def _jobs(cluster: Cluster) -> tuple[JobStatus, ...]:
    said = cluster.ask("squeue", "--noheader", "--format=%i|%T|%u|%N|%j", timeout_s=_ANSWER_S)
    return tuple(JobStatus(*line.split("|", 4)) for line in said.splitlines())


def _links(cluster: Cluster, rates: Mapping[str, float]) -> tuple[LinkStatus, ...]:
    return tuple(
        LinkStatus(name, rates.get(name), carried.sent_bytes, carried.received_bytes)
        for name, carried in cluster.traffic().items()
    )
