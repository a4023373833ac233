"""What there is to see of a persistent cluster: its nodes, jobs and links."""

from dataclasses import dataclass
from pathlib import Path

from slurm_plugin.local_cluster.cluster import ClusterError
from testbed.persistent.control import find_persistent, opened_persistent
from testbed.persistent.shape import HostsShape
from testbed.persistent.state import PersistentError

_ANSWER_S = 15.0


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
    """Ask Slurm and the links of the cluster that is up in a folder.

    Raises:
        PersistentError: None is.
        NetworkError: Its network is gone.
        DallyError: A host of it cannot be reached.
    """
    state = find_persistent(folder)
    if state is None:
        raise PersistentError(f"no testbed is up in {folder}")
    shape = state.shape
    racks: dict[str, list[str]] = {}
    rates: dict[str, float] = {}
    if isinstance(shape, HostsShape):
        for host in shape.hosts().hosts:
            racks.setdefault(host.rack, []).append(host.name)
    else:
        racks = {rack: [*names] for rack, names in shape.spec(Path("/")).racks_of().items()}
        nodes = (name for names in racks.values() for name in names)
        rates = dict.fromkeys(nodes, shape.rate_bps) | dict.fromkeys(racks, shape.uplink_bps)
    problem = ""
    states: dict[str, str] = {}
    jobs: tuple[JobStatus, ...] = ()
    with opened_persistent(folder) as cluster:
        try:
            sinfo = ("sinfo", "--noheader", "--Node", f"--partition={cluster.partition}", "--format=%N %T")
            lines = cluster.ask(*sinfo, timeout_s=_ANSWER_S).splitlines()
            states = {name: node_state for name, _, node_state in (line.partition(" ") for line in lines)}
            shown = cluster.ask("squeue", "--noheader", "--format=%i|%T|%u|%N|%j", timeout_s=_ANSWER_S)
            jobs = tuple(JobStatus(*line.split("|", 4)) for line in shown.splitlines())
        except ClusterError as error:
            problem = str(error)
        links = tuple(
            LinkStatus(name, rates.get(name), carried.sent_bytes, carried.received_bytes)
            for name, carried in cluster.traffic().items()
        )
    return ClusterStatus(
        state.since_s,
        str(cluster.conf),
        "" if isinstance(shape, HostsShape) else str(cluster.conf.with_name("cluster.toml")),
        tuple(
            NodeStatus(name, rack, states.get(name, "unknown"))
            for rack, names in racks.items()
            for name in names
        ),
        jobs,
        links,
        problem,
    )
