"""Starts training commands at once: `python -m workloads.preload SOCKET` loads torch, then waits for them.

Each command is a process of its own, forked from this one; `workloads.preload_client` says who asks and why.
Only the user who runs this may ask.
"""

import gc
import importlib
import json
import os
import signal
import socket
import sys
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from selectors import EVENT_READ, DefaultSelector
from typing import Any, NoReturn

from workloads.preload_client import LENGTH
from workloads.stopping import end_at_once
from workloads.train import train

_LOADED = ("workloads.loop", "torch._dynamo")
"""What a command needs that takes long to load; the second is loaded by DDP when it is made."""

_STANDARD_FILES = 3
_MOST_OPEN = 4096
_USAGE = "usage: python -m workloads.preload SOCKET"


class CommandServer:
    """Starts commands, passes signals on to them, and tells how they ended.

    Args:
        listener: Where they are asked for.
        run: What each does with its arguments; its exit code.
    """

    def __init__(self, listener: socket.socket, run: Callable[[Sequence[str]], int]) -> None:
        self._listener, self._run = listener, run
        self._selector = DefaultSelector()
        self._selector.register(listener.fileno(), EVENT_READ, self._accept)

    def serve(self) -> NoReturn:
        """Serve until this process is ended."""
        while True:
            for key, _ in self._selector.select():
                if self._selector.get_map().get(key.fd) is key:  # not ended by one before it
                    key.data()

    def _accept(self) -> None:
        connection, _ = self._listener.accept()
        try:
            request, files = _read_request(connection)
        except (OSError, ValueError):
            connection.close()
            return
        pid = os.fork()
        if pid == 0:
            _become(request, files, self._run)
        for file in files:
            os.close(file)
        ended = os.pidfd_open(pid)
        self._selector.register(connection.fileno(), EVENT_READ, lambda: self._pass_on(connection, ended))
        self._selector.register(ended, EVENT_READ, lambda: self._tell_end(connection, ended, pid))

    def _pass_on(self, connection: socket.socket, process: int) -> None:
        """Signals, a byte each; the end of who asked is the end of what was asked for."""
        numbers = b""
        with suppress(ConnectionError):
            numbers = connection.recv(64)
        for number in numbers or [signal.SIGKILL]:
            signal.pidfd_send_signal(process, number)
        if not numbers:
            self._selector.unregister(connection.fileno())

    def _tell_end(self, connection: socket.socket, ended: int, pid: int) -> None:
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        self._selector.unregister(ended)
        os.close(ended)
        if connection.fileno() in self._selector.get_map():
            self._selector.unregister(connection.fileno())
            with suppress(ConnectionError):
                connection.send(bytes([code if code >= 0 else 128 - code]))
        connection.close()


def _read_request(connection: socket.socket) -> tuple[dict[str, Any], list[int]]:
    head, files, _, _ = socket.recv_fds(connection, LENGTH.size, _STANDARD_FILES)
    (left,) = LENGTH.unpack(head) if len(head) == LENGTH.size else (0,)
    text = b""
    while len(text) < left and (part := connection.recv(left - len(text))):
        text += part
    if len(files) != _STANDARD_FILES:
        raise ValueError(f"{len(files)} files came with the request")
    request = json.loads(text)
    assert isinstance(request, dict)
    return request, files


def _become(request: dict[str, Any], files: Sequence[int], run: Callable[[Sequence[str]], int]) -> NoReturn:
    """Become the process that was asked for."""
    try:
        os.setsid()
        for number, file in enumerate(files):
            os.dup2(file, number)
        os.closerange(_STANDARD_FILES, _MOST_OPEN)
        os.environ.clear()
        os.environ.update(request["environment"])
        os.chdir(request["folder"])
        end_at_once(run(request["arguments"]))
    except BaseException:
        traceback.print_exc()
        end_at_once(1)


def main(run: Callable[[Sequence[str]], int] = train) -> None:
    """Serve at the socket that the command line names."""
    if len(sys.argv) != 2:
        print(_USAGE, file=sys.stderr)
        sys.exit(2)
    path = Path(sys.argv[1])
    for name in _LOADED:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()  # what is loaded stays shared between the processes
    path.unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX) as listener:
        before = os.umask(0o177)
        listener.bind(str(path))
        os.umask(before)
        listener.listen(64)
        CommandServer(listener, run).serve()


if __name__ == "__main__":
    main()
