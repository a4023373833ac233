"""The configuration files of a private Slurm cluster on one machine: fake GPUs, several slurmd, racks."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from dally.cluster.toml_writer import write_toml
from dally.cluster.topology import Link, Machine, Topology
from dally.cluster.topology_build import Attached, Switch, build_topology
from dally.errors import InputError
from dally.hostlist import fold
from dally.hosts.network_spec import CORE, CORE_ADDRESS, NetworkSpec
from dally.words import plural

PRELOADED = "preloaded"
"""In the work folder, where nodes have processes that have loaded torch already, their sockets."""

_GPU_TYPE = re.compile("[A-Za-z][A-Za-z0-9_-]*")
NODE_MEMORY_MB = 64_000
SPINE = "spine"
_CPU_MEMORY_MB = 100
_LOOPBACK = "127.0.0.1"
_UNSHAPED_BPS = 10e9
"""About what two cores carry where no rate is set (docs/local-network.md)."""

_HOP_S = 5e-6
"""Of crossing one link: a round trip in a rack takes 29 us, between racks 43 us (docs/local-network.md)."""
_LONGEST_SOCKET = 107
_CGROUPS_CAN_BE_OFF = (23, 11)
_BLOCKS_SINCE = (23, 11)
_LUA = {"job_submit.lua": "JobSubmitPlugins=lua", "cli_filter.lua": "CliFilterPlugins=lua"}


class TopologyPlugin(StrEnum):
    """What slurmctld is told of the network."""

    TREE = "topology/tree"
    BLOCK = "topology/block"
    NONE = ""
    """No plugin is named, and there is no topology.conf."""


@dataclass(frozen=True, slots=True)
class LocalClusterSpec:
    """A local cluster: a Slurm cluster whose daemons all run on this machine.

    Attributes:
        folder: Its folder; short, as sockets lie in it, and readable by the users who submit.
        nodes: Number of nodes, n1, n2 and so on.
        racks: Number of racks, rack0, rack1 and so on, under one spine; nodes are dealt out evenly, in order.
        network: Where every node has a network of its own: its hosts are then the nodes, in its racks under
            one core, and `nodes` and `racks` say nothing. None: all nodes are at 127.0.0.1.
        gpus: GPUs of each node; nothing is behind them.
        gpu_types: Their type, one for all nodes or one for each rack.
        cpus: CPUs of each node, whatever the machine has.
        topology: How slurmctld is told of the racks.
        partitions: Partitions, all over all nodes; the first is the default.
        extra_conf: Lines to put at the end of slurm.conf; they win over those above.
        lua_files: Texts by file name, to lie beside slurm.conf; job_submit.lua and cli_filter.lua are used.
        user: User whom the daemons run as; root if jobs are to be of several users.
        port: Port of the controller; the nodes take the next ones. 0: free ones are found.
        preload: Each node keeps a process that has loaded torch, for training commands to start from: the
            nodes share this machine's cores, which would be busy with loading it at every start.

    Raises:
        InputError: A number is out of range or the folder's path too long.
    """

    folder: Path
    nodes: int = 8
    racks: int = 4
    gpus: int = 8
    gpu_types: tuple[str, ...] = ("h100",)
    cpus: int = 16
    topology: TopologyPlugin = TopologyPlugin.TREE
    partitions: tuple[str, ...] = ("gpu", "other")
    extra_conf: tuple[str, ...] = ()
    lua_files: Mapping[str, str] = field(default_factory=dict)
    user: str = "root"
    port: int = 0
    network: NetworkSpec | None = None
    preload: bool = False

    def __post_init__(self) -> None:
        if not 1 <= self.racks <= self.nodes:
            raise InputError(f"racks is {self.racks}, must be 1 to the number of nodes, {self.nodes}")
        if self.cpus < 2 or self.cpus % 2:
            raise InputError(f"cpus is {self.cpus}, must be an even number, for two sockets")
        if self.gpus < 1:
            raise InputError(f"gpus is {self.gpus}, must be 1 or more")
        if len(self.gpu_types) not in (1, len(self.racks_of())):
            raise InputError(
                f"{plural(len(self.gpu_types), 'GPU type')} given for "
                f"{plural(len(self.racks_of()), 'rack')}, must be one for all or one for each"
            )
        for gpu_type in self.gpu_types:
            if not _GPU_TYPE.fullmatch(gpu_type):
                raise InputError(f"GPU type is {gpu_type!r}, must be a letter, then letters, digits, _ and -")
        if len(str(self.socket)) > _LONGEST_SOCKET:
            raise InputError(f"the cluster's folder {self.folder} is too long a path for a socket")

    @property
    def socket(self) -> Path:
        """Munge's socket."""
        return self.folder / "munge" / "socket"

    @property
    def conf(self) -> Path:
        """The path of slurm.conf."""
        return self.folder / "etc" / "slurm.conf"

    @property
    def work(self) -> Path:
        """The folder in which its commands run and anybody may write."""
        return self.folder / "work"

    @property
    def preloaded(self) -> Path:
        """The folder of the sockets at which nodes start training commands."""
        return self.work / PRELOADED

    @property
    def cluster_file(self) -> Path:
        """The file that describes the cluster to Dally, with the true links; only with a network."""
        return self.folder / "etc" / "cluster.toml"

    def node_names(self) -> tuple[str, ...]:
        """Names of the nodes, in order."""
        return tuple(name for names in self.racks_of().values() for name in names)

    def racks_of(self) -> dict[str, tuple[str, ...]]:
        """The names of the racks in order, each with those of its nodes."""
        if self.network:
            return self.network.hosts_of
        ends = [self.nodes * rack // self.racks for rack in range(self.racks + 1)]
        return {
            f"rack{rack}": tuple(f"n{number + 1}" for number in range(ends[rack], ends[rack + 1]))
            for rack in range(self.racks)
        }

    def types_of(self) -> dict[str, str]:
        """The type of each node's GPUs, by node."""
        racks = self.racks_of()
        types = self.gpu_types if len(self.gpu_types) == len(racks) else self.gpu_types * len(racks)
        return {node: kind for nodes, kind in zip(racks.values(), types, strict=True) for node in nodes}

    def address(self, node: str) -> str:
        """A node's address."""
        return self.network.address(node) if self.network else _LOOPBACK


def conf_files(spec: LocalClusterSpec, version: tuple[int, int]) -> dict[str, str]:
    """The texts of all files of the cluster's configuration folder, by name, for a version of Slurm.

    Raises:
        InputError: This version does not have the topology plugin.
    """
    if spec.topology is TopologyPlugin.BLOCK and version < _BLOCKS_SINCE:
        raise InputError(f"Slurm {version[0]}.{version[1]:02} has no {spec.topology}; 23.11 and newer have")
    files = {"cgroup.conf": "CgroupPlugin=disabled\n"} if version >= _CGROUPS_CAN_BE_OFF else {}
    if spec.network:
        # Older versions look for a mounted cgroup unless told which kind, and a host has none.
        files.setdefault("cgroup.conf", "CgroupPlugin=cgroup/v1\n")
        files[spec.cluster_file.name] = write_toml(local_topology(spec))
    return {
        **files,
        "slurm.conf": slurm_conf(spec),
        "gres.conf": gres_conf(spec),
        **({"topology.conf": topology_conf(spec)} if spec.topology else {}),
        **spec.lua_files,
    }


def settings_conf(spec: LocalClusterSpec, address: str) -> str:
    """The lines of slurm.conf that say nothing of nodes and partitions, with the address of slurmctld."""
    settings = _SLURM_CONF.format(
        folder=spec.folder,
        address=address,
        port=spec.port,
        user=spec.user,
        socket=spec.socket,
        memory=_CPU_MEMORY_MB,
    )
    return settings + (f"TopologyPlugin={spec.topology}\n" if spec.topology else "")


def slurm_conf(spec: LocalClusterSpec) -> str:
    """The text of slurm.conf."""
    lines = [line for name, line in _LUA.items() if name in spec.lua_files]
    port_of = {name: str(spec.port + number) for number, name in enumerate(spec.node_names(), 1)}
    # As few lines as can be: each command reads them all, and a line for each of 1,024 nodes takes it 0.05 s.
    alike: dict[tuple[str, str], list[str]] = {}
    for node, gpu_type in spec.types_of().items():
        alike.setdefault((gpu_type, spec.address(node)), []).append(node)
    for (gpu_type, address), nodes in alike.items():
        ports = fold([port_of[name] for name in nodes])
        lines.append(
            f"NodeName={fold(nodes)} NodeHostname=localhost NodeAddr={address} Port={ports} "
            f"CPUs={spec.cpus} Boards=1 SocketsPerBoard=2 CoresPerSocket={spec.cpus // 2} ThreadsPerCore=1 "
            f"RealMemory={NODE_MEMORY_MB} Gres=gpu:{gpu_type}:{spec.gpus} Feature={gpu_type} State=UNKNOWN"
        )
    for name in spec.partitions:
        default = "YES" if name == spec.partitions[0] else "NO"
        lines.append(
            f"PartitionName={name} Nodes=ALL Default={default} MaxTime=INFINITE State=UP OverSubscribe=NO"
        )
    settings = settings_conf(spec, CORE_ADDRESS if spec.network else _LOOPBACK)
    return "\n".join([settings + "\n".join([*lines, *spec.extra_conf]), ""])


def gres_conf(spec: LocalClusterSpec) -> str:
    """The text of gres.conf; each GPU is a file of its own, as Slurm refuses GPUs without."""
    numbers = f"[0-{spec.gpus - 1}]" if spec.gpus > 1 else "0"
    nodes_of: dict[str, list[str]] = {}
    for node, gpu_type in spec.types_of().items():
        nodes_of.setdefault(gpu_type, []).append(node)
    lines = (
        f"NodeName={fold(nodes)} Name=gpu Type={gpu_type} File={spec.folder}/dev/nvidia{numbers}"
        for gpu_type, nodes in nodes_of.items()
    )
    return "\n".join(["AutoDetect=off", *lines, ""])


def topology_conf(spec: LocalClusterSpec) -> str:
    """The text of topology.conf: racks under one switch, or each a block."""
    racks = spec.racks_of()
    if spec.topology is TopologyPlugin.BLOCK:
        blocks = [f"BlockName={rack} Nodes={fold(nodes)}" for rack, nodes in racks.items()]
        return "\n".join([*blocks, f"BlockSizes={min(map(len, racks.values()))}"]) + "\n"
    return tree_conf(racks, CORE if spec.network else SPINE)


def tree_conf(racks: Mapping[str, Sequence[str]], top: str) -> str:
    """The text of topology.conf for racks, by name with their nodes, under one switch."""
    lines = [f"SwitchName={rack} Nodes={fold(tuple(nodes))}" for rack, nodes in racks.items()]
    return "\n".join([*lines, f"SwitchName={top} Switches={fold(tuple(racks))}", ""])


def local_topology(spec: LocalClusterSpec) -> Topology:
    """A local cluster with a network as Dally sees it: its racks under one switch, with the links it has.

    The GPUs of a node talk over its loopback, which nothing shapes.

    Raises:
        InputError: The cluster has no network.
    """
    if not spec.network:
        raise InputError("the cluster has no network, so nothing tells its links")
    attached, switches, types = [], [Switch(CORE, None)], spec.types_of()
    for (rack, nodes), entry in zip(spec.racks_of().items(), spec.network.racks, strict=True):
        switches.append(Switch(rack, CORE, Link(entry.uplink_rate_bps or _UNSHAPED_BPS, _HOP_S)))
        for node in nodes:
            machine = Machine(node, spec.gpus, types[node], Link(_UNSHAPED_BPS, _HOP_S))
            attached.append(Attached(machine, rack, Link(entry.host_rate_bps or _UNSHAPED_BPS, _HOP_S)))
    return build_topology("lab", attached, switches)


_SLURM_CONF = """\
ClusterName=lab
SlurmctldHost=localhost({address})
SlurmctldPort={port}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket={socket},cred_expire=5
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool/%n
SlurmctldPidFile={folder}/run/slurmctld.pid
SlurmdPidFile={folder}/run/slurmd-%n.pid
SlurmctldLogFile={folder}/log/slurmctld.log
SlurmdLogFile={folder}/log/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
JobCompType=jobcomp/filetxt
JobCompLoc={folder}/log/jobcomp.txt
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
DefMemPerCPU={memory}
SchedulerType=sched/backfill
SchedulerParameters=bf_interval=1,sched_interval=1,batch_sched_delay=0,sched_min_interval=0,default_queue_depth=1000
GresTypes=gpu
SlurmdParameters=config_overrides
MpiDefault=none
SwitchType=switch/none
ReturnToService=2
SlurmdTimeout=30
KillWait=5
MinJobAge=300
JobRequeue=1
"""
"""The settings of every private cluster.

`cred_expire` shortens what Slurm lets a requeued job wait, `config_overrides` lets a small machine claim more
CPUs than it has. SchedulerParameters lets a released job start after 0.4 s instead of 2.1 s, and by
`sched_interval` one whose begin has come or whose dependency is met, for which Slurm looks once in a minute.
"""
