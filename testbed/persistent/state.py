"""What a persistent cluster leaves written about itself, for other processes to find and enter it."""

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from dally.atomic_file import write_atomically
from dally.errors import DallyError
from testbed.persistent.hosts_shape import HostsShape, Shape, SlurmPlace
from testbed.persistent.shape import LabShape

STATE_FILE = "testbed.json"
_VERSION = 1
_STATE, _START = 0, 19
"""Where both stand among the words after a process's name in /proc/PID/stat (proc(5), fields 3 and 22)."""


class PersistentError(DallyError):
    """A persistent cluster cannot be brought up, reached or ended."""


@dataclass(frozen=True, slots=True)
class ProcessMark:
    """A process, told from a later one with its number.

    Attributes:
        pid: Its number.
        started: When it started, clock ticks since the machine did.
    """

    pid: int
    started: int

    def is_running(self) -> bool:
        """Whether it is still there."""
        return mark_process(self.pid) == self


@dataclass(frozen=True, slots=True)
class PersistentState:
    """A persistent cluster.

    Attributes:
        shape: What it is made of.
        since_s: When it was asked for, seconds since 1970.
        supervisor: The process that owns it.
        holder: The process whose namespaces its network is made of; None on hosts, and until all nodes are
            idle.
        port: Of its slurmctld on this machine; the nodes have the next ones.
        place: Where it is on hosts; None on this machine, and until all nodes are idle.
    """

    shape: Shape
    since_s: float
    supervisor: ProcessMark
    holder: ProcessMark | None = None
    port: int = 0
    place: SlurmPlace | None = None

    @property
    def usable(self) -> bool:
        """Whether it is up."""
        is_there = self.place is not None or (self.holder is not None and self.holder.is_running())
        return is_there and self.supervisor.is_running()


def mark_process(pid: int) -> ProcessMark | None:
    """A running process's mark; None if it has ended, also while nobody has asked how."""
    try:
        words = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b") ")[2].split()
    except OSError:
        return None
    return None if words[_STATE] in (b"Z", b"X") else ProcessMark(pid, int(words[_START]))


def own_mark() -> ProcessMark:
    """This process's mark."""
    mark = mark_process(os.getpid())
    assert mark
    return mark


def read_shape(facts: dict[str, Any]) -> Shape:
    """A shape from its fields.

    Raises:
        KeyError, TypeError: These are not those of one.
    """
    if "hosts_file" in facts:
        return HostsShape(**facts)
    read: dict[str, Any] = {
        name: tuple(fact) if isinstance(fact, list) else fact for name, fact in facts.items()
    }
    return LabShape(**read)


def write_state(folder: Path, state: PersistentState) -> None:
    """Write what is known of the cluster in a folder."""
    text = json.dumps({"version": _VERSION, **asdict(state)}, indent=2) + "\n"
    write_atomically(folder / STATE_FILE, text)


def read_state(folder: Path) -> PersistentState | None:
    """What is known of the cluster in a folder; None if there is nothing.

    Raises:
        PersistentError: It is not what this version writes.
    """
    path = folder / STATE_FILE
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except ValueError as error:
        raise PersistentError(f"{path} is not JSON: {error}") from error
    try:
        if found.pop("version") != _VERSION:
            raise PersistentError(f"{path} is of another version of Dally")
        # Earlier versions called the supervisor the keeper.
        found.setdefault("supervisor", found.pop("keeper", None))
        holder = found["holder"] and ProcessMark(**found["holder"])
        place = found.get("place") and SlurmPlace(**found["place"])
        marks = {"supervisor": ProcessMark(**found["supervisor"]), "holder": holder, "place": place}
        return PersistentState(**{**found, **marks, "shape": read_shape(found["shape"])})
    except (KeyError, TypeError, AttributeError) as error:
        raise PersistentError(f"{path} is not what `dally testbed up` writes: {error}") from error
