"""The module pyslurm 25.11.2 as our backend uses it, in front of any `Slurm`: names, units, Nones and errors.

It follows the sources of pyslurm's sdist: `core/job/job.pyx` and `submission.pyx` (jobs), `core/node.pyx`,
`core/reservation.pyx`, `core/error.pyx`, `xcollections.pyx` (collections), `utils/uint.pyx` and
`utils/ctime.pyx` (which numbers become None), `utils/cstr.pyx` (empty text is None, and clears nothing).
What it shows beyond what `Slurm` does is made up; where a call would do harm, the mock fails the test.
"""

import enum
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, ClassVar

from slurm_plugin.client.job_json import REQUEUED_HELD
from slurm_plugin.client.orders import Order, ReleaseOnNodes, Reserve
from slurm_plugin.client.slurm import Reservation as SlurmReservation
from slurm_plugin.client.slurm import Slurm, SlurmJob, SlurmNode, SlurmUnavailableError, State

UNKNOWN_NODE = "nowhere"
ESLURM_NODES_BUSY = 2016
ESLURM_INVALID_JOB_ID = 2017
ESLURM_INVALID_NODE_NAME = 2018
ERRORS = {
    "SLURM_COMMUNICATIONS_CONNECTION_ERROR": 1001,
    "SLURM_COMMUNICATIONS_SEND_ERROR": 1002,
    "SLURM_COMMUNICATIONS_RECEIVE_ERROR": 1003,
    "SLURM_COMMUNICATIONS_SHUTDOWN_ERROR": 1004,
    "SLURM_PROTOCOL_AUTHENTICATION_ERROR": 1007,
    "SLURMCTLD_COMMUNICATIONS_CONNECTION_ERROR": 1800,
    "SLURMCTLD_COMMUNICATIONS_SEND_ERROR": 1801,
    "SLURMCTLD_COMMUNICATIONS_RECEIVE_ERROR": 1802,
    "SLURMCTLD_COMMUNICATIONS_SHUTDOWN_ERROR": 1803,
    "ESLURM_PROTOCOL_INCOMPLETE_PACKET": 5003,
    "SLURM_PROTOCOL_SOCKET_IMPL_TIMEOUT": 5004,
    "SLURM_PROTOCOL_SOCKET_ZERO_BYTES_SENT": 5005,
    "ESLURM_AUTH_CRED_INVALID": 6000,
}
"""Names are pyslurm's (`pydefines/slurm_errno_enums.pxi`); it takes the numbers from Slurm's header."""

_OWN_NUMBERS = 1_000_000
"""Tasks of arrays that Slurm has set apart get numbers of their own, here from this one."""


class RPCError(Exception):
    """An error with a number, which is -1 where only a text was given."""

    def __init__(self, errno: int = -1, msg: str | None = None) -> None:
        self.errno = errno
        self.msg = msg
        super().__init__(msg)


class ReservationFlags(enum.Flag):
    """The flags of a reservation that we know; those of scontrol have other names."""

    FLEX = enum.auto()
    IGNORE_RUNNING_JOBS = enum.auto()
    MAINTENANCE = enum.auto()
    NO_JOB_HOLD_AFTER_END = enum.auto()
    OVERLAP = enum.auto()


class JobSubmitDescription:
    """Changes to a job; what is not given stays None and is not changed, and an unknown name is an error."""

    __slots__ = ("begin_time", "required_nodes", "reservations")
    begin_time: int | None
    required_nodes: list[str] | None
    reservations: str | None

    def __init__(self, **changes: Any) -> None:
        for name in self.__slots__:
            setattr(self, name, None)
        for name, value in changes.items():
            setattr(self, name, value)


class Collection:
    """Objects by cluster and key; a key alone may miss them, as the cluster of a job can be unnamed."""

    def __init__(self, items: Sequence[Any]) -> None:
        self._items = items

    def values(self) -> Iterator[Any]:
        """All objects of all clusters."""
        return iter(self._items)


class Bound:
    """What stands in front of a `Slurm`."""

    slurm: ClassVar[Slurm]
    max_nodes: ClassVar[Mapping[str, int]]
    stale_errno: ClassVar[int]


class Jobs(Bound):
    @classmethod
    def load(cls) -> Collection:
        groups = records_of(_answer(cls.slurm.jobs))
        return Collection([JobRecord(number, jobs, cls.max_nodes) for number, jobs in groups.items()])


class Job(Bound):
    def __init__(self, job_id: int) -> None:
        if not isinstance(job_id, int):
            raise TypeError("an integer is required")
        self.id = job_id
        self._place: ReleaseOnNodes | None = None

    def modify(self, changes: JobSubmitDescription) -> None:
        """Pin the job; a `Slurm` pins and releases at once, so the release does it all."""
        assert isinstance(changes.begin_time, int), "without it a requeued job waits for two minutes"
        job = next((job for job in _answer(self.slurm.jobs) if job.job_id == str(self.id)), None)
        if job is None:
            raise RPCError(ESLURM_INVALID_JOB_ID, "Invalid job id specified")
        nodes = tuple(changes.required_nodes or ())
        assert len(nodes) == job.min_nodes, "Slurm accepts it, and the job waits with BadConstraints"
        if UNKNOWN_NODE in nodes:
            raise RPCError(ESLURM_INVALID_NODE_NAME, "Invalid node name specified")
        self._place = ReleaseOnNodes(str(self.id), nodes, changes.reservations or job.reservation or None)

    def release(self) -> None:
        """Release the job where it was pinned."""
        assert self._place, "released without nodes"
        _do(self.slurm, self._place)


class JobRecord:
    """A job, or the waiting tasks of an array that nobody has touched."""

    def __init__(self, number: int, jobs: Sequence[SlurmJob], max_nodes: Mapping[str, int]) -> None:
        job = self._job = jobs[0]
        shared = _is_shared(job)
        self.id = number
        self.array_id = int(job.array_id) if job.array_id else None
        self.array_task_id = None if shared else _number(int(_task(job) or 0))
        self.array_tasks_waiting = ",".join(_task(job) for job in jobs) if shared else None
        self.submit_time = _number(int(job.submit_s))
        self.state = job.state_name.upper()
        self.state_reason = REQUEUED_HELD if job.requeued_held else job.reason or "None"
        self.partition = _text(job.partition)
        self.num_nodes = _number(job.min_nodes)
        self.time_limit = _number(int((job.time_limit_s or 0) // 60))
        self.nice = job.nice
        self.qos, self.account = _text(job.qos), _text(job.account)
        self.excluded_nodes = _text(",".join(job.excluded_nodes))
        self.max_nodes = _number(max_nodes.get(job.job_id, job.min_nodes))
        self.required_nodes = _text(",".join(job.required_nodes))
        self.allocated_nodes = _text(",".join(job.nodes))
        self.reservation = _text(job.reservation)
        self.eligible_time = _number(int(job.begin_s))
        self.start_time = _number(int(job.start_s or 0))
        self.requeue_count = job.restarts
        self.dependencies = _dependencies(job.dependency)

    def get_resource_layout_per_node(self) -> dict[str, Any]:
        """GPUs of the type h100 with their indexes; empty without an allocation."""
        return {
            node: {"cpu_ids": "0-1", "memory": 1000, "gres": _gres(self._job.gpus.get(node, 0))}
            for node in self._job.nodes
        }


class Nodes(Bound):
    @classmethod
    def load(cls) -> Collection:
        return Collection([_node(node) for node in _answer(cls.slurm.nodes)])


class Reservations(Bound):
    @classmethod
    def load(cls) -> Collection:
        return Collection([_reservation(item) for item in _answer(cls.slurm.reservations)])


class Reservation(Bound):
    nodes: str
    users: list[str]
    start_time: int
    duration: int
    flags: ReservationFlags

    def __init__(self, name: str, **values: Any) -> None:
        self.name = name
        for key, value in values.items():
            if key not in Reservation.__annotations__:
                raise KeyError(key)
            setattr(self, key, value)

    def create(self) -> None:
        """Create it; the number of an earlier error, if there is one, is reported although it worked."""
        flags = ReservationFlags
        assert self.start_time > 0
        assert self.duration >= 1, "minutes"
        assert self.flags == ~flags.MAINTENANCE, "all that make a fence"
        (user,) = self.users
        _do(self.slurm, Reserve(self.name, tuple(self.nodes.split(",")), user, self.duration))
        if self.stale_errno:
            raise RPCError(self.stale_errno, "an error of some earlier call")


def mock_pyslurm(slurm: Slurm, max_nodes: Mapping[str, int] | None = None, stale_errno: int = 0) -> Any:
    """The module in front of a `Slurm`.

    Args:
        slurm: What answers; a refusal or outage becomes an RPCError.
        max_nodes: Most nodes of jobs by number, for those not submitted with `-N` and one count.
        stale_errno: An error that an earlier call has left behind in the C library; 0 for none.
    """
    bound = {"slurm": slurm, "max_nodes": max_nodes or {}, "stale_errno": stale_errno}
    kinds = (Job, Jobs, Nodes, Reservation, Reservations)
    return SimpleNamespace(
        __version__="25.11.2",
        RPCError=RPCError,
        JobSubmitDescription=JobSubmitDescription,
        ReservationFlags=ReservationFlags,
        **ERRORS,
        **{kind.__name__: type(kind.__name__, (kind,), bound) for kind in kinds},
    )


def _answer(ask: Any) -> Any:
    try:
        return ask()
    except SlurmUnavailableError as error:
        down = ERRORS["SLURMCTLD_COMMUNICATIONS_CONNECTION_ERROR"]
        raise RPCError(down, "Unable to contact slurm controller (connect failure)") from error


def _do(slurm: Slurm, order: Order) -> None:
    (refusal,) = _answer(lambda: slurm.run((order,)))
    if refusal is not None:
        raise RPCError(ESLURM_NODES_BUSY, refusal)


def _is_shared(job: SlurmJob) -> bool:
    """Whether a task of an array is still one of many: a touched one has a record of its own."""
    untouched = replace(job, required_nodes=(), reservation="", restarts=0)
    return bool(_task(job)) and job.state is State.PENDING and job == untouched


def records_of(jobs: Iterable[SlurmJob]) -> dict[int, tuple[SlurmJob, ...]]:
    """Jobs by the number that Slurm has for them.

    An array's own number has its untouched tasks, or what is left of it when there are none: no task then.
    """
    records: dict[int, tuple[SlurmJob, ...]] = {}
    for job in jobs:
        number = int(job.array_id or job.job_id)
        if _task(job) and not _is_shared(job):
            number += _OWN_NUMBERS + int(_task(job))
        records[number] = (*records.get(number, ()), job)
    return records


def _task(job: SlurmJob) -> str:
    return job.job_id.partition("_")[2]


def _number(value: int) -> int | None:
    """Nearly all numbers and times are None for 0."""
    return value or None


def _text(value: str) -> str | None:
    return value or None


def _gres(gpus: int) -> dict[str, Any]:
    return {"gpu:h100": {"count": gpus, "indexes": f"0-{gpus - 1}"}} if gpus else {}


def _dependencies(text: str) -> dict[str, Any] | None:
    if not text:
        return None
    kinds = ("after", "afterany", "afterburstbuffer", "aftercorr", "afternotok", "afterok")
    left: dict[str, Any] = {kind: [] for kind in kinds}
    left |= {"singleton": text == "singleton", "satisfy": "any" if "?" in text else "all"}
    for kind, jobs in re.findall(r"(\w+):([^,?]+)", text):
        if kind in kinds:
            left[kind] += [int(job) if job.isdigit() else job for job in jobs.split(":")]
    return left


def _node(node: SlurmNode) -> SimpleNamespace:
    return SimpleNamespace(
        name=node.name,
        state=node.state_name.upper(),
        configured_gres={(node.gres or "gpu:").rpartition(":")[0]: node.gpus} if node.gpus else {},
        partitions=list(node.partitions),
        real_memory=node.memory_mb,
        active_features=sorted(node.features) or None,
        effective_cpus=node.cpus or None,
        total_cpus=node.cpus or None,
        allocated_cpus=node.cpus_used,
        allocated_memory=node.memory_used_mb,
    )


def _reservation(item: SlurmReservation) -> SimpleNamespace:
    return SimpleNamespace(
        name=item.name,
        nodes=_text(",".join(item.nodes)),
        start_time=_number(int(item.start_s)),
        end_time=_number(int(item.end_s)),
        flags=ReservationFlags.MAINTENANCE if item.maintenance else ReservationFlags(0),
        users=["alice"],
    )
