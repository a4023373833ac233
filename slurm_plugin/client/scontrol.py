"""Orders as the lines that scontrol reads, and what it answered to each of them.

Every word of a line is checked against what such a word looks like, so no line holds what a user wrote.
"""

import re
from collections.abc import Callable, Iterable, Sequence

from dally.errors import InputError
from dally.hostlist import fold
from slurm_plugin.client.orders import (
    Annotate,
    LockPartition,
    Order,
    Rehold,
    ReleaseOnNodes,
    ReleaseToSlurm,
    Requeue,
    ReservationOrder,
    Reserve,
    Signal,
    UnlockPartition,
    Unreserve,
)
from slurm_plugin.request import SIGNALS

_JOB = re.compile(r"[0-9]{1,10}(_[0-9]{1,10})?", re.ASCII)
_NAME = re.compile(r"[A-Za-z0-9_][\w.-]{0,254}", re.ASCII)
_USER = re.compile(r"[A-Za-z0-9_][\w.@$-]{0,254}", re.ASCII)
_COMMENT = re.compile("[ -~]{0,10000}")
"""With a mark that names 1024 bytes of nodes and a file of 512, all of them in hexadecimal digits."""

_SIGNAL = re.compile("|".join(SIGNALS))
_FENCE_FLAGS = "IGNORE_JOBS,OVERLAP,FLEX,NO_HOLD_JOBS_AFTER_END"
"""The last one keeps Slurm from saying, of a held job whose fence ends, that this is why it is held."""
_HANDED_BACK_START = "now+4"
"""When Slurm may start a job that is handed back.

It may have left its nodes just now. Started there again within 2 s, it can fail: "Job credential revoked".
"""

_LOCK_FLAGS = "IGNORE_JOBS,OVERLAP"
_UNAVAILABLE = (
    "Unable to contact slurm controller",
    "Unexpected message received",
    "uthentication error",
    "ocket timed out",
    "Zero Bytes were transmitted",
    "Communication connection failure",
    "standby mode",
)


def check(order: Order) -> None:
    """Refuse an order that holds anything but numbers and names.

    Raises:
        InputError: A word of it is no job number, node, reservation, user or signal.
    """
    if isinstance(order, ReservationOrder):
        _check(_NAME, order.name, "reservation name")
    else:
        _check(_JOB, order.job_id, "job number")
    if isinstance(order, Reserve | LockPartition):
        _check(_USER, order.user, "user name")
    if isinstance(order, LockPartition):
        _check(_NAME, order.node, "node name")
    if isinstance(order, ReleaseOnNodes | Reserve) and not order.nodes:
        raise InputError("the node list is empty, must name at least one node")
    if isinstance(order, ReleaseOnNodes | Reserve | ReleaseToSlurm):
        for node in order.nodes:
            _check(_NAME, node, "node name")
    if isinstance(order, ReleaseOnNodes) and order.reservation is not None:
        _check(_NAME, order.reservation, "reservation name")
    if isinstance(order, Signal):
        _check(_SIGNAL, order.signal, "checkpoint signal")
    if isinstance(order, Annotate):
        _check(_COMMENT, order.admin_comment, "comment in plain characters")
    if isinstance(order, ReleaseOnNodes | ReleaseToSlurm):
        nodes = order.min_nodes if isinstance(order, ReleaseToSlurm) else None
        for count, what in (
            *((nodes, "nodes"), (order.tasks, "tasks"), (order.limit_min, "minutes")),
            (order.min_cpus, "CPUs"),
        ):
            if count is not None and count < 1:
                raise InputError(f"job {order.job_id} cannot have {count} {what}, must be 1 or more")


def run_checked(
    orders: Iterable[Order], run: Callable[[Sequence[Order]], Iterable[str | None]]
) -> tuple[str | None, ...]:
    """Have orders carried out, but for those that `check` refuses; the answers are in the order of all.

    One user with a strange name must not keep the orders for others from Slurm.
    """
    checked = [(order, _refusal(order)) for order in orders]
    answers = iter(run([order for order, refusal in checked if refusal is None]))
    return tuple(next(answers) if refusal is None else refusal for _, refusal in checked)


def _refusal(order: Order) -> str | None:
    try:
        check(order)
    except InputError as error:
        return str(error)
    return None


def _check(valid: re.Pattern[str], word: str, what: str) -> None:
    if not valid.fullmatch(word):
        raise InputError(f"{word!r} is no {what}")


def steps(order: ReleaseOnNodes | Rehold | ReleaseToSlurm | Requeue | ReservationOrder) -> tuple[str, ...]:
    """The lines that carry out an order; each is to be sent only once scontrol accepted the one before.

    A job whose node list was refused must not be released: Slurm would start it anywhere. StartTime takes
    back the 121 s that Slurm adds at a requeue, and the node list, which outlives a requeue and a dead node,
    is replaced or cleared each time. `Incomplete` keeps a job that has just completed from running again.
    """
    match order:
        case ReleaseOnNodes(job_id, nodes, reservation):
            where = f"NodeList={fold(nodes)} {_size(len(nodes), order)} ReservationName={reservation or ''}"
            switches = " Switches=0" if order.any_switches else ""
            return (_update(job_id, where + _limit(order) + switches), f"release {job_id}")
        case Rehold(job_id):
            return (f"uhold {job_id}", _update(job_id, f"NodeList={_no_reservation(order)}"))
        case ReleaseToSlurm(job_id, min_nodes):
            where = f"NodeList={fold(order.nodes)} {_size(min_nodes, order)}{_no_reservation(order)}"
            if order.switches:
                where += f" Switches={order.switches}@00:00:{order.switch_wait_s}"
            return (_update(job_id, where + _limit(order), _HANDED_BACK_START), f"release {job_id}")
        case Requeue(job_id, ended):
            return (f"requeuehold {'' if ended else 'Incomplete '}{job_id}",)
        case Reserve(name, nodes, user, minutes, start_s):
            who = f"ReservationName={name} Nodes={fold(nodes)} Users={user}"
            when = f"StartTime={'now' if start_s is None else f'uts{start_s:.0f}'} Duration={minutes}"
            return (f"create reservation {who} {when} Flags={_FENCE_FLAGS}",)
        case Unreserve(name, unused):
            if unused:
                return (f"delete ReservationName={name}",)
            return (f"update ReservationName={name} EndTime=now",)
        case LockPartition(name, node, user, start_s, renewed):
            when = f"StartTime=uts{start_s:.0f} Duration=1"
            if renewed:
                return (f"update ReservationName={name} {when}",)
            who = f"ReservationName={name} Nodes={node} Users={user}"
            return (f"create reservation {who} {when} Flags={_LOCK_FLAGS}",)
        case UnlockPartition(name):
            return (f"delete ReservationName={name}",)


def _size(nodes: int, order: ReleaseOnNodes | ReleaseToSlurm) -> str:
    """A job's size. Of one that changes, all that it had before is said anew, or Slurm would want both.

    The CPUs are the fewest: what it asks for by node and task holds whatever is said here. It asks for no
    GPUs altogether, and an empty TresPerJob has Slurm count them anew: else it looks for as many as before.
    """
    count = f"NumNodes={nodes}-{nodes}" if order.exact else f"NumNodes={nodes}"
    if order.tasks is None:
        return count if order.min_cpus is None else f"{count} NumCPUs={order.min_cpus}"
    return f"{count} NumTasks={order.tasks} NumCPUs={order.tasks * order.cpus_per_task} TresPerJob="


def _no_reservation(order: Rehold | ReleaseToSlurm) -> str:
    return "" if order.keep_reservation else " ReservationName="


def _limit(order: ReleaseOnNodes | ReleaseToSlurm) -> str:
    """The new time limit of the job, which only an operator may raise."""
    return "" if order.limit_min is None else f" TimeLimit={order.limit_min}"


def _update(job_id: str, values: str, start: str = "now") -> str:
    return f"update JobId={job_id} StartTime={start} {values}"


def script(lines: Sequence[str], mark: str) -> str:
    """What scontrol gets on its input, so that `answers` can tell which line it answers.

    A site's job_submit.lua may answer with what users wrote, so the mark is one that nobody can guess.
    """
    return "".join(f"{line}\n" for word in ("", *lines) for line in (word, mark) if line)


def answers(said: str, lines: int, mark: str) -> list[str] | None:
    """What scontrol said on its error output to each line of a script; None if it did not get to the end.

    What it says before the first line, about slurm.conf for instance, answers none.
    """
    parts = said.split(f"invalid keyword: {mark}\n")
    return [part.strip() for part in parts[1:-1]] if len(parts) == lines + 2 else None


def unavailable(said: str) -> bool:
    """Whether a message means that Slurm was not reached, rather than that it refused."""
    return any(words in said for words in _UNAVAILABLE)


def first_line(said: str) -> str:
    """The message in one line, without the name of the program."""
    line = said.strip().split("\n", 1)[0]
    return re.sub(r"^\w+: error: ", "", line)
