"""The process behind background flows: sends and discards TCP streams until its standard input ends.

It writes the port on which it accepts streams, reads a line `ADDRESS PORT COUNT` that says where to send how
many, answers `sending` when all are connected, and goes on until its standard input ends, as it does when the
rank that started it dies. Needs no torch, so that it starts at once and stays small.
"""

import os
import selectors
import socket
import sys
from collections.abc import Sequence

_CHUNK = bytearray(1 << 20)
_CONNECT_TIMEOUT_S = 20.0
_STDIN = 0


def connect(address: str, port: int, count: int) -> list[socket.socket]:
    """So many streams to a receiver, ready to send without blocking."""
    streams = [socket.create_connection((address, port), _CONNECT_TIMEOUT_S) for _ in range(count)]
    for stream in streams:
        stream.setblocking(False)
    return streams


def listen() -> socket.socket:
    """A socket on all addresses and a free port."""
    if socket.has_dualstack_ipv6():
        return socket.create_server(("", 0), family=socket.AF_INET6, dualstack_ipv6=True)
    return socket.create_server(("", 0))


def discard(stream: socket.socket) -> bool:
    """Drop what has arrived, without a copy (MSG_TRUNC, tcp(7)); whether more may come."""
    try:
        return stream.recv_into(_CHUNK, 0, socket.MSG_TRUNC) > 0
    except BlockingIOError:
        return True
    except ConnectionError:
        return False


def send(stream: socket.socket) -> bool:
    """Send what fits now; whether the receiver still takes it."""
    try:
        stream.send(_CHUNK)
    except BlockingIOError:
        return True
    except ConnectionError:
        return False
    return True


def serve(server: socket.socket, senders: Sequence[socket.socket]) -> None:
    """Accept, discard and send until standard input ends."""
    with selectors.DefaultSelector() as selector:
        selector.register(server, selectors.EVENT_READ)
        selector.register(_STDIN, selectors.EVENT_READ)
        for stream in senders:
            selector.register(stream, selectors.EVENT_WRITE)
        while True:
            for key, events in selector.select():
                if key.fileobj == _STDIN:
                    return
                assert isinstance(key.fileobj, socket.socket)
                if key.fileobj is server:
                    stream, _ = server.accept()
                    stream.setblocking(False)
                    selector.register(stream, selectors.EVENT_READ)
                elif not (send if events & selectors.EVENT_WRITE else discard)(key.fileobj):
                    selector.unregister(key.fileobj)


def main() -> None:
    """Be the process described above."""
    server = listen()
    print(server.getsockname()[1], flush=True)
    line = os.read(_STDIN, 1024).decode().split()
    if len(line) == 3:
        senders = connect(line[0], int(line[1]), int(line[2]))
        print("sending", flush=True)
        serve(server, senders)


if __name__ == "__main__":
    try:
        main()
    except OSError as error:
        sys.exit(f"background flow: {error}")
