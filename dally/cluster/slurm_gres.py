"""GPUs as Slurm counts them: the `Gres=` of slurm.conf and the lines of gres.conf."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from dally.cluster.slurm_conf import read_lines
from dally.config_text import naming
from dally.errors import InputError
from dally.hostlist import expand
from dally.words import plural

_ITEM = re.compile(r"(?:[^,(]+|\([^()]*\)|\()+")
"""A comma in parentheses is part of it."""

_GPU_ENTRY = re.compile(r"\s*gpu\s*([:(]|$)")
_SOCKETS = re.compile(r"\([^()]*\)$")
_COUNT = re.compile(r"(\d{1,18})([KMGTP]?)", re.IGNORECASE | re.ASCII)
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40, "P": 1 << 50}


class UnusableGpusError(InputError):
    """A node's GPUs cannot be used as one machine; the message says why, without the node's name."""


@dataclass(frozen=True, slots=True)
class Gpus:
    """Some GPUs of a node; the type is empty and the count 0 where the file tells none."""

    gpu_type: str
    count: int


def parse_gres(gres: str) -> tuple[Gpus, ...]:
    """The GPUs in a `Gres=` value such as `gpu:h100:8(S:0-1),nic:2`; `(null)` and other resources give none.

    An entry is name[:type][:no_consume][:count]; without a count it is one GPU.

    Raises:
        InputError: A GPU entry is malformed.
    """
    found = []
    for item in _ITEM.findall(gres):
        if not _GPU_ENTRY.match(item):
            continue
        parts = [part for part in _SOCKETS.sub("", item.strip()).split(":")[1:] if part != "no_consume"]
        count = _parse_count(parts.pop()) if parts and _COUNT.fullmatch(parts[-1]) else 1
        if len(parts) > 1 or "" in parts:
            raise InputError(f"Gres entry {item.strip()!r} is not gpu[:type][:count]")
        found.append(Gpus(parts[0] if parts else "", count))
    return tuple(found)


def _parse_count(text: str) -> int:
    match = _COUNT.fullmatch(text)
    if match is None:
        raise InputError(f"count {text!r} is not a whole number")
    return int(match[1]) * _UNITS[match[2].upper()]


@dataclass(frozen=True, slots=True)
class GresTable:
    """What gres.conf says of GPUs.

    Attributes:
        by_node: In lines with NodeName, by node.
        unnamed: In lines without. Where each node has a gres.conf of its own, these tell of the node that
            this file is from, so they give a type where nothing else does, and prove nothing.
    """

    by_node: Mapping[str, Sequence[Gpus]] = field(default_factory=dict)
    unnamed: Sequence[Gpus] = ()


def read_gres_conf(path: Path) -> GresTable:
    """Read gres.conf; a missing file says nothing.

    Raises:
        InputError: A line is malformed; the message names file and line.
    """
    by_node: dict[str, list[Gpus]] = {}
    unnamed: list[Gpus] = []
    for line in read_lines(path, ("nodename", "name")) if path.exists() else ():
        if line.values.get("name", "").lower() != "gpu":
            continue
        with naming(line.where):
            files = line.values.get("file", line.values.get("multiplefiles"))
            count = len(expand(files)) if files else _parse_count(line.values.get("count", "0"))
            gpus = Gpus(line.values.get("type", ""), count)
            nodes = expand(line.values["nodename"]) if "nodename" in line.values else None
        if nodes is None:
            unnamed.append(gpus)
        for node in nodes or ():
            by_node.setdefault(node, []).append(gpus)
    return GresTable(by_node, unnamed)


def gpus_of_node(node: str, asked: Sequence[Gpus], table: GresTable) -> Gpus | None:
    """The GPUs of one node, all of one type; None if it has none.

    Args:
        node: Its name.
        asked: What slurm.conf claims; its counts hold.
        table: What gres.conf says; it gives the type where slurm.conf names none.

    Raises:
        UnusableGpusError: The node has GPUs of several types, or gres.conf lists fewer than slurm.conf claims
            (Slurm then marks the node invalid).
    """
    asked = [gpus for gpus in asked if gpus.count]
    if not asked:
        return None
    found, count = table.by_node.get(node, ()), sum(gpus.count for gpus in asked)
    types = _types(asked) or _types(found) or _types(table.unnamed)
    if len(types) > 1:
        raise UnusableGpusError(f"GPUs of types {', '.join(types)}")
    listed = sum(gpus.count for gpus in found if not types or gpus.gpu_type in ("", types[0]))
    if found and listed < count and all(gpus.count for gpus in found):
        raise UnusableGpusError(f"{plural(count, 'GPU')}, of which gres.conf lists {listed}")
    return Gpus(types[0] if types else "", count)


def _types(gpus: Iterable[Gpus]) -> list[str]:
    return sorted({item.gpu_type for item in gpus if item.gpu_type})
