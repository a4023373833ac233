"""Slurm's configuration files: their lines, and what slurm.conf says of nodes, partitions and node sets."""

import re
from collections.abc import Collection, Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from dally.config_text import naming, read_text
from dally.errors import InputError
from dally.hostlist import expand

_PAIR = re.compile(r"\s*([A-Za-z0-9_.]+)\s*[-+*/]?=\s*(?:\"([^\"]*)\"|(\S+))(?=\s|$)")
_FIRST_KEY = re.compile(r"\s*([A-Za-z0-9_.]+)\s*[-+*/]?=")
_INCLUDE = re.compile(r"\s*include\s+(\S.*)", re.IGNORECASE)
_NO_NAME = re.compile(r"[\s\"'*?\[]")
_CLUSTER = re.compile(r"\s*ClusterName\s*=\s*\"?([\w-]+)", re.IGNORECASE)
"""Its name stands for `%c` in the files that are included further down."""
_COMMENT = re.compile(r"(?<!\\)#.*")
_DEEPEST_INCLUDE = 8
_KEYS = frozenset(
    {"nodename", "clustername", "topologyplugin", "topologyparam", "partitionname", "nodeset", "downnodes"}
)
_ABSENT = frozenset({"FUTURE", "DOWN", "DRAIN", "FAIL", "FAILING"})


@dataclass(frozen=True, slots=True)
class ConfLine:
    """One logical line: its place (`file, line n`) and its values by key in lower case."""

    where: str
    values: Mapping[str, str]

    @property
    def first_key(self) -> str:
        """The key the line begins with, which tells what it is about."""
        return next(iter(self.values))

    @property
    def features(self) -> list[str]:
        """The features that the line gives a node."""
        return (self.values.get("features") or self.values.get("feature", "")).split(",")


def read_lines(
    path: Path, keys: Collection[str], depth: int = 0, cluster: str = "%c"
) -> Generator[ConfLine, None, str]:
    """The lines that begin with one of the keys, those of included files in their place.

    Lines about anything else are passed over unread: Slurm has hundreds of keys.

    Args:
        path: The file.
        keys: First keys of the wanted lines, in lower case.
        depth: How many files include this one.
        cluster: The cluster's name as far as it is known.

    Returns:
        The cluster's name as far as the file tells it.

    Raises:
        InputError: A file cannot be read, or a wanted line is not a row of Key=Value pairs.
    """
    for where, text in _logical_lines(path):
        if named := _CLUSTER.match(text):
            cluster = named[1].lower()
        include = _INCLUDE.match(text)
        if include and depth == _DEEPEST_INCLUDE:
            raise InputError(f"{where}: files include each other more than {_DEEPEST_INCLUDE} deep")
        if include:
            name = include[1].replace("%c", cluster)
            included = path.parent / name
            if not included.exists():  # as in a copy of the folder, where files are included by absolute path
                odd = _NO_NAME.search(name)
                why = "; Slurm takes the path of one file, without quotes and patterns" if odd else ""
                raise InputError(f"{where}: the file that it includes, {included}, is not there{why}")
            cluster = yield from read_lines(included, keys, depth + 1, cluster)
        elif (first := _FIRST_KEY.match(text)) and first[1].lower() in keys:
            values: dict[str, str] = {}
            position = 0
            while position < len(text):  # it ends with no blank
                match = _PAIR.match(text, position)
                if match is None:
                    raise InputError(f"{where}: {text[position:].strip()!r} is not Key=Value")
                values[match[1].lower()] = match[2] if match[2] is not None else match[3]
                position = match.end()
            yield ConfLine(where, values)
    return cluster


def _logical_lines(path: Path) -> Iterator[tuple[str, str]]:
    """Lines without comments, each joined with those it continues on; numbered by its first."""
    start, parts = 1, list[str]()
    # Slurm takes any bytes in comments, and only a line feed for the end of a line.
    for number, raw in enumerate(read_text(path, "replace").split("\n"), start=1):
        start = start if parts else number
        part = _COMMENT.sub("", raw).rstrip()
        if part.endswith("\\"):
            parts.append(part[:-1])
            continue
        yield f"{path}, line {start}", " ".join([*parts, part]).rstrip()
        parts = []
    yield f"{path}, line {start}", " ".join(parts).rstrip()


def required(line: ConfLine, key: str) -> str:
    """The value of a key that the line must have."""
    if key.lower() not in line.values:
        raise InputError(f"{line.where}: {key} is missing")
    return line.values[key.lower()]


@dataclass(frozen=True, slots=True)
class RegisteredNode:
    """A node as slurmctld shows it: its name, `Gres` and features. It may be in no file (`MaxNodeCount=`)."""

    name: str
    gres: str
    features: frozenset[str] = frozenset()


@dataclass(slots=True)
class SlurmConf:
    """What slurm.conf says.

    Attributes:
        path: The file.
        values: Values of the cluster, by key in lower case.
        nodes: Each node's line, with DEFAULT's values filled in.
        absent: Nodes without capacity, each with what says so, such as `State=FUTURE`.
        partitions: The lines of the partitions, likewise with DEFAULT's values.
        node_sets: The lines of node sets, by name.
    """

    path: Path
    values: dict[str, str] = field(default_factory=dict)
    nodes: dict[str, ConfLine] = field(default_factory=dict)
    absent: dict[str, str] = field(default_factory=dict)
    partitions: list[ConfLine] = field(default_factory=list)
    node_sets: dict[str, ConfLine] = field(default_factory=dict)

    def register(self, nodes: Iterable[RegisteredNode]) -> None:
        """Take in nodes that no file names; of the others the files hold."""
        for node in nodes:
            if node.name not in self.nodes:
                values = {"nodename": node.name, "gres": node.gres, "features": ",".join(node.features)}
                self.nodes[node.name] = ConfLine(f"scontrol show node {node.name}", values)

    def members(self, names: Collection[str]) -> tuple[str, ...]:
        """Nodes by name, where the names of node sets and ALL stand for what they hold."""
        found: dict[str, None] = {}
        for name in names:
            if name in self.nodes:
                found[name] = None
            elif name in self.node_sets:
                line = self.node_sets[name]
                with naming(line.where):
                    found.update(
                        dict.fromkeys(expand(line.values["nodes"]) if line.values.get("nodes") else ())
                    )
                if feature := line.values.get("feature"):
                    with_it = (node for node, own in self.nodes.items() if feature in own.features)
                    found.update(dict.fromkeys(with_it))
            else:
                found.update(dict.fromkeys(self.nodes if name.upper() == "ALL" else (name,)))
        return tuple(found)

    def members_of_partitions(self) -> dict[str, frozenset[str]]:
        """The nodes of each partition, by its name."""
        found: dict[str, frozenset[str]] = {}
        for line in self.partitions:
            with naming(line.where):
                nodes = self.members(expand(line.values["nodes"])) if line.values.get("nodes") else ()
                found[line.values["partitionname"]] = frozenset(nodes)
        return found

    def topology_of(self) -> dict[str, str]:
        """The topology that a node's partition names (Slurm 25.05 and newer), by node; the first counts."""
        found: dict[str, str] = {}
        for line in self.partitions:
            topology, nodes = line.values.get("topology"), line.values.get("nodes")
            if topology and nodes:
                with naming(line.where):
                    for name in self.members(expand(nodes)):
                        found.setdefault(name, topology)
        return found


def read_slurm_conf(path: Path) -> SlurmConf:
    """Read slurm.conf and the files that it includes.

    Raises:
        InputError: A file is missing or wrong; the message names it and the line.
    """
    conf = SlurmConf(path)
    defaults: dict[str, dict[str, str]] = {"nodename": {}, "partitionname": {}}
    for line in read_lines(path, _KEYS):
        key = line.first_key
        if key in defaults:
            # A line NodeName=DEFAULT holds for all nodes after it in the file; likewise for partitions.
            if required(line, key).upper() == "DEFAULT":
                defaults[key].update(line.values)
                continue
            line = ConfLine(line.where, {**defaults[key], **line.values})
        with naming(line.where):
            if key == "nodename":
                _add_nodes(conf, line)
            elif key == "downnodes":
                state = line.values.get("state", "DOWN").upper()
                conf.absent.update(dict.fromkeys(expand(line.values[key]), f"DownNodes, State={state}"))
            elif key == "partitionname":
                conf.partitions.append(line)
            elif key == "nodeset":
                conf.node_sets[line.values[key]] = line
            else:
                conf.values.update(line.values)
    return conf


def _add_nodes(conf: SlurmConf, line: ConfLine) -> None:
    state = line.values.get("state", "").upper()
    for host in expand(line.values["nodename"]):
        if host in conf.nodes:
            raise InputError(f"node {host} is defined twice, first in {conf.nodes[host].where}")
        conf.nodes[host] = line
        if state in _ABSENT:
            conf.absent.setdefault(host, f"State={state}")
