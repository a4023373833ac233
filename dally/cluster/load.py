"""Loads a cluster: one shipped, from a folder of Slurm's files, or from a file known by its content."""

import re
from collections.abc import Iterable
from importlib import resources
from pathlib import Path

from dally.cluster.host_tables import LINGJUN_COLUMNS, PHILLY_COLUMNS, header_of, read_lingjun, read_philly
from dally.cluster.links import DefaultLinks
from dally.cluster.slurm_cluster import read_slurm
from dally.cluster.slurm_conf import RegisteredNode
from dally.cluster.toml_file import read_toml
from dally.cluster.topology import Topology
from dally.config_text import read_text
from dally.errors import InputError
from dally.spec import now_called

MACHINES_PER_RACK = 8
"""Rack size for the Philly list, which tells none; a rack of its 8-GPU machines then holds 64 GPUs."""

_SLURM = re.compile(r"^[^\S\n]*(NodeName|ClusterName|SlurmctldHost)\s*=", re.I | re.M)
_TOPOLOGY = re.compile(r"^[^\S\n]*((SwitchName|BlockName)\s*=|-\s+topology\s*:)", re.I | re.M)
_SHIPPED_FOLDER = resources.files("dally.cluster") / "examples"


def shipped_clusters() -> tuple[str, ...]:
    """The names of the clusters that come with Dally, smallest of a family first."""
    names = [
        item.name.removesuffix(".toml") for item in _SHIPPED_FOLDER.iterdir() if item.name.endswith(".toml")
    ]
    return tuple(sorted(names, key=lambda name: (name.rstrip("0123456789"), len(name), name)))


def names_links(path: str | Path) -> bool:
    """Whether the files of a cluster that can be loaded give its links; for others defaults hold."""
    if str(path) in shipped_clusters():
        return True
    if Path(path).is_dir():
        return False
    text = read_text(Path(path), "replace")
    is_table = header_of(text) in (PHILLY_COLUMNS, LINGJUN_COLUMNS)
    return not (is_table or _SLURM.search(text) or _TOPOLOGY.search(text))


def load_cluster(
    path: str | Path,
    *,
    links: DefaultLinks | None = None,
    machines_per_rack: int | None = None,
    absent: bool = False,
    registered: Iterable[RegisteredNode] = (),
) -> Topology:
    """Load a cluster.

    Args:
        path: The name of a shipped cluster (write ./NAME for a file of that name), a folder with slurm.conf,
            or a file, told apart by content: TOML, slurm.conf, topology.conf or topology.yaml beside a
            slurm.conf, the Lingjun network table, the Philly machine list.
        links: Links by level, for files that give none; if None, `DefaultLinks()` and, for Slurm's files,
            NVLink across machines by GPU type. TOML files give their own.
        machines_per_rack: Machines in a rack, for the Philly list only; `MACHINES_PER_RACK` if None.
        absent: Keep nodes that slurm.conf says are FUTURE or DOWN, for callers that ask Slurm what is up.
        registered: Nodes that slurmctld shows; to Slurm's files those are added that are in none of them.

    Raises:
        InputError: There is no such cluster, its files are wrong, or machines_per_rack is given for another
            kind of cluster.
    """
    place, shipped = Path(path), str(path) in shipped_clusters()
    if not shipped and not (str(path) and place.exists()):
        raise InputError(
            f"cluster {str(path)!r} is neither a file, a folder nor a shipped cluster"
            f"{now_called(str(path))}; "
            f"shipped: {', '.join(shipped_clusters())}"
        )
    try:
        text = "" if shipped or place.is_dir() else read_text(place, "replace")
        if not (_SLURM.search(text) or _TOPOLOGY.search(text)) and "\ufffd" in text:
            read_text(place)  # only Slurm's files may have other bytes, in comments
        header = header_of(text)
        if header == PHILLY_COLUMNS:
            size = MACHINES_PER_RACK if machines_per_rack is None else machines_per_rack
            return read_philly(text, str(path), place.stem, links or DefaultLinks(), size)
        if machines_per_rack is not None:
            raise InputError(f"{path}: machines per rack are for the Philly machine list, this tells its own")
        if shipped:
            return read_toml((_SHIPPED_FOLDER / f"{path}.toml").read_text("utf-8"), str(path), str(path))
        if header == LINGJUN_COLUMNS:
            return read_lingjun(text, str(path), place.stem, links or DefaultLinks())
        if place.is_dir() or _SLURM.search(text):
            return read_slurm(place, links, absent=absent, registered=registered)
        if _TOPOLOGY.search(text):
            return read_slurm(place, links, is_topology=True, absent=absent, registered=registered)
        if place.suffix == ".csv":
            tables = " or ".join(repr(",".join(columns)) for columns in (LINGJUN_COLUMNS, PHILLY_COLUMNS))
            raise InputError(f"{path}: header is {','.join(header)!r}, must be {tables}")
        return read_toml(text, str(path), place.stem)
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}") from error
