"""Every input format: a small sound document, what lies beside it, and how Dally reads it."""

import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from click.testing import CliRunner

from analysis.report.runs import load_runs
from dally.commands import main
from dally.commands.why import event_text
from dally.errors import DallyError
from dally.hosts.hosts_file import read_hosts_file
from dally.jobs.job import Job
from dally.profiles.files import load_profiles
from dally.testing.worlds import World, racks
from profiler.launch.slurm_nodes import parse_nodes
from simulator.sweep.plan import read_plan
from slurm_plugin.client.job_json import read_jobs
from slurm_plugin.client.node_text import read_nodes, read_reservations, read_settings
from slurm_plugin.client.scontrol import answers
from slurm_plugin.config import load_config
from slurm_plugin.controller.journal import NAME, heartbeat_s, read_events, read_managed_jobs
from slurm_plugin.service.cli import clock
from tests.analysis.report.folders import simple_run
from tests.dally.recording.recorded import record
from tests.slurm_plugin.worlds import FakeSite

Read = Callable[[Path], object]
PROFILE = Path(__file__).parents[2] / "dally" / "profiles" / "sets" / "dally" / "resnet50.json"
RECORDED = Path(__file__).parents[1] / "slurm_plugin" / "recorded"


@dataclass(frozen=True)
class Format:
    """One input format.

    Attributes:
        file: The name of the document's file.
        read: Reads it; all that may go wrong is a `DallyError`.
        files: A sound document and what must lie beside it, by name; what Dally writes is made in a folder.
    """

    file: str
    read: Read
    files: Callable[[Path], Mapping[str, bytes]]


def given(file: str, document: bytes, read: Read, **beside: bytes) -> Format:
    """A format whose sound document stands here."""
    files = {**beside, file: document}
    return Format(file, read, lambda _: files)


class CommandRefusedError(DallyError):
    """A command that ended with its one line."""


def command(*argv: str) -> None:
    """Run a `dally` command in this process.

    Raises:
        RefusedError: It said that something is wrong.
        Exception: Whatever it did not catch.
    """
    result = CliRunner().invoke(main, argv)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    if result.exit_code == 1 and result.stderr:
        raise CommandRefusedError(result.stderr.removesuffix("\n"))


def text(path: Path) -> str:
    """What a command of Slurm printed, as it is taken in."""
    return path.read_text(encoding="utf-8", errors="replace")


def _cluster(path: Path) -> None:
    command("cluster", str(path), "--json")


def _cluster_folder(path: Path) -> None:
    command("cluster", str(path.parent), "--json")


def _trace(path: Path) -> None:
    command("trace", str(path), "--json")


SLURM_CONF = b"""\
ClusterName=lab # the lab
TopologyPlugin=topology/tree
NodeName=DEFAULT CPUs=16 RealMemory=64000
NodeName=n[1-3],m[01-02] Gres=gpu:h100:8(S:0-1),nic:2 State=UNKNOWN
NodeName=n4 Gres=gpu:4 \\
  Feature="a b"
PartitionName=main Nodes=ALL
"""
GRES_CONF = b"""\
AutoDetect=off
NodeName=n[1-3],m[01-02] Name=gpu Type=h100 File=/dev/nvidia[0-7]
NodeName=n4 Name=gpu Type=a100 Count=4
Name=nic Count=2
"""
TOPOLOGY_CONF = b"""\
SwitchName=leaf1 Nodes=n[1-3] LinkSpeed=100
SwitchName=leaf2 Nodes=n4,m[01-02]
SwitchName=top Switches=leaf[1-2]
"""
BLOCKS_CONF = b"""\
BlockName=b1 Nodes=n[1-2]
BlockName=b2 Nodes=n[3-4]
BlockName=b3 Nodes=m[01-02]
BlockSizes=2,4
"""
TOPOLOGY_YAML = b"""\
- topology: tree
  cluster_default: true
  tree:
    switches:
      - {switch: top, children: "leaf[1-2]"}
      - {switch: leaf1, nodes: "n[1-3]"}
      - switch: leaf2
        nodes: n4,m[01-02]
- topology: blocks
  cluster_default: false
  block:
    block_sizes: [2, 4]
    blocks:
      - block: b1
        nodes: n[1-2]
- topology: flat
  flat: true
"""
REGULAR_TOML = b"""\
name = "small"
[[levels]]
name = "machine"
count = 4
gpus = 8
slots = 2
slot_fabric = { bandwidth_bps = 4.8e12, latency_s = 0 }
fabric = { bandwidth_bps = 4.8e12, latency_s = 500e-9 }
uplink = { bandwidth_bps = 1.28e13, latency_s = 2.5e-6 }
[[levels]]
name = "rack"
count = 2
prefix = "r"
uplink = { bandwidth_bps = 1.024e14, latency_s = 50e-6 }
"""
EXPLICIT_TOML = b"""\
top_level = "core"
[[levels]]
name = "machine"
gpus = 4
fabric = { bandwidth_bps = 1e12, latency_s = 0 }
uplink = { bandwidth_bps = 1e11, latency_s = 1e-6 }
[[levels]]
name = "rack"
uplink = { bandwidth_bps = 1e11, latency_s = 1e-6 }
[[machines]]
names = "n[1-4]"
gpu_type = "h100"
[[switches]]
name = "rack1"
machines = "n[1-2]"
[[switches]]
name = "rack2"
machines = "n[3-4]"
[[switches]]
name = "top"
switches = "rack[1-2]"
"""
LINGJUN = b"ip,DSW,PSW,ASW\n10.0.0.1,D1,P1,A1\n10.0.0.2,D1,P1,A2\n10.0.0.3,D1,P2,A1\n"
PHILLY_HOSTS = b"machineId, number of GPUs, single GPU mem\nm1, 8, 24GB\nm2, 2, 12GB\nm3, 8, 24GB\n"
COMMON_CSV = b"""\
job_id,submit_s,gpus,duration_s,user,group,model,status,gpu_type,kind,min_gpus,max_gpus,time_limit_s,preemptible
a,0,4,900.5,ann,lab,vgg11,COMPLETED,h100,rigid,,,3600,yes
b,10,2,60,bob,"l,ab",,FAILED,,elastic,1,8,,no
"""
SACCT = b"""\
JobIDRaw|User|Account|Submit|Start|End|ElapsedRaw|State|AllocTRES|ReqTRES|TimelimitRaw|Partition|JobName
10|ann|lab|2024-05-01T10:00:00|2024-05-01T10:05:00|x|3600|COMPLETED|gres/gpu:a100=4,gres/gpu=4|gres/gpu=4|60|p|a
10.batch|||2024-05-01T10:00:00|2024-05-01T10:05:00|x|3600|COMPLETED|cpu=8,gres/gpu=4|||p|batch
9|b|lab|2024-05-01T09:00:00|2024-05-01T09:00:30|x|60|CANCELLED by 7|gres/gpu=2|gres/gpu:a100=2|UNLIMITED|p|a|b
"""
SWF = b"""\
; Version: 2.2
  1   10 5 100  8 -1 -1 16 600 -1 1  3  2 -1 1 -1 -1 -1
  2    4 0  50 -1 -1 -1  4  -1 -1 0 -1 -1 -1 1 -1 -1 -1
"""
HELIOS = b"""\
job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue
7,u1,vcA,8,32,1,FAILED,2020-06-09 18:41:27,2020-06-09 18:41:27,2020-06-09 18:45:36,249,0
6,u2,vcB,1,4,1,COMPLETED,2020-06-09 18:41:01,2020-06-09 18:41:01,2020-06-10 04:55:09,36848,0
"""
PHILLY_JOBS = json.dumps(
    [
        {
            "status": "Pass",
            "vc": "v",
            "jobid": job_id,
            "attempts": [
                {
                    "start_time": "2017-10-07 01:00:00",
                    "end_time": "2017-10-07 01:01:00",
                    "detail": [{"ip": "m1", "gpus": ["gpu0", "gpu1"]}],
                }
            ],
            "submitted_time": "2017-10-07 00:59:00",
            "user": "u",
        }
        for job_id in ("a1", "a2")
    ],
    indent=0,
).encode()
SWEEP = b"""\
policies = ["fifo", "dally:timers=manual|no-wait"]
seeds = [0, 1]
trace = "batch:jobs=20|30"
cluster = ["demo"]
contention = true
[slurm]
queue = "cpu"
[[settings]]
name = "slow"
congestion = [0.5, 1]
[[settings]]
name = "fast"
restart_s = 5
"""
DALLY_TOML = b"""\
partitions = ["gpu", "long"]
cluster = "/etc/slurm"
policy = "srsf-delay"
poll_s = 2.5
backoff_s = 60
max_requeues = 20
listen = "127.0.0.1:9341"
url = "http://127.0.0.1:9341"
record = "/var/lib/dally/facts.jsonl"
"""
HOSTS_TOML = b"""\
known_hosts = "known_hosts"
[[jumps]]
name = "gate"
address = "gate.example.org"
port = 2222
[[hosts]]
name = "n1"
address = "10.0.0.1"
user = "ann"
rack = "r1"
gpus = 2
jump = "gate"
[[hosts]]
name = "n2"
rack = "r2"
key = "~/.ssh/id"
"""
SINFO = b"n1|h1|idle|main*\nn2|h2|mix|main*\nn2|h2|mix|other\nn3|h3|resv|other\n"
SQUEUE = b"n2|2026-11-23T10:00:00\nn[2-3]|NONE\n"
RESERVATIONS = (
    b"ReservationName=lab StartTime=2026-11-23T00:00:00 Nodes=n[3,5] Users=alice State=ACTIVE\n"
    b"ReservationName=seats StartTime=2026-11-23T00:00:00 Nodes=(null) Licenses=matlab:2 State=ACTIVE\n"
)


def _slurm_nodes(
    sinfo: str = SINFO.decode(), squeue: str = SQUEUE.decode(), reserved: str = RESERVATIONS.decode()
) -> object:
    """What `profile-models slurm` makes of Slurm's nodes, jobs and reservations."""
    return parse_nodes(sinfo, squeue, reserved, None, ("lab",))


def _of_slurm(version: str) -> dict[str, Format]:
    """What Slurm of one version printed."""
    folder = RECORDED / version

    def jobs(_: Path) -> Mapping[str, bytes]:
        """Only some jobs, as a whole list takes long to read."""
        document = json.loads((folder / "squeue.json").read_text(encoding="utf-8"))
        running = [job for job in document["jobs"] if job["gres_detail"]][:1]
        document["jobs"] = [*running, *document["jobs"][:1], *document["jobs"][-1:]]
        return {"out": json.dumps(document, indent=0).encode()}

    def printed(name: str) -> Callable[[Path], Mapping[str, bytes]]:
        return lambda _: {"out": (folder / name).read_bytes()}

    return {
        f"squeue {version}": Format("out", _jobs, jobs),
        f"scontrol show node {version}": Format("out", _nodes, printed("scontrol-node.txt")),
        f"scontrol show reservation {version}": Format(
            "out", _reservations, printed("scontrol-reservation.txt")
        ),
    }


def _jobs(path: Path) -> None:
    read_jobs(text(path))


def _nodes(path: Path) -> None:
    read_nodes(text(path))


def _reservations(path: Path) -> None:
    read_reservations(text(path))
    read_settings(text(path))
    answers(text(path), 1, "mark")


def _journal(folder: Path) -> Mapping[str, bytes]:
    """A journal of a controller with a job that runs and one that waits."""
    site = FakeSite(folder)
    for _ in range(2):
        site.submit(nodes=4, gpus_per_node=8, run_time_s=100.0)
    site.run_to(20.0)
    site.controller._journal.close()
    return {NAME: (folder / NAME).read_bytes()}


def _all_readers(path: Path) -> None:
    """The commands that read a journal beside its controller, then the next controller."""
    heartbeat_s(path.parent)
    read_managed_jobs(path.parent)
    for job_id in ("1", None):
        with suppress(DallyError):
            for event in read_events(path.parent, job_id):
                event_text(event, "1", clock)
    site = FakeSite(path.parent)
    try:
        site.run_to(1.0)
    finally:
        site.controller._journal.close()


def _recording(folder: Path) -> Mapping[str, bytes]:
    jobs = tuple(Job(f"j{number}", 100.0 * number, 4, 500.0) for number in range(2))
    record("fifo", World(racks([[4, 4]]), jobs, ()), folder / "facts.jsonl")
    return {"facts.jsonl": (folder / "facts.jsonl").read_bytes()}


def _run_folder(folder: Path) -> Mapping[str, bytes]:
    simple_run(folder / "run", "fifo", [0.0, 50.0])
    return {path.name: path.read_bytes() for path in (folder / "run").iterdir()}


def _run(path: Path) -> None:
    with suppress(DallyError):
        command("why", "job-1", "--run", str(path.parent))
    for run in load_runs([path.parent]):
        list(run.events())
        str(run.summary)


_SLURM = {"slurm.conf": SLURM_CONF, "gres.conf": GRES_CONF, "topology.conf": TOPOLOGY_CONF}

FORMATS: Mapping[str, Format] = {
    "slurm.conf": given("slurm.conf", SLURM_CONF, _cluster_folder, **_SLURM),
    "gres.conf": given("gres.conf", GRES_CONF, _cluster_folder, **_SLURM),
    "topology.conf": given("topology.conf", TOPOLOGY_CONF, _cluster_folder, **_SLURM),
    "topology.conf of blocks": given("topology.conf", BLOCKS_CONF, _cluster_folder, **_SLURM),
    "topology.yaml": given("topology.yaml", TOPOLOGY_YAML, _cluster_folder, **_SLURM),
    "regular cluster TOML": given("cluster.toml", REGULAR_TOML, _cluster),
    "explicit cluster TOML": given("cluster.toml", EXPLICIT_TOML, _cluster),
    "Lingjun table": given("table.csv", LINGJUN, _cluster),
    "Philly machines": given("table.csv", PHILLY_HOSTS, _cluster),
    "common CSV": given("trace", COMMON_CSV, _trace),
    "sacct": given("trace", SACCT, _trace),
    "SWF": given("trace", SWF, _trace),
    "Helios": given("trace", HELIOS, _trace),
    "Philly jobs": given("trace", PHILLY_JOBS, _trace),
    "sweep file": given("sweep.toml", SWEEP, read_plan),
    "dally.toml": given("dally.toml", DALLY_TOML, load_config),
    "hosts file": given("hosts.toml", HOSTS_TOML, read_hosts_file),
    "profile": given("profile.json", PROFILE.read_bytes(), load_profiles),
    "sinfo": given("out", SINFO, lambda path: _slurm_nodes(sinfo=text(path))),
    "squeue's nodes": given("out", SQUEUE, lambda path: _slurm_nodes(squeue=text(path))),
    "reservations": given("out", RESERVATIONS, lambda path: _slurm_nodes(reserved=text(path))),
    **_of_slurm("22.05"),
    **_of_slurm("24.11"),
    "journal": Format(NAME, _all_readers, _journal),
    "recording": Format("facts.jsonl", lambda path: command("replay", str(path)), _recording),
    "run.json": Format("run.json", _run, _run_folder),
    "events.jsonl": Format("events.jsonl", _run, _run_folder),
    "jobs.csv": Format("jobs.csv", _run, _run_folder),
}
