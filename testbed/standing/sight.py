"""What there is to see of a standing cluster: its nodes, jobs and links."""

from dataclasses import dataclass
from pathlib import Path

from testbed.cluster import ClusterError
from testbed.local_cluster import LocalCluster
from testbed.standing.control import find_standing, open_standing
from testbed.standing.shape import LabShape
from testbed.standing.state import StandingError

_ANSWER_S = 15.0
_UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class NodeSight:
    """A node: its state in sinfo's words."""

    name: str
    rack: str
    state: str


@dataclass(frozen=True, slots=True)
class JobSight:
    """A job that waits or runs, as squeue tells it."""

    id: str
    state: str
    user: str
    nodes: str
    name: str


@dataclass(frozen=True, slots=True)
class LinkSight:
    """A link, its rate each way, and what it has carried since the start, seen from below."""

    name: str
    rate_bps: float
    sent_bytes: int
    received_bytes: int


@dataclass(frozen=True, slots=True)
class Sight:
    """All of it.

    Attributes:
        since_s: When it was asked for, seconds since 1970.
        conf: Its slurm.conf.
        cluster_file: Its tree with the true links.
        nodes: Rack by rack.
        jobs: Those of all users.
        links: Of nodes by their names, of racks by the racks'.
        problem: Why Slurm could not be asked; empty if it could.
    """

    since_s: float
    conf: str
    cluster_file: str
    nodes: tuple[NodeSight, ...]
    jobs: tuple[JobSight, ...]
    links: tuple[LinkSight, ...]
    problem: str = ""


def look(folder: Path) -> Sight:
    """Look at the cluster that is up in a folder.

    Raises:
        StandingError: None is.
        NetworkError: Its network is gone.
    """
    state = find_standing(folder)
    if state is None:
        raise StandingError(f"no testbed is up in {folder}")
    cluster, problem = open_standing(folder), ""
    states: dict[str, str] = {}
    jobs: tuple[JobSight, ...] = ()
    try:
        states, jobs = _states(cluster), _jobs(cluster)
    except ClusterError as error:
        problem = str(error)
    spec = cluster.spec
    nodes = tuple(
        NodeSight(name, rack, states.get(name, _UNKNOWN))
        for rack, names in spec.racks_of().items()
        for name in names
    )
    links = _links(cluster, state.shape)
    return Sight(state.since_s, str(spec.conf), str(spec.cluster_file), nodes, jobs, links, problem)


def _states(cluster: LocalCluster) -> dict[str, str]:
    argv = ("sinfo", "--noheader", "--Node", f"--partition={cluster.partition}", "--format=%N %T")
    lines = cluster.ask(*argv, timeout_s=_ANSWER_S).splitlines()
    return {name: state for name, _, state in (line.partition(" ") for line in lines)}


def _jobs(cluster: LocalCluster) -> tuple[JobSight, ...]:
    said = cluster.ask("squeue", "--noheader", "--format=%i|%T|%u|%N|%j", timeout_s=_ANSWER_S)
    return tuple(JobSight(*line.split("|", 4)) for line in said.splitlines())


def _links(cluster: LocalCluster, shape: LabShape) -> tuple[LinkSight, ...]:
    racks = cluster.spec.racks_of()
    return tuple(
        LinkSight(
            name,
            shape.uplink_bps if name in racks else shape.rate_bps,
            carried.sent_bytes,
            carried.received_bytes,
        )
        for name, carried in cluster.traffic().items()
    )
