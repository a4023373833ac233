"""Reads nodes, reservations, partitions, licences, blocks, settings and tables as Slurm shows them."""

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from math import inf
from types import MappingProxyType

from slurm_plugin.client.block_topology import SEGMENTS_SINCE, BlockTopology
from slurm_plugin.client.job_json import count_gpus, node_names
from slurm_plugin.client.slurm import JobDefaults, Partition, Reservation, SlurmNode

_KEY = re.compile(r"(?:^|\s)([A-Za-z][\w:/]*(?:\[\d+\])?)=")
_BLOCKED = "+BLOCKED"
_USABLE = {"IDLE", "MIXED", "ALLOCATED"}
_BAD = re.compile(
    r"BLOCKED|DOWN|DRAIN|DRAINED|DRAINING|FAIL|FAILING|INVAL|INVALID_REG|MAINT.*|NOT_RESPONDING|POWERING_DOWN|REBOOT.*"
)
_TIME = re.compile(r"(?:(\d{1,6})-)?(?:(\d{1,6}):)?(\d{1,2}):(\d{2})", re.ASCII)
_STARTS_JOBS = ("UP", "DRAIN", "")
_CPUS = re.compile(r"(?:^|,)cpu=([0-9]{1,12})(?=,|$)", re.ASCII)
_UNBOUND = {"ANY_NODES", "FLEX", "TIME_FLOAT"}
"""Flags of reservations whose jobs may also run elsewhere, or which never begin."""

_SHARED = re.compile(r"(?:^|,)(?:mps|shard)(?::[^:(),=]+)?[:=][1-9][0-9]*(?:\(([^()]*)\))?", re.ASCII)
_NONE = ("(null)", "N/A", "None")
_VARIES = re.compile(r" (?:CPULoad|FreeMem)=\S+")
"""What changes in each node's line by itself, at each look, and is not read."""


def read_nodes(text: str) -> tuple[SlurmNode, ...]:
    """The nodes in what `scontrol --oneliner --details show node` printed."""
    nodes = {node.name: node for line in _VARIES.sub("", text).split("\n") for node in _nodes_of(line)}
    return tuple(nodes.values())


@lru_cache(maxsize=1 << 13)
def _nodes_of(line: str) -> tuple[SlurmNode, ...]:
    """The node of a line; none if it is about no node. Most lines are those of the last look."""
    return tuple(
        SlurmNode(
            name=name,
            available=is_available(record.get("State", "")),
            state_name=record.get("State", "").lower(),
            gpus=count_gpus(record.get("Gres", "")),
            gpus_used=count_gpus(record.get("GresUsed", "")),
            partitions=tuple(filter(None, record.get("Partitions", "").split(","))),
            memory_mb=max(0.0, number(record.get("RealMemory", "")) - number(record.get("MemSpecLimit", ""))),
            features=frozenset(filter(None, record.get("ActiveFeatures", "").split(","))),
            cpus=number(record.get("CPUEfctv") or record.get("CPUTot", "")),
            cpus_used=number(record.get("CPUAlloc", "")),
            memory_used_mb=number(record.get("AllocMem", "")),
            gres=record.get("Gres", ""),
            blocked=is_blocked(record.get("State", "")),
            gpus_shared=count_shared(record.get("GresUsed", "")),
            threads_per_core=_threads_per_core(record),
            tmp_disk_mb=number(record.get("TmpDisk", "")),
        )
        for name, record in read_records(line, "NodeName").items()
    )


def read_records(text: str, name_key: str) -> dict[str, dict[str, str]]:
    """What each line of `scontrol --oneliner show` says by key, by the name that the line has.

    Values may have blanks. Of several values of a key the first counts: remarks, in which administrators
    write what they like, come last.
    """
    records: dict[str, dict[str, str]] = {}
    for line in text.split("\n"):
        record: dict[str, str] = {}
        parts = _KEY.split(line)[1:]
        for key, value in zip(parts[::2], parts[1::2], strict=True):
            record.setdefault(key, "" if value.strip() in _NONE else value.strip())
        if name := record.get(name_key):
            records[name] = record
    return records


def read_rows(text: str, columns: str) -> Iterator[dict[str, str]]:
    """The rows, by column, of what sacctmgr or sshare printed by `--parsable2 --noheader`.

    Args:
        text: What it printed.
        columns: The columns that it was asked for, with commas between.
    """
    names = columns.split(",")
    for line in text.split("\n"):
        values = line.split("|")
        if len(values) == len(names):
            yield dict(zip(names, values, strict=True))


def read_settings(text: str) -> dict[str, str]:
    """The `Key = value` lines of `scontrol show config`."""
    pairs = (line.split("=", 1) for line in text.split("\n") if "=" in line)
    return {key.strip(): value.strip() for key, value in pairs}


def _threads_per_core(record: Mapping[str, str]) -> int:
    """CPUs of each core; 1 where Slurm counts cores as CPUs, whatever threads they have."""
    cpus, sockets, cores = (number(record.get(key, "")) for key in ("CPUTot", "Sockets", "CoresPerSocket"))
    return max(1, int(cpus // (sockets * cores))) if sockets and cores else 1


def count_shared(gres_used: str) -> int:
    """Of how many GPUs jobs have parts, like 2 in `gpu:h100:0(IDX:N/A),shard:h100:3(IDX:0,2)`.

    Slurm names these GPUs, or says how much of each is taken (`2/4,0/4`).
    """
    return sum(map(_count_parted, _SHARED.findall(gres_used)))


def _count_parted(where: str) -> int:
    if "/" in where and where != "N/A":
        return sum(not part.startswith("0/") for part in where.split(","))
    found = where.removeprefix("IDX:")
    return len(node_names(f"[{found}]")) if re.fullmatch("[0-9,-]+", found) else 1


def is_available(state: str) -> bool:
    """Whether a node's state lets jobs start; `*` is how short forms say that a node does not respond."""
    base, *flags = state.split("+")
    return base in _USABLE and not any(_BAD.fullmatch(flag) for flag in flags)


def is_blocked(state: str) -> bool:
    """Whether a node's state would let jobs start, were it not for a job beside it (`--exclusive=topo`)."""
    return _BLOCKED in state and is_available(state.replace(_BLOCKED, ""))


def read_reservations(text: str) -> tuple[Reservation, ...]:
    """The reservations in what `scontrol --oneliner show reservation` printed, with times as `%s`."""
    return tuple(
        Reservation(
            name,
            node_names(record.get("Nodes")),
            number(record.get("StartTime", "")),
            number(record.get("EndTime", "")),
            "MAINT" in record.get("Flags", "").split(","),
            cpus=float(cpus[1]) if (cpus := _CPUS.search(record.get("TRES", ""))) else inf,
            bounds_jobs=_bounds_jobs(record),
        )
        for name, record in read_records(text, "ReservationName").items()
    )


def _bounds_jobs(record: Mapping[str, str]) -> bool:
    """Whether jobs of a reservation may use nothing but its nodes in its time, and find no licences there."""
    flags = {flag.partition("=")[0] for flag in record.get("Flags", "").split(",")}
    return not (flags & _UNBOUND or record.get("Licenses"))


def read_partitions(text: str, settings: Mapping[str, str] = MappingProxyType({})) -> tuple[Partition, ...]:
    """The partitions in what `scontrol --oneliner show partition` printed, by the cluster's settings."""
    return tuple(
        Partition(
            name,
            longest_s=read_time_s(record.get("MaxTime", "")),
            min_nodes=int(number(record.get("MinNodes", ""))),
            max_nodes=_most(record.get("MaxNodes", "")),
            cpus_per_node=_most(record.get("MaxCPUsPerNode", "")),
            starts_jobs=record.get("State", "") in _STARTS_JOBS,
            qos=record.get("QoS", ""),
            accounts=_allowed(record.get("AllowAccounts", "")),
            groups=_allowed(record.get("AllowGroups", "")),
            denied_accounts=_allowed(record.get("DenyAccounts", "")) or frozenset(),
            allowed_qos=_allowed(record.get("AllowQos", "")),
            denied_qos=_allowed(record.get("DenyQos", "")) or frozenset(),
            defaults=_job_defaults(record, settings),
            exclusive_by=next(
                (key for key in ("ExclusiveUser", "ExclusiveTopo") if record.get(key) == "YES"), ""
            ),
        )
        for name, record in read_records(text, "PartitionName").items()
    )


def _most(count: str) -> float:
    return number(count) if count.isdecimal() else inf


def _job_defaults(partition: Mapping[str, str], settings: Mapping[str, str]) -> JobDefaults:
    """What jobs of a partition get that say nothing of it, by what it and the cluster say."""
    by_gpu = {
        name: number(value)
        for said in (settings, partition)
        for name, _, value in (part.partition("=") for part in said.get("JobDefaults", "").split(","))
    }
    names = ("DefMemPerCPU", "DefMemPerNode")
    own = any(partition.get(name, "").isdecimal() for name in names)
    memory = partition if own else settings
    per_cpu, per_node = (int(number(memory.get(name, ""))) for name in names)
    cpus, memory_mb = (int(by_gpu.get(name, 0.0)) for name in ("DefCpuPerGPU", "DefMemPerGPU"))
    return JobDefaults(cpus, memory_mb, per_cpu, per_node)


def _allowed(names: str) -> frozenset[str] | None:
    """The names in a list; None where it is about all, or missing."""
    return None if names in ("", "ALL") else frozenset(names.split(","))


def read_time_s(text: str) -> float:
    """A span like 2-12:00:00, 1:30:00 or 5:00 in seconds; inf if it is none, as UNLIMITED is."""
    found = _TIME.fullmatch(text)
    if found is None:
        return inf
    days, hours, minutes, seconds = (int(part or 0) for part in found.groups())
    return days * 86_400.0 + hours * 3600 + minutes * 60 + seconds


def read_licenses(text: str) -> dict[str, int]:
    """Free licences by name, but for those of reservations, from `scontrol --oneliner show license`."""
    return {
        name: max(0, int(number(record.get("Free", "")) - number(record.get("Reserved", ""))))
        for name, record in read_records(text, "LicenseName").items()
    }


def read_blocks(shown: Iterable[str], version: tuple[int, int]) -> BlockTopology:
    """The blocks in what `scontrol --oneliner show topology` printed of each topology in use.

    Args:
        shown: What it printed; lines of switches are passed over.
        version: Of Slurm.
    """
    block_of: dict[int, dict[str, str]] = {}
    for text in shown:
        for key in ("BlockName", "AggregatedBlock"):
            for name, record in read_records(text, key).items():
                if size := int(number(record.get("BlockSize", ""))):
                    nodes = node_names(record.get("Nodes"))
                    block_of.setdefault(size, {}).update(dict.fromkeys(nodes, name))
    return BlockTopology(block_of, version >= SEGMENTS_SINCE)


def number(text: str) -> float:
    """A whole number of Slurm's, a time written by `%s` for instance; 0 if it is none."""
    return float(text) if re.fullmatch("[0-9]{1,12}", text, re.ASCII) else 0.0
