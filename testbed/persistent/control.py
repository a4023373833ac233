"""Brings a persistent cluster up, ends it, and gives it to other processes."""

import os
import select
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path

from dally.hosts.network import JoinedNetwork
from slurm_plugin.local_cluster.cluster import Cluster, LocalCluster
from testbed.persistent.shape import HostsShape, Shape
from testbed.persistent.state import PersistentError, PersistentState, clear, lock, open_folder, read_state
from testbed.persistent.supervisor import READY, REMOTE, supervisor_argv

_START_S = 240.0
_END_S = 60.0
_GRACE_S = 30.0
"""After which a supervisor that is asked to end is killed."""

_POLL_S = 0.05
_CHUNK_BYTES = 65536


def find_persistent(folder: Path) -> PersistentState | None:
    """The cluster that is up in a folder; None if none is.

    Raises:
        PersistentError: The folder is another user's, or what it holds cannot be read.
    """
    handle = open_folder(folder)
    if handle is None:
        return None
    os.close(handle)
    state = read_state(folder)
    return state if state and state.usable else None


def open_local(folder: Path) -> LocalCluster:
    """The cluster on this machine that is up in a folder; it stays up without this process.

    Raises:
        PersistentError: None is up there, it is on hosts, or it is another user's.
    """
    state = _required(folder)
    if isinstance(state.shape, HostsShape) or state.holder is None:
        raise PersistentError(f"the testbed in {folder} is on hosts, not on this machine")
    spec = state.shape.spec(folder, state.port)
    assert spec.network
    return LocalCluster(spec, JoinedNetwork(spec.network, state.holder.pid))


@contextmanager
def opened_persistent(folder: Path) -> Iterator[Cluster]:
    """The cluster that is up in a folder, of either kind, as what workloads run on.

    On hosts, it is used over connections that end with this context; it stays up without this process.

    Raises:
        PersistentError: None is up there, or it is another user's.
        DallyError: A host cannot be reached.
    """
    state = _required(folder)
    if not isinstance(state.shape, HostsShape):
        yield open_local(folder)
        return
    with import_module(REMOTE).opened_private(state.shape, state.place) as cluster:
        yield cluster


def bring_up(folder: Path, shape: Shape) -> bool:
    """Bring a cluster up that stays when this process ends; returns when all its nodes are idle.

    What one that was killed has left in the folder is removed first.

    Returns:
        False if it is up already.

    Raises:
        PersistentError: Another one is up there, the folder cannot be used, or it does not come up.
    """
    deadline = time.monotonic() + _START_S
    while time.monotonic() < deadline:
        if (state := find_persistent(folder)) is not None:
            if state.shape != shape:
                raise PersistentError(
                    f"a testbed with {state.shape.shown()} is up in {folder}; "
                    "end it with `dally testbed down` first"
                )
            return False
        if (handle := _locked_folder(folder)) is not None:
            try:
                _start_supervisor(folder, shape, handle)
            finally:
                os.close(handle)
            return True
        time.sleep(_POLL_S)
    raise PersistentError(f"what is in {folder} neither came up nor ended within {_START_S:g} s")


def take_down(folder: Path) -> bool:
    """End the cluster in a folder and remove all that is left of one; False if there was none.

    Raises:
        PersistentError: The folder is another user's or holds something else, or the cluster does not end.
    """
    handle = open_folder(folder)
    if handle is None:
        return False
    try:
        found = False
        begun_s = time.monotonic()
        while not lock(folder, handle):  # it is held while anything of the cluster lives
            found = True
            lasting_s = time.monotonic() - begun_s
            if lasting_s > _END_S:
                raise PersistentError(f"the testbed in {folder} did not end within {_END_S:g} s")
            with suppress(PersistentError, ProcessLookupError):
                state = read_state(folder)
                if state and state.supervisor.is_running():
                    number = signal.SIGTERM if lasting_s < _GRACE_S else signal.SIGKILL
                    os.kill(state.supervisor.pid, number)
            time.sleep(_POLL_S)
        return clear(folder) or found
    except FileNotFoundError:  # it removed its folder itself
        return True
    finally:
        os.close(handle)


def _required(folder: Path) -> PersistentState:
    state = find_persistent(folder)
    if state is None:
        raise PersistentError(f"no testbed is up in {folder}; bring one up with `dally testbed up`")
    return state


def _locked_folder(folder: Path) -> int | None:
    """A handle that locks the folder, made or emptied; None if something of a cluster still lives there."""
    folder.mkdir(exist_ok=True)
    handle = open_folder(folder)
    if handle is None:
        return None
    try:
        if lock(folder, handle) and not clear(folder):
            return handle
    except FileNotFoundError:
        pass
    except BaseException:
        os.close(handle)
        raise
    os.close(handle)
    return None


def _start_supervisor(folder: Path, shape: Shape, handle: int) -> None:
    """Start the process that owns the cluster and wait until it says that all is up."""
    supervisor = subprocess.Popen(
        supervisor_argv(folder, shape, handle),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        cwd="/",
        start_new_session=True,
        pass_fds=(handle,),
    )
    try:
        last = _last_line(supervisor)
        if last != READY:
            raise PersistentError(last or "the testbed's supervisor ended without a word")
    except BaseException:
        supervisor.terminate()
        with suppress(subprocess.TimeoutExpired):
            supervisor.wait(_GRACE_S)
        with suppress(OSError, PersistentError):
            clear(folder)
            folder.rmdir()
        raise


def _last_line(supervisor: subprocess.Popen[bytes]) -> str:
    """The last line that a supervisor writes before it has ended or is ready."""
    assert supervisor.stdout
    said = b""
    deadline = time.monotonic() + _START_S
    while select.select([supervisor.stdout], [], [], max(0.0, deadline - time.monotonic()))[0]:
        chunk = os.read(supervisor.stdout.fileno(), _CHUNK_BYTES)
        said += chunk
        last = said.decode(errors="replace").strip().rpartition("\n")[2]
        if not chunk or last == READY:
            return last
    raise PersistentError(f"the testbed did not come up within {_START_S:g} s")
