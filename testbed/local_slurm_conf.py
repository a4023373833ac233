"""The configuration files of a private Slurm cluster on one machine: fake GPUs, several slurmd, racks."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from dally.errors import InputError

NODE_MEMORY_MB = 64_000
_CPU_MEMORY_MB = 100
_LONGEST_SOCKET = 107
_CGROUPS_CAN_BE_OFF = (23, 11)
_LUA = {"job_submit.lua": "JobSubmitPlugins=lua", "cli_filter.lua": "CliFilterPlugins=lua"}


@dataclass(frozen=True, slots=True)
class LabSpec:
    """A lab: a Slurm cluster whose daemons all run on this machine.

    Attributes:
        folder: Its folder; short, as sockets lie in it, and readable by the users who submit.
        nodes: Number of nodes, n1, n2 and so on.
        racks: Number of racks, rack0, rack1 and so on, under one spine; nodes are dealt out evenly, in order.
        gpus: GPUs of each node, of type h100; nothing is behind them.
        cpus: CPUs of each node, whatever the machine has.
        partitions: Partitions, all over all nodes; the first is the default.
        extra_conf: Lines to put at the end of slurm.conf; they win over those above.
        lua_files: Texts by file name, to lie beside slurm.conf; job_submit.lua and cli_filter.lua are used.
        user: User whom the daemons run as; root if jobs are to be of several users.
        port: Port of the controller; the nodes take the next ones. 0: free ones are found.

    Raises:
        InputError: A number is out of range or the folder's path too long.
    """

    folder: Path
    nodes: int = 8
    racks: int = 4
    gpus: int = 8
    cpus: int = 16
    partitions: tuple[str, ...] = ("gpu", "other")
    extra_conf: tuple[str, ...] = ()
    lua_files: Mapping[str, str] = field(default_factory=dict)
    user: str = "root"
    port: int = 0

    def __post_init__(self) -> None:
        if not 1 <= self.racks <= self.nodes:
            raise InputError(f"racks is {self.racks}, must be 1 to the number of nodes, {self.nodes}")
        if self.cpus < 2 or self.cpus % 2:
            raise InputError(f"cpus is {self.cpus}, must be an even number, for two sockets")
        if self.gpus < 1:
            raise InputError(f"gpus is {self.gpus}, must be 1 or more")
        if len(str(self.socket)) > _LONGEST_SOCKET:
            raise InputError(f"the lab's folder {self.folder} is too long a path for a socket")

    @property
    def socket(self) -> Path:
        """Munge's socket."""
        return self.folder / "munge" / "socket"

    @property
    def conf(self) -> Path:
        """Its slurm.conf."""
        return self.folder / "etc" / "slurm.conf"

    def node_names(self) -> tuple[str, ...]:
        """Names of the nodes, in order."""
        return tuple(f"n{number}" for number in range(1, self.nodes + 1))


def conf_files(spec: LabSpec, version: tuple[int, int]) -> dict[str, str]:
    """The texts of all files of the lab's configuration folder, by name, for a version of Slurm."""
    cgroup = {"cgroup.conf": "CgroupPlugin=disabled\n"} if version >= _CGROUPS_CAN_BE_OFF else {}
    return {
        **cgroup,
        "slurm.conf": slurm_conf(spec),
        "gres.conf": gres_conf(spec),
        "topology.conf": topology_conf(spec),
        **spec.lua_files,
    }


def slurm_conf(spec: LabSpec) -> str:
    """The text of slurm.conf."""
    settings = _SLURM_CONF.format(
        folder=spec.folder, port=spec.port, user=spec.user, socket=spec.socket, memory=_CPU_MEMORY_MB
    )
    lines = [
        *(line for name, line in _LUA.items() if name in spec.lua_files),
        *(_node(spec, number) for number in range(1, spec.nodes + 1)),
        *(_partition(spec, name) for name in spec.partitions),
        *spec.extra_conf,
    ]
    return settings + "\n".join(lines) + "\n"


def gres_conf(spec: LabSpec) -> str:
    """The text of gres.conf; each GPU is a file of its own, as Slurm refuses GPUs without."""
    files = f"{spec.folder}/dev/nvidia{_range(0, spec.gpus - 1)}"
    nodes = f"n{_range(1, spec.nodes)}"
    return f"AutoDetect=off\nNodeName={nodes} Name=gpu Type=h100 File={files}\n"


def topology_conf(spec: LabSpec) -> str:
    """The text of topology.conf: racks under a spine."""
    ends = [spec.nodes * rack // spec.racks for rack in range(spec.racks + 1)]
    racks = [
        f"SwitchName=rack{rack} Nodes=n{_range(ends[rack] + 1, ends[rack + 1])}" for rack in range(spec.racks)
    ]
    return "\n".join([*racks, f"SwitchName=spine Switches=rack{_range(0, spec.racks - 1)}"]) + "\n"


def _node(spec: LabSpec, number: int) -> str:
    return (
        f"NodeName=n{number} NodeHostname=localhost NodeAddr=127.0.0.1 Port={spec.port + number}"
        f" CPUs={spec.cpus} Boards=1 SocketsPerBoard=2 CoresPerSocket={spec.cpus // 2} ThreadsPerCore=1"
        f" RealMemory={NODE_MEMORY_MB} Gres=gpu:h100:{spec.gpus} Feature=h100 State=UNKNOWN"
    )


def _partition(spec: LabSpec, name: str) -> str:
    default = "YES" if name == spec.partitions[0] else "NO"
    return f"PartitionName={name} Nodes=ALL Default={default} MaxTime=INFINITE State=UP OverSubscribe=NO"


def _range(first: int, last: int) -> str:
    return str(first) if first == last else f"[{first}-{last}]"


_SLURM_CONF = """\
ClusterName=lab
SlurmctldHost=localhost(127.0.0.1)
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
SchedulerParameters=bf_interval=1,batch_sched_delay=0,sched_min_interval=0,default_queue_depth=1000
GresTypes=gpu
SlurmdParameters=config_overrides
MpiDefault=none
SwitchType=switch/none
ReturnToService=2
SlurmdTimeout=30
KillWait=5
MinJobAge=300
JobRequeue=1
TopologyPlugin=topology/tree
"""
