"""The folder of a persistent cluster: its lock, and the file by which other processes find the cluster."""

import fcntl
import json
import os
import pwd
import shutil
from dataclasses import asdict, dataclass
from pathlib import Path

from dally.atomic_file import write_atomically
from dally.errors import DallyError
from slurm_plugin.local_cluster.processes import end_processes
from testbed.persistent.shape import LocalClusterShape, Shape, SlurmPlace, read_shape

STATE_FILE = "testbed.json"
_VERSION = 1
_STATE, _START = 0, 19
"""Where both stand among the words after a process's name in /proc/PID/stat (proc(5), fields 3 and 22)."""


class PersistentError(DallyError):
    """A persistent cluster cannot be brought up, reached or ended."""


@dataclass(frozen=True, slots=True)
class ProcessMark:
    """A process; its start time distinguishes it from a later one with the same number.

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
        found["shape"] = read_shape(found["shape"])
        found["supervisor"] = ProcessMark(**found["supervisor"])
        found["holder"] = found["holder"] and ProcessMark(**found["holder"])
        found["place"] = found["place"] and SlurmPlace(**found["place"])
        return PersistentState(**found)
    except (KeyError, TypeError, AttributeError) as error:
        raise PersistentError(f"{path} is not what `dally testbed up` writes: {error}") from error


def default_folder() -> Path:
    """A short path that every user can reach, as jobs of all users need the sockets there.

    Anybody may make it first, so it is used only if it is this user's.
    """
    return Path(f"/tmp/dally-testbed-{os.geteuid()}")


def open_folder(folder: Path) -> int | None:
    """Open a cluster's folder; None if there is none.

    Raises:
        PersistentError: It is no folder, or another user's.
    """
    try:
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise PersistentError(f"{folder} is not a folder that can be used: {error.strerror}") from error
    owner = os.fstat(handle).st_uid
    if owner != os.geteuid():
        os.close(handle)
        try:
            name = pwd.getpwuid(owner).pw_name
        except KeyError:
            name = f"user {owner}"
        raise PersistentError(f"{folder} belongs to {name}; name another with --folder")
    return handle


def lock(folder: Path, handle: int) -> bool:
    """Take the folder for this process and those that inherit the handle; False if others have it.

    Raises:
        FileNotFoundError: The folder was removed in the meantime.
    """
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    if not os.path.samestat(os.fstat(handle), folder.stat()):
        raise FileNotFoundError(folder)
    return True


def clear(folder: Path) -> bool:
    """Remove what a cluster left that is gone, its processes and all in its folder; False if there was none.

    Raises:
        PersistentError: There are files, but not a cluster's.
    """
    if not any(folder.iterdir()):
        return False
    if not (folder / STATE_FILE).is_file():
        raise PersistentError(f"{folder} is not empty and holds no testbed; name another with --folder")
    end_processes({"SLURM_CONF": str(LocalClusterShape().spec(folder).conf)}, f"{folder}/log/slurmd-")
    shutil.rmtree(folder)
    return True
