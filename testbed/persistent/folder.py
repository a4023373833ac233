"""The folder of a persistent cluster: whose it is, and the lock that is held while anything of it lives."""

import fcntl
import os
import pwd
import shutil
from pathlib import Path

from slurm_plugin.local_cluster.processes import end_processes
from testbed.persistent.shape import LabShape
from testbed.persistent.state import STATE_FILE, PersistentError


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
        raise PersistentError(f"{folder} belongs to {_user(owner)}; name another with --folder")
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
    spec = LabShape().spec(folder)
    end_processes({"SLURM_CONF": str(spec.conf)}, f"{folder}/log/slurmd-")
    shutil.rmtree(folder)
    return True


def _user(number: int) -> str:
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return f"user {number}"
