"""Reads jobs from what squeue and scontrol print as text, which costs much less than their JSON.

Users write parts of it, and may write what looks like another field or another job. So squeue ends each of
these with a mark that nobody could know who wrote it. What scontrol says of a job is looked for behind all
that users write, which squeue told or which comes before a time that Slurm itself wrote.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from math import inf

from slurm_plugin.client.job_json import (
    HOLDS,
    LAUNCH_FAILED,
    NONE,
    REQUEUED_HELD,
    RESERVATION_OVER,
    at_most,
    count_gpus,
    exit_code,
    is_requeued_held,
    job_state,
    node_names,
    read_tasks,
    read_tres,
    same_in_all_versions,
)
from slurm_plugin.client.node_text import number, read_time_s
from slurm_plugin.client.slurm import HOLDS_GPUS, Hold, SlurmJob, SlurmUnavailableError, State

_COLUMNS = (
    *("JobID", "ArrayJobID", "ArrayTaskID", "HetJobID", "SubmitTime", "State", "Reason", "UserName"),
    *(
        "Account",
        "Name",
        "QOS",
        "Licenses",
        "MinMemory",
        "mem-per-tres",
        "Partition",
        "Comment",
        "admin_comment",
    ),
    *("NumNodes", "NumTasks", "ntpernode", "cpus-per-task", "MinCpus", "cpus-per-tres", "tres-per-job"),
    *("MinTmpDisk", "Deadline", "AllocNodes"),
    *("tres-per-node", "tres-per-task", "tres-per-socket", "ReqNodes", "Feature", "Reservation"),
    *("OverSubscribe", "Exclusive", "SegmentSize", "ReqSwitch", "Dependency", "EligibleTime", "TimeLimit"),
    *("StartTime", "NodeList", "Requeue", "RestartCnt", "exit_code", "nice", "tres-alloc"),
)
"""What `squeue --Format` is asked for: all of a job but what `JobDetails` holds.

Columns that a version lacks are empty, and squeue ends with 0: SegmentSize before 25.05, Exclusive before
26.05, from which on OverSubscribe is NO of nearly all jobs.
"""

_JOB_ID, _STATE, _START_TIME = map(_COLUMNS.index, ("JobID", "State", "StartTime"))

_NO_VALUE = 2**32 - 2
"""From here on a number of Slurm's stands for none, as for the tasks of a job cancelled while it waited."""

_NUL = GENUINE = "\0"
"""Ends C's strings, so that none that Slurm prints has one inside: it stands for a mark or a key of ours."""

_SIGNED = re.compile(r"-?\d{1,10}", re.ASCII)
_WORD = re.compile("[A-Za-z]+")
_GUESSES = {REQUEUED_HELD: "JobHeldUser", LAUNCH_FAILED: "JobHeldUser"}
"""The reason behind a description, unless a person has held the job since."""

_KNOWN = (
    ("Nodes required for job are DOWN", "", "Resources"),
    ("Reservation ", " was deleted", RESERVATION_OVER),
)
"""Descriptions by how they begin and end, and the only reason that they stand for."""

_OF_ARRAY = re.compile(
    r"(?:ArrayJobId=(\d+) (?:ArrayTaskId=\S+ )?(?:ArrayTaskThrottle=(\d+) )?)?"
    r"(?:HetJobId=\d+ HetJobOffset=\d+ )?"
)
_AFTER_NAME = re.compile(r"(?:SLUID=\S+ )?(?:HetJobIdSet=\S+ )?UserId=")
_NODES = re.compile(r" ExcNodeList=(\S*) NodeList=(\S*) ")
_MOST_NODES = re.compile(r" NumNodes=\d+(?:-(\d+))? ")
_GPUS = re.compile(r" Nodes=(\S+) CPU_IDs=\S* Mem=\d+ GRES=(\S*)")
_BY_CPU = re.compile(r"\S+ MinMemoryCPU=")

Line = Mapping[str, str]
"""A job as squeue shows it: text by column."""


@dataclass(frozen=True, slots=True)
class JobDetails:
    """What squeue prints of a job in JSON only, and scontrol as text.

    Attributes:
        array_id: Number of its array, also of what is left of one without tasks; empty if none.
        array_throttle: Most tasks of the array that may run at once; 0 for no limit.
        excluded_nodes: Nodes that it must not use, expanded.
        memory_per_cpu: Its memory is that of each CPU, not of each node.
        gpus: GPUs that it holds, by node.
        max_nodes: Most nodes that it asks for, while it waits; 0 if it says nothing.
        spreads_segments: Each of its segments must be in another block.
        consolidates_segments: They must lie close together.
    """

    array_id: str = ""
    array_throttle: int = 0
    excluded_nodes: tuple[str, ...] = ()
    memory_per_cpu: bool = False
    gpus: Mapping[str, int] = field(default_factory=dict)
    max_nodes: int = 0
    spreads_segments: bool = False
    consolidates_segments: bool = False

    @classmethod
    def of(cls, job: SlurmJob) -> "JobDetails":
        """Those of a job that was read from JSON."""
        per_cpu = job.memory_per_cpu_mb > 0
        return cls(
            job.array_id,
            job.array_throttle,
            job.excluded_nodes,
            per_cpu,
            job.gpus,
            job.max_nodes,
            job.spreads_segments,
            job.consolidates_segments,
        )


def squeue_format(key: str) -> str:
    """The value of `--Format` with which squeue prints what `JobLines` reads.

    Args:
        key: What nobody can guess, in letters, digits, - and _; each field ends with a mark of it.
    """
    *others, last = _COLUMNS
    return ",".join((*(f"{column}:Q{key}" for column in others), f"{last}:E{key}"))


class JobLines:
    """Reads look after look what squeue prints; what says what it said at the last look is the same object.

    Most jobs do. They are known by their whole text, so that of these nothing is taken apart.
    """

    def __init__(self) -> None:
        self._of_text: dict[str, tuple[int, Line]] = {}
        self._lines: dict[int, Line] = {}

    def read(self, text: str, key: str) -> dict[int, Line]:
        """The jobs, by number; all waiting tasks of an array that never ran have one, the array's.

        When Slurm expects to start a waiting job is left out: it changes all the time.

        Args:
            text: What squeue printed.
            key: Of its marks.

        Raises:
            SlurmUnavailableError: It is no list of jobs.
        """
        *jobs, rest = text.split(f"E{key}\n")
        if rest.strip():
            raise SlurmUnavailableError(f"squeue printed no jobs but {text[:80]!r}")
        before, self._of_text = self._of_text, {}
        for job in jobs:
            said = job.replace(f"Q{key}", _NUL)
            found = before.get(said) or self._read(said)
            if found is not None:
                self._of_text[said] = found
        lines = dict(self._of_text.values())
        if len(lines) < len(self._of_text):
            lines |= dict(self._arrays(lines))
        self._lines = lines
        return lines

    def _arrays(self, lines: Mapping[int, Line]) -> Iterator[tuple[int, Line]]:
        """A line for each array of which tasks have a line each: they have one number, the array's."""
        tasks: dict[int, list[str]] = {}
        for job, line in self._of_text.values():
            if _text(line["ArrayTaskID"]):
                tasks.setdefault(job, []).append(line["ArrayTaskID"])
        for job, some in tasks.items():
            line, before = {**lines[job], "ArrayTaskID": ",".join(some)}, self._lines.get(job)
            yield job, before if before is not None and before == line else line

    def _read(self, said: str) -> tuple[int, Line] | None:
        """A job by its number; none if it has no number.

        Raises:
            SlurmUnavailableError: It has other columns than were asked for.
        """
        values = said.split(_NUL)
        if len(values) != len(_COLUMNS):
            raise SlurmUnavailableError(f"squeue printed no job but {said[:80]!r}")
        values[_JOB_ID] = values[_JOB_ID].strip()
        if job_state(values[_STATE]) is State.PENDING:
            values[_START_TIME] = ""
        if not values[_JOB_ID].isdecimal():
            return None
        number = int(values[_JOB_ID])
        before = self._lines.get(number)
        if before is not None and [*before.values()] == values:
            return number, before
        return number, dict(zip(_COLUMNS, values, strict=True))


def read_details(said: str, line: Line) -> JobDetails | None:
    """What `scontrol --oneliner --details show job` said of a job beyond its line; None if it shows none.

    A job that has other nodes than in its line has moved on since, which counts as none, too.
    """
    _, _, said = said.partition(f"JobId={line['JobID']} ")
    head, _, said = said.partition(f"JobName={line['Name']} ")
    array, is_named = _OF_ARRAY.fullmatch(head), _AFTER_NAME.match(said)
    # Account, WCKey and more that users name stand before the time; the host names itself as it submits.
    _, _, said = said.partition(f" SubmitTime={GENUINE}")
    _, _, said = said.partition(f" AllocNode:Sid={line['AllocNodes']}:")
    ours, _, rest = said.partition(" MinCPUsNode=")  # from there on users write again
    nodes = _NODES.search(ours)
    if array is None or not is_named or nodes is None or _text(nodes[2]) != _text(line["NodeList"]):
        return None
    most = _MOST_NODES.search(ours, nodes.end() - 1)
    on_nodes = ((name, count_gpus(gres)) for names, gres in _GPUS.findall(ours) for name in node_names(names))
    return JobDetails(
        array_id=array[1] or "",
        array_throttle=int(array[2] or 0),
        excluded_nodes=node_names(_text(nodes[1])),
        memory_per_cpu=_BY_CPU.match(rest) is not None,
        gpus={name: count for name, count in on_nodes if count},
        max_nodes=int(most[1] or 0) if most else 0,
        # Who writes this elsewhere, as in a comment, only has less choice of nodes.
        spreads_segments=" SpreadSegments=Yes " in rest,
        consolidates_segments=" ConsolidateSegments=Yes " in rest,
    )


@lru_cache(maxsize=1024)
def shown_reason(text: str) -> tuple[str, bool]:
    """Why a job waits, and whether that is certain: squeue may show a description in place of the reason."""
    word = text.partition(",")[0]
    if _WORD.fullmatch(word):
        return "" if word == "None" else word, True
    for start, end, reason in _KNOWN:
        if text.startswith(start) and text.endswith(end):
            return reason, True
    return _GUESSES.get(text, ""), not text


def jobs_of(line: Line, details: JobDetails, reason: str) -> tuple[SlurmJob, ...]:
    """The job of a line, or each task of one that stands for many, as `read_jobs` would show it.

    Args:
        line: What squeue says of it.
        details: What it does not say.
        reason: Why it waits, in Slurm's word.
    """
    tasks = _text(line["ArrayTaskID"])
    job = _job(line, details, reason)
    if not tasks:
        return (job,)
    array_id = line["ArrayJobID"]
    return tuple(replace(job, job_id=f"{array_id}_{task}", array_id=array_id) for task in read_tasks(tasks))


def _job(line: Line, details: JobDetails, reason: str) -> SlurmJob:
    def text(column: str) -> str:
        return _text(line[column])

    def whole(column: str) -> int:
        count = int(number(line[column]))
        return count if count < _NO_VALUE else 0

    def asked(column: str) -> str:
        return same_in_all_versions(text(column))

    state = job_state(line["State"])
    waits = state is State.PENDING
    max_nodes = details.max_nodes if waits else 0
    memory_mb = int(number(line["MinMemory"].removesuffix("M")))
    limit_s = read_time_s(line["TimeLimit"])
    return SlurmJob(
        job_id=line["JobID"],
        submit_s=number(line["SubmitTime"]),
        state=state,
        state_name=line["State"],
        reason=reason,
        hold=HOLDS.get(reason, Hold.NONE) if waits else Hold.NONE,
        requeued_held=waits and is_requeued_held(line["State"], line["Reason"]),
        user=text("UserName"),
        account=text("Account"),
        job_name=text("Name"),
        qos=text("QOS"),
        nice=int(line["nice"]) if _SIGNED.fullmatch(line["nice"]) else 0,
        licenses=text("Licenses"),
        memory_per_node_mb=0 if details.memory_per_cpu else memory_mb,
        memory_per_cpu_mb=memory_mb if details.memory_per_cpu else 0,
        memory_per_gpu_mb=count_gpus(asked("mem-per-tres").removeprefix("gres:")),
        partition=text("Partition"),
        comment=text("Comment"),
        admin_comment=text("admin_comment"),
        min_nodes=at_most(int(number(line["NumNodes"].partition("-")[0])), max_nodes) or 1,
        max_nodes=max_nodes,
        tasks=whole("NumTasks") or 1,
        tasks_per_node=whole("ntpernode") or None,
        cpus_per_task=whole("cpus-per-task") or 1,
        cpus_per_node=max(1, whole("MinCpus")),
        cpus_per_gpu=count_gpus(asked("cpus-per-tres").removeprefix("gres:")),
        tmp_disk_mb=int(number(line["MinTmpDisk"].removesuffix("M"))),
        tres_per_job=asked("tres-per-job"),
        tres_per_node=asked("tres-per-node"),
        tres_per_task=asked("tres-per-task"),
        tres_per_socket=asked("tres-per-socket"),
        required_nodes=node_names(text("ReqNodes")),
        excluded_nodes=details.excluded_nodes,
        features=text("Feature"),
        reservation=text("Reservation"),
        exclusive=line["Exclusive"] == "NODE" if line["Exclusive"] else line["OverSubscribe"] == "NO",
        switches=whole("ReqSwitch"),
        segment=whole("SegmentSize"),
        spreads_segments=details.spreads_segments,
        consolidates_segments=details.consolidates_segments,
        whole_blocks="TOPO" in (line["OverSubscribe"], line["Exclusive"]),
        heterogeneous=bool(text("HetJobID")),
        dependency=text("Dependency"),
        begin_s=number(line["EligibleTime"]),
        deadline_s=number(line["Deadline"]),
        time_limit_s=limit_s if 0 < limit_s < inf else None,
        start_s=None if waits else number(line["StartTime"]) or None,
        nodes=() if waits else node_names(text("NodeList")),
        gpus=details.gpus if state in HOLDS_GPUS else {},
        requeue=line["Requeue"] != "0",
        restarts=whole("RestartCnt"),
        exit_code=exit_code(_status(line["exit_code"])),
        array_id=details.array_id,
        array_throttle=details.array_throttle,
        tres=read_tres(text("tres-alloc")),
    )


def _status(text: str) -> int:
    """A status as of wait(), of which newer versions print the exit code and the signal, like `0:9`."""
    code, both, signal = text.partition(":")
    return int(number(code)) << 8 | int(number(signal)) if both else int(number(code))


def _text(value: str) -> str:
    return "" if value in NONE else value
