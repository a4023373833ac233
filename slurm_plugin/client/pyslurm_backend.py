"""Slurm through pyslurm 25.11: what it does well without a process per question, the rest by commands.

pyslurm shows and does less than Slurm's commands, so a second backend stands in, the command line, for:

- What a job asks for and how it ended: pyslurm loses the count of `--gpus` and its relatives, takes 128 off
  exit codes from 128 on, and fails on a comment that is not UTF-8. So commands read all jobs when one is new
  or has ended, and once a minute; in between pyslurm says what changes by itself or by our orders.
- `ReleaseOnNodes` on a task of an array, with another size or time limit, or where the number of nodes or the
  reservation has to be taken back: pyslurm takes a job's own number only, and cannot change the node count
  or empty a field.
- `Rehold` (pyslurm's hold as the user writes through a null pointer), `ReleaseToSlurm` (it cannot empty a
  field), `Requeue` (no `Incomplete`), `Signal` (no tasks of arrays, and old errors are reported again).
"""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any

from dally.jobs.job import Job
from slurm_plugin.client.block_topology import BlockTopology
from slurm_plugin.client.job_json import HOLDS, job_state, node_names, read_tasks
from slurm_plugin.client.node_text import is_available
from slurm_plugin.client.scontrol import run_checked
from slurm_plugin.client.slurm import (
    HOLDS_GPUS,
    Hold,
    Order,
    Partition,
    ReleaseOnNodes,
    ReleaseToSlurm,
    Reservation,
    Reserve,
    ResourceLimit,
    Slurm,
    SlurmJob,
    SlurmNode,
    SlurmUnavailableError,
    State,
)

REREAD_S = 60.0
"""Commands read all jobs at least this often: people change what a job asks for while it waits."""

_FENCE_MINUTES = 1
_LAST_SYSTEM_ERROR = 999
"""Slurm numbers its own errors from 1000; below are the system's, so slurmctld has not answered."""

_NO_ANSWER = (
    "SLURM_COMMUNICATIONS_CONNECTION_ERROR",
    "SLURM_COMMUNICATIONS_SEND_ERROR",
    "SLURM_COMMUNICATIONS_RECEIVE_ERROR",
    "SLURM_COMMUNICATIONS_SHUTDOWN_ERROR",
    "SLURMCTLD_COMMUNICATIONS_CONNECTION_ERROR",
    "SLURMCTLD_COMMUNICATIONS_SEND_ERROR",
    "SLURMCTLD_COMMUNICATIONS_RECEIVE_ERROR",
    "SLURMCTLD_COMMUNICATIONS_SHUTDOWN_ERROR",
    "SLURM_PROTOCOL_AUTHENTICATION_ERROR",
    "SLURM_PROTOCOL_SOCKET_IMPL_TIMEOUT",
    "SLURM_PROTOCOL_SOCKET_ZERO_BYTES_SENT",
    "ESLURM_PROTOCOL_INCOMPLETE_PACKET",
    "ESLURM_AUTH_CRED_INVALID",
)

_REQUEUED = "job requeued in held state"
"""A description, which pyslurm shows in place of the reason, JobHeldUser."""

_Key = tuple[str, float]


class PyslurmSlurm:
    """The `Slurm` interface on the module pyslurm.

    A request blocks the whole process until slurmctld answers or its MessageTimeout is over. Long task lists
    of arrays come cut unless SLURM_BITSTR_LEN is 0 in the environment.

    Args:
        module: The module pyslurm, version 25.11.
        commands: The backend for what pyslurm cannot do.
        clock: Seconds since 1970.
    """

    def __init__(self, module: Any, commands: Slurm, clock: Callable[[], float] = time.time) -> None:
        self._pyslurm = module
        self._commands = commands
        self._clock = clock
        self._no_answer = {getattr(module, name) for name in _NO_ANSWER}
        self._known: dict[_Key, SlurmJob] = {}
        self._read_at_s = float("-inf")

    def jobs(self) -> tuple[SlurmJob, ...]:
        """All jobs, in the order of the command line; one that ends between two questions is left out."""
        records = {key: record for record in self._load("Jobs") for key in _keys(record)}
        age_s = self._clock() - self._read_at_s
        if not 0 <= age_s < REREAD_S or any(self._is_news(key, record) for key, record in records.items()):
            self._known = {(job.job_id, job.submit_s): job for job in self._commands.jobs()}
            self._read_at_s = self._clock()
        return tuple(_refreshed(job, records[key]) for key, job in self._known.items() if key in records)

    def _is_news(self, key: _Key, record: Any) -> bool:
        job = self._known.get(key)
        return job is None or (_state(record) is State.ENDED and job.state is not State.ENDED)

    def nodes(self) -> tuple[SlurmNode, ...]:
        """All nodes; GPUs in use are counted from jobs, as nodes show them only where they are accounted."""
        records = list(self._load("Nodes"))
        used: Counter[str] = Counter()
        for job in self._load("Jobs"):
            if _state(job) in HOLDS_GPUS:
                used.update(_gpus_by_node(job))
        return tuple(_node(record, used[record.name]) for record in records)

    def reservations(self) -> tuple[Reservation, ...]:
        """All reservations, those to come included."""
        return tuple(
            Reservation(record.name, node_names(record.nodes), record.start_time or 0, record.end_time or 0)
            for record in self._load("Reservations")
        )

    def partitions(self) -> tuple[Partition, ...]:
        """All partitions, by commands: they are asked for rarely."""
        return self._commands.partitions()

    def limits(self) -> tuple[ResourceLimit, ...]:
        """The limits, by commands."""
        return self._commands.limits()

    def blocks(self, partitions: Sequence[str]) -> BlockTopology:
        """The blocks, by commands."""
        return self._commands.blocks(partitions)

    def licenses(self) -> Mapping[str, int]:
        """Free licences by name, by commands: few jobs ask for any."""
        return self._commands.licenses()

    def ended_jobs(self, partitions: Sequence[str], days: int) -> tuple[Job, ...]:
        """The jobs that ended in the last days, by commands: they are asked for once."""
        return self._commands.ended_jobs(partitions, days)

    def run(self, orders: Sequence[Order]) -> tuple[str | None, ...]:
        """Carry out orders, in this order: by pyslurm what it can, else with its neighbours by commands.

        One that holds something that is no number and no name is refused unsent. After one that changes a
        time limit commands read all jobs anew, as pyslurm is not asked for that.
        """
        if any(
            isinstance(order, ReleaseOnNodes | ReleaseToSlurm) and order.limit_min is not None
            for order in orders
        ):
            self._read_at_s = float("-inf")
        return run_checked(orders, self._run_all)

    def _run_all(self, orders: Sequence[Order]) -> list[str | None]:
        placing = any(isinstance(order, ReleaseOnNodes) for order in orders)
        jobs = {str(job.id): job for job in self._load("Jobs")} if placing else {}
        answers: list[str | None] = []
        for by_pyslurm, neighbours in groupby(orders, key=lambda order: _is_for_pyslurm(order, jobs)):
            some = tuple(neighbours)
            answers += map(self._carry_out, some) if by_pyslurm else self._commands.run(some)
        return answers

    def _carry_out(self, order: Order) -> str | None:
        try:
            if isinstance(order, ReleaseOnNodes):
                self._place(order)
            elif isinstance(order, Reserve):
                self._fence(order)
        except self._pyslurm.RPCError as error:
            if error.errno in self._no_answer or 0 < error.errno <= _LAST_SYSTEM_ERROR:
                raise _unavailable(error) from error
            return _one_line(error)
        return None

    def _place(self, order: ReleaseOnNodes) -> None:
        """Two requests, not one: a job whose nodes are refused must not be released."""
        changes = self._pyslurm.JobSubmitDescription(
            required_nodes=list(order.nodes),
            begin_time=int(self._clock()),
            reservations=order.reservation,
        )
        job = self._pyslurm.Job(int(order.job_id))
        job.modify(changes)
        job.release()

    def _fence(self, order: Reserve) -> None:
        """Create the fence; `create` may report the error of an earlier call, so an error is looked into."""
        flags = self._pyslurm.ReservationFlags
        reservation = self._pyslurm.Reservation(
            order.name,
            nodes=",".join(order.nodes),
            users=[order.user],
            start_time=int(self._clock()),
            duration=_FENCE_MINUTES,
            flags=flags.IGNORE_RUNNING_JOBS | flags.OVERLAP | flags.FLEX | flags.NO_JOB_HOLD_AFTER_END,
        )
        try:
            reservation.create()
        except self._pyslurm.RPCError:
            found = self._load("Reservations")
            shown = [(fence.name, set(node_names(fence.nodes)), fence.users) for fence in found]
            if (order.name, set(order.nodes), [order.user]) not in shown:
                raise

    def _load(self, kind: str) -> Iterable[Any]:
        try:
            return tuple(getattr(self._pyslurm, kind).load().values())
        except self._pyslurm.RPCError as error:
            raise _unavailable(error) from error


def _unavailable(error: Exception) -> SlurmUnavailableError:
    return SlurmUnavailableError(f"Slurm did not answer: {_one_line(error)}")


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__


def _is_for_pyslurm(order: Order, jobs: Mapping[str, Any]) -> bool:
    """Whether pyslurm can do it as asked; tasks of arrays are not among `jobs`, by number of their own."""
    if isinstance(order, Reserve):
        return True
    job = jobs.get(order.job_id) if isinstance(order, ReleaseOnNodes) else None
    return (
        job is not None
        and isinstance(order, ReleaseOnNodes)
        and order.tasks is None
        and order.limit_min is None
        and job.num_nodes == job.max_nodes == len(order.nodes)
        and (order.reservation is not None or job.reservation is None)
    )


def _keys(record: Any) -> tuple[_Key, ...]:
    """Number and submission of each job that a record stands for: the waiting tasks of an array share one."""
    submit_s = float(record.submit_time or 0)
    if record.array_id is None:
        return ((str(record.id), submit_s),)
    if record.array_tasks_waiting is None:
        tasks: Iterable[int] = (record.array_task_id or 0,)  # pyslurm shows task 0 as None
    else:
        tasks = read_tasks(record.array_tasks_waiting)
    return tuple((f"{record.array_id}_{task}", submit_s) for task in tasks)


def _refreshed(job: SlurmJob, record: Any) -> SlurmJob:
    """A job as commands showed it, with what pyslurm knows better by now."""
    state = _state(record)
    waits = state is State.PENDING
    reason = {None: "", "None": "", _REQUEUED: "JobHeldUser"}.get(record.state_reason, record.state_reason)
    return replace(
        job,
        state=state,
        state_name=record.state or "",
        reason=reason if waits else "",
        hold=HOLDS.get(reason, Hold.NONE) if waits else Hold.NONE,
        partition=record.partition or "",
        min_nodes=record.num_nodes or 1,
        required_nodes=node_names(record.required_nodes),
        reservation=record.reservation or "",
        dependency=job.dependency if record.dependencies else "",  # pyslurm loses kinds it does not know
        begin_s=float(record.eligible_time or 0),
        start_s=None if waits or not record.start_time else float(record.start_time),
        nodes=() if waits else node_names(record.allocated_nodes),
        gpus=_gpus_by_node(record) if state in HOLDS_GPUS else {},
        restarts=record.requeue_count,
    )


def _state(record: Any) -> State:
    return job_state(record.state or "")


def _gpus_by_node(record: Any) -> dict[str, int]:
    layout = record.get_resource_layout_per_node()
    gpus = {node: _gpus(resources["gres"]) for node, resources in layout.items()}
    return {node: count for node, count in gpus.items() if count}


def _gpus(gres: Mapping[str, Any]) -> int:
    """GPUs in `{"gpu:h100": 8}` or, with the devices, `{"gpu": {"count": 2, "indexes": "0-1"}}`."""
    return sum(
        count["count"] if isinstance(count, dict) else count
        for name, count in gres.items()
        if name == "gpu" or name.startswith("gpu:")
    )


def _node(record: Any, gpus_used: int) -> SlurmNode:
    state = record.state or ""
    return SlurmNode(
        name=record.name,
        available=is_available(state),
        state_name=state.lower(),
        gpus=_gpus(record.configured_gres),
        gpus_used=gpus_used,
        partitions=tuple(record.partitions),
        memory_mb=record.real_memory or 0,
        features=frozenset(record.active_features or ()),
        cpus=record.effective_cpus or record.total_cpus or 0,
        cpus_used=record.allocated_cpus or 0,
        memory_used_mb=record.allocated_memory or 0,
    )
