"""Reads `squeue --json` of all versions into `SlurmJob`s.

Versions differ in how they write a value: 22.05 plainly, 23.02 and later numbers as `{set, infinite, number}`
and states as lists. `_plain` brings the later form into the plain one first; what follows reads one form.
A field that is missing or makes no sense gets its default, a job without a number is left out.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any

from dally.errors import InputError
from dally.hostlist import expand
from slurm_plugin.client.slurm import Hold, SlurmJob, SlurmUnavailableError, State

_STATES = {
    State.COMPLETING: "COMPLETING STAGE_OUT",
    State.SUSPENDED: "SUSPENDED",
    State.RUNNING: "RUNNING CONFIGURING RESIZING SIGNALING STOPPED POWER_UP_NODE",
    State.PENDING: "PENDING REQUEUED REQUEUE_FED REQUEUE_HOLD RESV_DEL_HOLD SPECIAL_EXIT",
    State.ENDED: "BOOT_FAIL CANCELLED COMPLETED DEADLINE FAILED LAUNCH_FAILED NODE_FAIL OUT_OF_MEMORY "
    "PREEMPTED REVOKED TIMEOUT",
}
"""Names by state; of several that a job has, the first found here decides."""

NONE = ("(null)", "N/A")
"""What squeue prints for no text; where a user writes it, it counts as none in JSON, too."""

RESERVATION_OVER = "ReservationDeleted"
"""The reason of a job that Slurm itself holds, as the reservation that it asked for is over."""

REQUEUED_HELD, LAUNCH_FAILED = "job requeued in held state", "launch failed requeued held"
"""How Slurm describes a job that was requeued to be held, until it is released."""

HOLDS = {"JobHeldUser": Hold.USER, "JobHeldAdmin": Hold.ADMIN, RESERVATION_OVER: Hold.ADMIN}
"""The hold that a pending job is under, by the reason that Slurm shows."""

_GPUS = re.compile(r"(?:^|,)gpu(?::[^:(),=]+)?[:=]([0-9]{1,9})", re.ASCII)
_TRES = (
    *("tres_per_job", "tres_per_node", "tres_per_task", "tres_per_socket"),
    *("cpus_per_tres", "memory_per_tres"),
)
_TASKS = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9})(?::([1-9][0-9]{0,8}))?)?", re.ASCII)
_COUNTED = re.compile(
    r"(?:^|,)(cpu|mem|node|gres/gpu(?::[^:(),=]+)?)=([0-9]{1,12}(?:\.[0-9]{1,3})?)([KMGTP]?)(?=,|$)", re.ASCII
)
_MEGABYTES = {"": 1, "K": 2.0**-10, "M": 1, "G": 2.0**10, "T": 2.0**20, "P": 2.0**30}
_MOST = 2**53
_SIGNAL_BITS = 0x7F

Record = Mapping[str, Any]

Records = Mapping[int, tuple[SlurmJob, ...]]
"""Jobs by the number that Slurm has for them: all tasks of an array that are alike have one."""


def read_jobs(text: str) -> tuple[SlurmJob, ...]:
    """The jobs in what `squeue --json` printed, array tasks one by one, by submission and number.

    Raises:
        SlurmUnavailableError: It is no list of jobs: squeue did not reach Slurm.
    """
    return in_order(read_records(text))


def in_order(records: Records) -> tuple[SlurmJob, ...]:
    """All jobs, array tasks one by one, by submission and number."""
    jobs = (job for jobs in records.values() for job in jobs)
    return tuple(sorted(jobs, key=lambda job: job.arrival))


def read_records(text: str) -> Records:
    """The same jobs by number.

    Raises:
        SlurmUnavailableError: It is no list of jobs: squeue did not reach Slurm.
    """
    try:
        document = json.loads(text, strict=False)
    except (ValueError, RecursionError) as error:
        raise SlurmUnavailableError(f"squeue printed no JSON but {text[:80]!r}") from error
    if not isinstance(document, dict) or not isinstance(document.get("jobs"), list):
        raise SlurmUnavailableError(f"squeue printed no list of jobs but {text[:80]!r}")
    if document.get("errors"):
        raise SlurmUnavailableError(f"squeue: {_first_error(document['errors'])}")
    records = (_plain(record) for record in document["jobs"] if isinstance(record, dict))
    return {_whole(record.get("job_id")): tuple(_jobs(record)) for record in records}


def _first_error(errors: Any) -> str:
    error = errors[0] if isinstance(errors, list) and errors else errors
    if isinstance(error, dict):
        words = (error.get("description"), error.get("error"), error.get("source"))
        return ": ".join(word for word in words if isinstance(word, str) and word) or "unknown error"
    return str(error)[:200]


def _plain(record: Record) -> Record:
    """A record of any version as 22.05 would write it."""
    plain = {key: _plain_value(value) for key, value in record.items()}
    state = record.get("job_state")
    if isinstance(state, list):
        plain["job_state"] = "+".join(word for word in state if isinstance(word, str))
    shared = record.get("shared")
    if isinstance(shared, list):
        plain["shared"] = next((word for word in ("none", "topo") if word in shared), None)
    exit_code = record.get("exit_code")
    if isinstance(exit_code, Mapping):
        code = _plain_value(exit_code.get("return_code"))
        killing = exit_code.get("signal")
        killed_by = _plain_value(killing.get("id")) if isinstance(killing, Mapping) else None
        plain["exit_code"] = (_whole(code) << 8) | (_whole(killed_by) & _SIGNAL_BITS)
    for key in _TRES:
        plain[key] = same_in_all_versions(_text(record.get(key)))
    return plain


def same_in_all_versions(tres: str) -> str:
    """Resources by name as 22.05 writes them, like `gres:gpu:8`; later versions write `gres/gpu=8`."""
    return tres.replace("gres/", "gres:").replace("=", ":")


def exit_code(status: int) -> int:
    """The exit code in a status as of wait(); as in a shell, 128 and more if a signal ended the script."""
    killed_by = status & _SIGNAL_BITS
    return 128 + killed_by if killed_by else status >> 8


def at_most(nodes: int, most: int) -> int:
    """Fewest nodes of a job of which Slurm shows so many: it may show more than the most that it asks for."""
    return min(nodes, most) if most else nodes


def _plain_value(value: Any) -> Any:
    if not isinstance(value, Mapping) or "number" not in value:
        return value
    return value["number"] if value.get("set", True) and not value.get("infinite") else None


def _jobs(record: Record) -> Iterator[SlurmJob]:
    """The job of a record, or each task of one that stands for many."""
    number = _number(record.get("job_id"))
    if number is None or number < 1:
        return
    array = _whole(record.get("array_job_id"))
    task = _number(record.get("array_task_id"))
    job = _job(record, f"{array}_{task:.0f}" if array and task is not None else f"{number:.0f}")
    tasks = _text(record.get("array_task_string")) if array and task is None else ""
    if not tasks:
        yield job
    for task_id in read_tasks(tasks):
        yield replace(job, job_id=f"{array}_{task_id}")


def read_tasks(text: str) -> Iterator[int]:
    """The numbers in a list of array tasks, like `1,3-9:2%4`; pieces that are none are left out."""
    for piece in text.partition("%")[0].strip("[]").split(","):
        found = _TASKS.fullmatch(piece.strip())
        if found:
            first, last, step = found.groups()
            yield from range(int(first), int(last or first) + 1, int(step or 1))


def _job(record: Record, job_id: str) -> SlurmJob:
    get = record.get
    state_name, reason = _text(get("job_state")), _text(get("state_reason"))
    state = job_state(state_name)
    nice = _whole(get("nice"))
    waits = state is State.PENDING
    nodes = node_names(_text(get("nodes")))
    max_nodes = _whole(get("max_nodes")) if waits else 0
    limit_min = _number(get("time_limit"))
    flags = get("flags")
    flags = flags if isinstance(flags, list) else []
    return SlurmJob(
        job_id=job_id,
        submit_s=_number(get("submit_time")) or 0.0,
        state=state,
        state_name=state_name,
        reason="" if reason == "None" else reason,
        hold=HOLDS.get(reason, Hold.NONE) if waits else Hold.NONE,
        requeued_held=waits and is_requeued_held(state_name, _text(get("state_description"))),
        user=_text(get("user_name")),
        account=_text(get("account")),
        job_name=_text(get("name")),
        qos=_text(get("qos")),
        nice=nice if nice < 2**31 else nice - 2**32,  # one below 0 comes without its sign, of 32 bits
        licenses=_text(get("licenses")),
        memory_per_node_mb=_whole(get("memory_per_node")),
        memory_per_cpu_mb=_whole(get("memory_per_cpu")),
        memory_per_gpu_mb=count_gpus(_text(get("memory_per_tres")).removeprefix("gres:")),
        partition=_text(get("partition")),
        comment=_text(get("comment")),
        admin_comment=_text(get("admin_comment")),
        min_nodes=at_most(_whole(get("node_count")), max_nodes) or 1,
        max_nodes=max_nodes,
        tasks=_whole(get("tasks")) or 1,
        tasks_per_node=_whole(get("tasks_per_node")) or None,
        # 22.05 does not show it: a waiting job asks for so many CPUs times its tasks.
        cpus_per_task=_whole(get("cpus_per_task"))
        or max(1, _whole(get("cpus")) // max(1, _whole(get("tasks")))),
        cpus_per_node=max(1, _whole(get("minimum_cpus_per_node"))),
        cpus_per_gpu=count_gpus(_text(get("cpus_per_tres")).removeprefix("gres:")),
        tmp_disk_mb=_whole(get("minimum_tmp_disk_per_node")),
        tres_per_job=_text(get("tres_per_job")),
        tres_per_node=_text(get("tres_per_node")),
        tres_per_task=_text(get("tres_per_task")),
        tres_per_socket=_text(get("tres_per_socket")),
        required_nodes=node_names(_text(get("required_nodes"))),
        excluded_nodes=node_names(_text(get("excluded_nodes"))),
        features=_text(get("features")),
        reservation=_text(get("resv_name")),
        exclusive=get("shared") == "none",
        switches=_whole(get("minimum_switches")),
        segment=_whole(get("segment_size")),
        spreads_segments="SPREAD_SEGMENTS" in flags,
        consolidates_segments="CONSOLIDATE_SEGMENTS" in flags,
        whole_blocks=get("shared") == "topo",
        heterogeneous=_whole(get("het_job_id")) > 0,
        dependency=_text(get("dependency")),
        begin_s=_number(get("eligible_time")) or 0.0,
        deadline_s=_number(get("deadline")) or 0.0,
        time_limit_s=limit_min * 60 if limit_min else None,
        start_s=None if waits else _number(get("start_time")) or None,
        nodes=() if waits else nodes,
        gpus={} if waits else _gpus_by_node(nodes, get("gres_detail")),
        requeue=get("requeue") is not False,
        restarts=_whole(get("restart_cnt")),
        exit_code=exit_code(_whole(get("exit_code"))),
        array_id=str(_whole(get("array_job_id")) or ""),
        array_throttle=_whole(get("array_max_tasks")),
        tres=read_tres(("" if waits else _text(get("tres_alloc_str"))) or _text(get("tres_req_str"))),
    )


@lru_cache(maxsize=1024)
def is_requeued_held(state_name: str, description: str) -> bool:
    """Whether a job was requeued to be held: by command, for its exit code, or as its prolog failed."""
    return description in (REQUEUED_HELD, LAUNCH_FAILED) or "SPECIAL_EXIT" in state_name


def job_state(name: str) -> State:
    """What a state in Slurm's words is to Dally; several words are joined by `+`."""
    words = set(name.split("+"))
    return next((state for state, names in _STATES.items() if words & set(names.split())), State.UNKNOWN)


def _gpus_by_node(nodes: tuple[str, ...], detail: Any) -> dict[str, int]:
    """GPUs by node: `gres_detail` has an entry for each node, in the order of the node list."""
    entries = detail if isinstance(detail, list) else []
    counts = {
        node: count_gpus(entry) for node, entry in zip(nodes, entries, strict=False) if isinstance(entry, str)
    }
    return {node: count for node, count in counts.items() if count}


def count_gpus(gres: str) -> int:
    """How many GPUs a list of resources names, like `gpu:h100:8(IDX:0-7),shard:4`."""
    return sum(map(int, _GPUS.findall(gres)))


@lru_cache(maxsize=4096)
def read_tres(text: str) -> Mapping[str, float]:
    """The resources that Dally counts in a list like `cpu=2,mem=100G,gres/gpu:a100=4`; memory in MB."""
    return {name: float(count) * _MEGABYTES[unit] for name, count, unit in _COUNTED.findall(text)}


def node_names(hostlist: str | None) -> tuple[str, ...]:
    """The names in a host list; users write some, so one that cannot be read has none."""
    try:
        return _expand(hostlist) if hostlist else ()
    except InputError:
        return ()


_expand: Callable[[str], tuple[str, ...]] = lru_cache(maxsize=4096)(expand)


def _text(value: Any) -> str:
    return value if isinstance(value, str) and value not in NONE else ""


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < _MOST:
        return None
    return value


def _whole(value: Any) -> int:
    return int(_number(value) or 0)
