"""A Slurm of which squeue and scontrol print what a test says, as text and as the records of JSON."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from dally.hostlist import fold
from slurm_plugin.client.changed_jobs import ChangedJobs
from slurm_plugin.client.job_json import REQUEUED_HELD, in_order
from slurm_plugin.client.job_text import GENUINE
from slurm_plugin.client.slurm import SlurmJob, State


@dataclass
class TextSlurm:
    """The cluster: jobs by the number that Slurm has for them, alike tasks of an array under one.

    Attributes:
        version: Which Slurm it is.
        records: The jobs.
        descriptions: What squeue shows in place of a reason, by number.
        lines: How often squeue was asked.
        shown: The numbers that scontrol was asked for, by call.
        full: How often all jobs were read by JSON.
        moves: What jobs become as soon as squeue has answered, once.
    """

    version: tuple[int, int] = (22, 5)
    records: dict[int, tuple[SlurmJob, ...]] = field(default_factory=dict)
    descriptions: dict[int, str] = field(default_factory=dict)
    lines: int = 0
    shown: list[list[int]] = field(default_factory=list)
    full: int = 0
    now_s: float = 1000.0
    moves: list[tuple[int, tuple[SlurmJob, ...]]] = field(default_factory=list)

    def changed_jobs(self) -> ChangedJobs:
        """What is tried."""
        return ChangedJobs(self.squeue, self.show_jobs, self.read_all, lambda: self.now_s)

    def jobs(self) -> tuple[SlurmJob, ...]:
        """All jobs as they are now."""
        return in_order(self.records)

    def put(self, *jobs: SlurmJob) -> None:
        """Show a job, in place of what it was before."""
        for job in jobs:
            self.records[_number(job)] = (job,)

    def squeue(self, columns: str, answered: Callable[[], object]) -> str:
        """What squeue prints in this form."""
        self.lines += 1
        rows = (
            "".join(self._fields(number, job, columns))
            for number, jobs in self.records.items()
            for job in jobs
        )
        text = "".join(f"{row}\n" for row in rows)
        for number, jobs in self.moves:
            self.records[number] = jobs
            if not jobs:
                del self.records[number]
        self.moves = []
        answered()
        return text

    def show_jobs(self, numbers: Sequence[int]) -> list[str]:
        """What scontrol says of each."""
        self.shown.append([*numbers])
        found = [self.records.get(number) for number in numbers]  # some are asked for while squeue answers
        return [_shown(number, jobs) if jobs else "" for number, jobs in zip(numbers, found, strict=True)]

    def read_all(self) -> dict[int, tuple[SlurmJob, ...]]:
        """The records of JSON."""
        self.full += 1
        return dict(self.records)

    def _fields(self, number: int, job: SlurmJob, columns: str) -> list[str]:
        values = _columns(number, job, self.version)
        if job.requeued_held:
            values["Reason"] = REQUEUED_HELD
        if number in self.descriptions:
            values["Reason"] = self.descriptions[number]
        wanted = [column.split(":") for column in columns.split(",")]
        return [values[name] + suffix for name, suffix in wanted]


def _number(job: SlurmJob) -> int:
    array, _, task = job.job_id.partition("_")
    return int(array) + (1000 * (1 + int(task)) if task else 0)


def _columns(number: int, job: SlurmJob, version: tuple[int, int]) -> dict[str, str]:
    task = job.job_id.partition("_")[2] if job.array_id else ""
    shares = "TOPO" if job.whole_blocks else ""
    status = job.exit_code - 128 if job.exit_code > 128 else job.exit_code << 8
    waits = job.state is State.PENDING
    return {
        "JobID": str(number),
        "ArrayJobID": job.array_id or str(number),
        "ArrayTaskID": task or "N/A",
        "HetJobID": "1" if job.heterogeneous else "N/A",
        "SubmitTime": f"{job.submit_s:.0f}",
        "State": job.state_name,
        "Reason": job.reason or "None",
        "UserName": job.user,
        "Account": job.account or "(null)",
        "Name": job.job_name,
        "QOS": job.qos or "(null)",
        "Licenses": job.licenses or "(null)",
        "MinMemory": f"{job.memory_per_node_mb or job.memory_per_cpu_mb}M",
        "mem-per-tres": f"gres:gpu:{job.memory_per_gpu_mb}" if job.memory_per_gpu_mb else "N/A",
        "Partition": job.partition,
        "Comment": job.comment or "(null)",
        "admin_comment": job.admin_comment or "(null)",
        "NumNodes": str(job.min_nodes),
        "NumTasks": "4294967294" if job.state_name == "CANCELLED" else str(job.tasks),
        "ntpernode": str(job.tasks_per_node or 0),
        "cpus-per-task": str(job.cpus_per_task),
        "MinCpus": str(job.cpus_per_node),
        "AllocNodes": "head",
        "Deadline": f"{job.deadline_s:.0f}" if job.deadline_s else "N/A",
        "MinTmpDisk": f"{job.tmp_disk_mb}M" if job.tmp_disk_mb else "0",
        "cpus-per-tres": f"gres:gpu:{job.cpus_per_gpu}" if job.cpus_per_gpu else "N/A",
        "tres-per-job": job.tres_per_job or "N/A",
        "tres-per-node": job.tres_per_node or "N/A",
        "tres-per-task": job.tres_per_task or "N/A",
        "tres-per-socket": job.tres_per_socket or "N/A",
        "ReqNodes": ",".join(job.required_nodes),
        "Feature": job.features or "(null)",
        "Reservation": job.reservation or "(null)",
        "OverSubscribe": shares or ("NO" if job.exclusive else "OK") if version < (26, 5) else "NO",
        "Exclusive": shares or ("NODE" if job.exclusive else "NO") if version >= (26, 5) else "",
        "SegmentSize": str(job.segment or "N/A") if version >= (25, 5) else "",
        "ReqSwitch": str(job.switches),
        "Dependency": job.dependency or "(null)",
        "EligibleTime": f"{job.begin_s:.0f}" if job.begin_s else "N/A",
        "TimeLimit": _limit(job.time_limit_s),
        "StartTime": "N/A" if waits else f"{job.start_s or 0:.0f}",
        "NodeList": fold(job.nodes) if job.nodes else "",
        "Requeue": "1" if job.requeue else "0",
        "RestartCnt": str(job.restarts),
        "exit_code": str(status) if version < (23, 2) else f"{status >> 8}:{status & 0x7F}",
        "nice": str(job.nice),
        "tres-alloc": ",".join(f"{name}={count:g}" for name, count in job.tres.items()) or "N/A",
    }


def _limit(limit_s: float | None) -> str:
    if limit_s is None:
        return "UNLIMITED"
    minutes, seconds = divmod(int(limit_s), 60)
    return f"{minutes // 1440}-{minutes // 60 % 24:02}:{minutes % 60:02}:{seconds:02}"


def _shown(number: int, jobs: Sequence[SlurmJob]) -> str:
    job = jobs[0]
    array = ""
    if job.array_id:
        tasks = ",".join(each.job_id.partition("_")[2] for each in jobs)
        array = f"ArrayJobId={job.array_id} ArrayTaskId={tasks} "
        array += f"ArrayTaskThrottle={job.array_throttle} " if job.array_throttle else ""
    together = "HetJobIdSet=1-2 " if job.heterogeneous else ""
    array += "HetJobId=1 HetJobOffset=0 " if job.heterogeneous else ""
    segments = "SpreadSegments=Yes " if job.spreads_segments else ""
    segments += "ConsolidateSegments=Yes " if job.consolidates_segments else ""
    kind = "MinMemoryCPU" if job.memory_per_cpu_mb else "MinMemoryNode"
    excluded, nodes = ",".join(job.excluded_nodes) or "(null)", fold(job.nodes) if job.nodes else ""
    gpus = "".join(
        f"   Nodes={name} CPU_IDs=0-1 Mem=0 GRES=gpu:h100:{n}(IDX:0-{n})" for name, n in job.gpus.items()
    )
    count = f"{job.min_nodes}-{job.max_nodes}" if job.max_nodes else f"{job.min_nodes}"
    return (
        f"scontrol: show job {number}\nJobId={number} {array}JobName={job.job_name} {together}"
        f"UserId={job.user}(7) Account={job.account} SubmitTime={GENUINE}1 Partition=p AllocNode:Sid=head:9 "
        f"ReqNodeList=(null) "
        f"ExcNodeList={excluded} NodeList={nodes} NumNodes={count} JOB_GRES=gpu:1{gpus} "
        f"MinCPUsNode=1 {kind}=1M Features=(null) WorkDir=/ {segments}TresPerNode=\n"
    )
