"""Slurm through pyslurm 25.11: what it does well without a process per question, the rest by commands.

pyslurm shows and does less than Slurm's commands, so a second backend stands in, the command line, for:

- What a job asks for and how it ended: pyslurm loses the count of `--gpus` and its relatives, takes 128 off
  exit codes from 128 on, and fails on a comment that is not UTF-8. So commands read all jobs when one is new,
  has ended or asks for something else, and every ten seconds; in between pyslurm says what changes by itself
  or by our orders.
- Why a job waits where Slurm has a description of it, and who holds it then: pyslurm shows the description.
- Which task of an array a record is: pyslurm shows None for task 0, and for what is left of an array.
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
from typing import Any, Protocol

from slurm_plugin.client.fewest_nodes import with_fewest_nodes
from slurm_plugin.client.forwarding import ForwardingSlurm
from slurm_plugin.client.job_json import (
    HOLDS,
    Records,
    at_most,
    in_order,
    is_requeued_held,
    job_state,
    node_names,
)
from slurm_plugin.client.job_text import shown_reason
from slurm_plugin.client.node_text import is_available, is_blocked
from slurm_plugin.client.orders import Order, ReleaseOnNodes, ReleaseToSlurm, Reserve
from slurm_plugin.client.scontrol import run_checked
from slurm_plugin.client.slurm import (
    HOLDS_GPUS,
    Hold,
    Look,
    Reservation,
    Slurm,
    SlurmJob,
    SlurmNode,
    SlurmUnavailableError,
    State,
)

REREAD_S = 10.0
"""Commands read all jobs at least this often: people change what a job asks for while it waits."""

_ASKED = ("time_limit", "qos", "account", "excluded_nodes", "nice")
"""What pyslurm shows of what a job asks for and no start changes: if it changes, commands read all jobs."""

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

_DUPLICATE = "Duplicate reservation name"


class Commands(Slurm, Protocol):
    """Slurm by its commands, which also tell the number that Slurm has for a job."""

    def records(self) -> Records:
        """All jobs by that number."""


class PyslurmSlurm(ForwardingSlurm):
    """The `Slurm` interface on the module pyslurm; commands answer what is asked rarely.

    A request blocks the whole process until slurmctld answers or its MessageTimeout is over. Long task lists
    of arrays come cut unless SLURM_BITSTR_LEN is 0 in the environment.

    Args:
        module: The module pyslurm, version 25.11.
        commands: The backend for what pyslurm cannot do.
        clock: Seconds since 1970.
    """

    def __init__(self, module: Any, commands: Commands, clock: Callable[[], float] = time.time) -> None:
        super().__init__(commands)
        self._pyslurm = module
        self._commands = commands
        self._clock = clock
        self._no_answer = {getattr(module, name) for name in _NO_ANSWER}
        self._known: Records = {}
        self._asked: dict[int, tuple[Any, ...]] = {}
        self._read_at_s = float("-inf")
        self._reserved: set[str] = set()
        self._shown: dict[str, tuple[Any, ...]] = {}
        self._reservations: tuple[Reservation, ...] = ()

    def jobs(self) -> tuple[SlurmJob, ...]:
        """All jobs, in the order of the command line; one that ends between two questions is left out."""
        return with_fewest_nodes(self._read_jobs(), self.nodes())

    def look(self) -> Look:
        """Jobs, nodes, reservations and partitions, one after the other."""
        jobs, nodes = self._read_jobs(), self.nodes()
        return Look(with_fewest_nodes(jobs, nodes), nodes, self.reservations(), self.partitions())

    def _read_jobs(self) -> tuple[SlurmJob, ...]:
        records = {record.id: record for record in self._load("Jobs")}
        asked = {number: _asked(record) for number, record in records.items()}
        age_s = self._clock() - self._read_at_s
        # A job that has left since the last time is no news, and neither is one that commands do not show.
        if not 0 <= age_s < REREAD_S or not asked.items() <= self._asked.items():
            self._known = self._commands.records()
            self._read_at_s = self._clock()
        self._asked = asked
        return in_order(
            {
                number: tuple(_refreshed(job, records[number]) for job in jobs)
                for number, jobs in self._known.items()
                if number in records and jobs and jobs[0].submit_s == (records[number].submit_time or 0)
            }
        )

    def nodes(self) -> tuple[SlurmNode, ...]:
        """All nodes; GPUs in use are counted from jobs, as nodes show them only where they are accounted."""
        records = list(self._load("Nodes"))
        used: Counter[str] = Counter()
        for job in self._load("Jobs"):
            if _state(job) in HOLDS_GPUS:
                used.update(_gpus_by_node(job))
        return tuple(_node(record, used[record.name]) for record in records)

    def reservations(self) -> tuple[Reservation, ...]:
        """All reservations, those to come included; by commands where one is new or changed.

        What decides whether a reservation bounds its jobs pyslurm does not show in full.
        """
        shown = {
            record.name: (record.nodes, record.start_time, record.end_time, record.flags)
            for record in self._load("Reservations")
        }
        if not shown.items() <= self._shown.items():
            self._reservations = self._commands.reservations()
        self._shown = shown
        return tuple(each for each in self._reservations if each.name in shown)

    def run(self, orders: Sequence[Order]) -> tuple[str | None, ...]:
        """Carry out orders, in this order: by pyslurm what it can, else with its neighbours by commands.

        One that holds something that is no number and no name is refused unsent. After one that changes a
        size or a time limit commands read all jobs anew, as pyslurm does not show all of that.
        """
        if any(
            isinstance(order, ReleaseOnNodes | ReleaseToSlurm)
            and (order.limit_min is not None or order.tasks is not None)
            for order in orders
        ):
            self._read_at_s = float("-inf")
        return run_checked(orders, self._run_all)

    def _run_all(self, orders: Sequence[Order]) -> list[str | None]:
        placing = any(isinstance(order, ReleaseOnNodes) for order in orders)
        jobs = {str(job.id): job for job in self._load("Jobs")} if placing else {}
        reserving = any(isinstance(order, Reserve) for order in orders)
        self._reserved = {each.name for each in self._load("Reservations")} if reserving else set()
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
                if order.name in self._reserved:
                    return _DUPLICATE
                self._fence(order)
                self._reserved.add(order.name)
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
            start_time=int(self._clock() if order.start_s is None else order.start_s),
            duration=order.minutes,
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
    """Whether pyslurm can do it as asked; tasks of arrays are not among `jobs`, by number of their own.

    Commands look who holds a job before they release one that has a description.
    """
    if isinstance(order, Reserve):
        return True
    job = jobs.get(order.job_id) if isinstance(order, ReleaseOnNodes) else None
    return (
        job is not None
        and isinstance(order, ReleaseOnNodes)
        and order.tasks is None
        and order.min_cpus is None
        and order.limit_min is None
        and not order.any_switches
        and shown_reason(job.state_reason or "None")[1]
        and job.num_nodes == job.max_nodes == len(order.nodes)
        and (order.reservation is not None or job.reservation is None)
    )


def _asked(record: Any) -> tuple[Any, ...]:
    """What of a record commands must read anew if it changes."""
    asks = tuple(getattr(record, name) for name in _ASKED)
    has_ended = _state(record) is State.ENDED
    description = "" if shown_reason(record.state_reason or "None")[1] else record.state_reason
    return record.submit_time, record.array_tasks_waiting, has_ended, description, asks


def _refreshed(job: SlurmJob, record: Any) -> SlurmJob:
    """A job as commands showed it, with what pyslurm knows better by now."""
    state = _state(record)
    waits = state is State.PENDING
    reason, is_certain = shown_reason(record.state_reason or "None")
    if not is_certain:
        reason = job.reason
    return replace(
        job,
        state=state,
        state_name=record.state or "",
        reason=reason if waits else "",
        hold=HOLDS.get(reason, Hold.NONE) if waits else Hold.NONE,
        requeued_held=waits and is_requeued_held(record.state or "", record.state_reason or ""),
        partition=record.partition or "",
        min_nodes=at_most(record.num_nodes or 1, job.max_nodes if waits else 0),
        max_nodes=job.max_nodes if waits else 0,
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
    counts = {name: _gpus({name: count}) for name, count in record.configured_gres.items()}
    return SlurmNode(
        name=record.name,
        available=is_available(state),
        state_name=state.lower(),
        gpus=sum(counts.values()),
        gpus_used=gpus_used,
        partitions=tuple(record.partitions),
        memory_mb=record.real_memory or 0,
        features=frozenset(record.active_features or ()),
        cpus=record.effective_cpus or record.total_cpus or 0,
        cpus_used=record.allocated_cpus or 0,
        memory_used_mb=record.allocated_memory or 0,
        gres=",".join(f"{name}:{count}" for name, count in counts.items() if count),
        blocked=is_blocked(state),
    )
