"""The orders that Dally gives Slurm: about jobs and about reservations."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ReleaseOnNodes:
    """Release a held job onto exactly these nodes, at once.

    `nodes` has as many names as the job gets nodes. `reservation` is the fence to start in, or the job's own;
    None clears any.
    `tasks`, of a job whose size is open, is how many tasks it gets there, with the GPUs that it asked for by
    node or task, never of one that counts them altogether. Its nodes may be more or fewer than it asked for;
    with `exact` it asked for just so many, so that the most must be changed, too. `cpus_per_task` is what it
    asked for. `limit_min` is its time limit from now on, minutes; None leaves it as it is. With
    `any_switches` its `--switches` no longer counts: Dally has seen to it. `min_cpus` is how many CPUs it
    asks for in all: Slurm raises them with the nodes of a job, and lowers them only when told. None leaves
    them as they are.
    """

    job_id: str
    nodes: tuple[str, ...]
    reservation: str | None = None
    tasks: int | None = None
    exact: bool = False
    cpus_per_task: int = 1
    limit_min: int | None = None
    any_switches: bool = False
    min_cpus: int | None = None


@dataclass(frozen=True, slots=True)
class Rehold:
    """Hold a pending job as its user would, and clear its node list, begin time and reservation.

    With `keep_reservation` that is its user's own, and stays.
    """

    job_id: str
    keep_reservation: bool = False


@dataclass(frozen=True, slots=True)
class Requeue:
    """Stop a running job and put it back, held. A job that has completed stays completed.

    `ended` puts back a job that has ended, whatever its exit code: to be used only where that is certain.
    """

    job_id: str
    ended: bool = False


@dataclass(frozen=True, slots=True)
class Signal:
    """Send a signal (a name like USR2) to all processes of a running job, its batch script included."""

    job_id: str
    signal: str


@dataclass(frozen=True, slots=True)
class Cancel:
    """Cancel a pending job; one that runs is left alone."""

    job_id: str


@dataclass(frozen=True, slots=True)
class Annotate:
    """Set the admin comment of a job, which squeue prints and its user cannot write."""

    job_id: str
    admin_comment: str


@dataclass(frozen=True, slots=True)
class ReleaseToSlurm:
    """Release a held job without nodes: from here on Slurm schedules it.

    `min_nodes` is what it asked for; so is `tasks`, of a job that may have been placed with others. `exact`,
    `cpus_per_task`, `limit_min` and `min_cpus` are as for `ReleaseOnNodes`. `nodes` are those that it must
    have, by its own `--nodelist`; `switches` is its own number of leaf switches, for `switch_wait_s` seconds.
    With `keep_reservation` its reservation is its own, too.
    """

    job_id: str
    min_nodes: int
    tasks: int | None = None
    exact: bool = False
    cpus_per_task: int = 1
    limit_min: int | None = None
    nodes: tuple[str, ...] = ()
    switches: int = 0
    switch_wait_s: int = 0
    keep_reservation: bool = False
    min_cpus: int | None = None


@dataclass(frozen=True, slots=True)
class Reserve:
    """Keep nodes for one user's jobs for some minutes, whatever runs there; jobs in the fence may outlast it.

    Jobs of other fences may start on the same nodes, so only jobs that are in no fence are kept out. With
    `start_s`, seconds since 1970, it begins then, and until then jobs may start that end before.
    """

    name: str
    nodes: tuple[str, ...]
    user: str
    minutes: int = 1
    start_s: float | None = None


@dataclass(frozen=True, slots=True)
class Unreserve:
    """Open a fence before its time is over; jobs in it run on. One that is `unused` may be yet to begin."""

    name: str
    unused: bool = False


@dataclass(frozen=True, slots=True)
class LockPartition:
    """Say that a controller is at work, by a reservation so far ahead that it keeps nobody out.

    It is of one node, for a minute; `renewed` moves the one of that name to another start.
    """

    name: str
    node: str
    user: str
    start_s: float
    renewed: bool = False


@dataclass(frozen=True, slots=True)
class UnlockPartition:
    """Take such a reservation away."""

    name: str


ReservationOrder = Reserve | Unreserve | LockPartition | UnlockPartition
"""Those that are about no job."""

JobOrder = ReleaseOnNodes | Rehold | Requeue | Signal | Cancel | ReleaseToSlurm | Annotate
"""Those that are about one."""

Order = JobOrder | ReservationOrder
