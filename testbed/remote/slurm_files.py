"""The configuration of a private Slurm on remote hosts: as a local cluster's, but for real nodes and GPUs."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from dally.errors import InputError
from slurm_plugin.local_cluster.slurm_files import (
    SPINE,
    LocalClusterSpec,
    conf_files,
    settings_conf,
    tree_conf,
)

PARTITION = "gpu"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_CPUS_PER_GPU = 2


@dataclass(frozen=True, slots=True)
class Node:
    """A host as Slurm is to see it.

    Attributes:
        name: Its name in the hosts file.
        address: At which all others reach it.
        rack: Its rack.
        gpus: How many GPUs it has.
        cpus: How many CPUs.
        memory_mb: Its memory.
        devices: The device files of its GPUs, as a host list.
    """

    name: str
    address: str
    rack: str
    gpus: int
    cpus: int
    memory_mb: int
    devices: str


def remote_conf_files(
    folder: Path, port: int, nodes: Sequence[Node], version: tuple[int, int]
) -> dict[str, str]:
    """The texts of all files of the configuration folder, alike on all hosts, by name.

    slurmctld has the port on the first node; the nodes take the next ones.

    Raises:
        InputError: The name of a rack is none that Slurm takes.
    """
    spec = LocalClusterSpec(folder, nodes=len(nodes), racks=1, port=port)
    lines = [
        f"NodeName={node.name} NodeHostname=localhost NodeAddr={node.address} Port={port + number} "
        f"CPUs={node.cpus} Boards=1 SocketsPerBoard=1 CoresPerSocket={node.cpus} ThreadsPerCore=1 "
        f"RealMemory={node.memory_mb} Gres=gpu:{node.gpus} State=UNKNOWN"
        for number, node in enumerate(nodes, 1)
    ]
    gpus = [f"NodeName={node.name} Name=gpu File={node.devices}" for node in nodes]
    partition = f"PartitionName={PARTITION} Nodes=ALL Default=YES MaxTime=INFINITE State=UP OverSubscribe=NO"
    return {
        **conf_files(spec, version),
        "slurm.conf": "\n".join(
            [settings_conf(spec, nodes[0].address) + lines[0], *lines[1:], partition, ""]
        ),
        "gres.conf": "\n".join(["AutoDetect=off", *gpus, ""]),
        "topology.conf": _topology(nodes),
    }


def hardware(text: str) -> tuple[int, int]:
    """CPUs and megabytes of memory in what `slurmd -C` prints.

    Raises:
        InputError: They are not in it.
    """
    values = dict(word.split("=", 1) for word in text.split() if "=" in word)
    try:
        return int(values["CPUs"]), int(values["RealMemory"])
    except (KeyError, ValueError) as error:
        raise InputError(f"slurmd -C printed no CPUs and RealMemory but {text.strip()[:100]!r}") from error


def claimed_cpus(cpus: int, gpus: int) -> int:
    """As many CPUs as jobs on all GPUs ask for, also on a host of fewer whose GPUs are pretended."""
    return max(cpus, _CPUS_PER_GPU * gpus)


def _topology(nodes: Sequence[Node]) -> str:
    racks: Mapping[str, list[str]] = {node.rack: [] for node in nodes}
    for node in nodes:
        racks[node.rack].append(node.name)
    for rack in racks:
        if not _NAME.fullmatch(rack) or rack == SPINE:
            raise InputError(f"rack is {rack!r}, must be letters, digits, '.', '_' and '-', and not {SPINE}")
    return tree_conf(racks, SPINE)
