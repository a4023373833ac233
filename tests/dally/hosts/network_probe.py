"""Measures what a local network carries: TCP throughput between pairs of hosts, and round trips.

`scripts/measure_network.py` writes the tables of docs/local-network.md with it.
"""

import json
import socket
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from time import monotonic, sleep

from dally.hosts.local_process import LocalProcess
from dally.hosts.network import LocalNetwork
from dally.hosts.processes import Command, run_together

Pair = tuple[str, str]
"""Who sends, who receives."""

_PORT = 29_000
_CHUNK_BYTES = 256 * 1024
_MESSAGE = b"x" * 64
_ROUND_TRIPS = 300
_JOIN_S = 300.0
_RETRY_S = 0.01
_LIMIT_S = 300.0


@dataclass(frozen=True, slots=True)
class ProbeTransfer:
    """Bytes that one connection delivered, and when: on the clock that all hosts of the machine share."""

    payload_bytes: int
    start_s: float
    end_s: float


def transfer(network: LocalNetwork, pairs: Sequence[Pair], payload_bytes: int) -> tuple[ProbeTransfer, ...]:
    """Send bytes between pairs of hosts, all at once.

    Raises:
        DallyError: A host is unknown, the network is not up, or a transfer failed.
    """
    lines = _run(network, "send", [str(payload_bytes)], "receive", pairs)
    return tuple(ProbeTransfer(payload_bytes, *lines[number]) for number in range(len(pairs)))


def together_bps(transfers: Sequence[ProbeTransfer]) -> float:
    """Payload bits per second that transfers had together, from the first start to the last end."""
    duration_s = max(one.end_s for one in transfers) - min(one.start_s for one in transfers)
    return sum(one.payload_bytes for one in transfers) * 8 / duration_s


def round_trip_s(network: LocalNetwork, pair: Pair) -> float:
    """Median time from sending 64 bytes to having them back.

    Raises:
        DallyError: A host is unknown, the network is not up, or no answer came.
    """
    return float(_run(network, "ping", [], "pong", [pair])[0][0])


def _run(
    network: LocalNetwork, client: str, arguments: Sequence[str], server: str, pairs: Sequence[Pair]
) -> dict[int, list[float]]:
    """Run servers and clients; what those that report said, by the number of their pair."""
    commands = []
    for number, (source, target) in enumerate(pairs):
        peer = [str(number), network.address(target)]
        for role, host, extra in ((server, target, []), (client, source, arguments)):
            argv = network.command(host, [sys.executable, "-P", __file__, role, *peer, *extra])
            commands.append(Command(f"{role} on {host}", argv))
    lines: list[str] = []
    run_together(commands, LocalProcess, lines.append, _LIMIT_S)
    return dict(map(json.loads, lines))


def _send(connection: socket.socket, payload_bytes: int) -> None:
    chunk = bytes(_CHUNK_BYTES)
    for start in range(0, payload_bytes, _CHUNK_BYTES):
        connection.sendall(chunk[: payload_bytes - start])


def _receive(connection: socket.socket) -> list[float]:
    start_s = monotonic()
    buffer = bytearray(_CHUNK_BYTES)
    while connection.recv_into(buffer):
        pass
    return [start_s, monotonic()]


def _ping(connection: socket.socket) -> list[float]:
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    times = []
    for _ in range(_ROUND_TRIPS):
        start_s = monotonic()
        connection.sendall(_MESSAGE)
        connection.recv(len(_MESSAGE), socket.MSG_WAITALL)
        times.append(monotonic() - start_s)
    return [median(times)]


def _pong(connection: socket.socket) -> None:
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    while message := connection.recv(len(_MESSAGE)):
        connection.sendall(message)


def _accept(address: str, port: int) -> socket.socket:
    with socket.create_server((address, port)) as server:
        server.settimeout(_JOIN_S)
        return server.accept()[0]


def _connect(address: str, port: int) -> socket.socket:
    """Connect as soon as the server listens."""
    until = monotonic() + _JOIN_S
    while True:
        try:
            return socket.create_connection((address, port), timeout=_JOIN_S)
        except ConnectionRefusedError:
            if monotonic() > until:
                raise
            sleep(_RETRY_S)


def main(role: str, number: str, address: str, *arguments: str) -> None:
    """Play one role of one pair; those that measure print the pair's number and what they measured."""
    port = _PORT + int(number)
    reach = _accept if role in ("receive", "pong") else _connect
    found: list[float] | None = None
    with reach(address, port) as connection:
        connection.settimeout(_LIMIT_S)
        if role == "send":
            _send(connection, int(arguments[0]))
        elif role == "receive":
            found = _receive(connection)
        elif role == "ping":
            found = _ping(connection)
        else:
            _pong(connection)
    if found:
        print(json.dumps([int(number), found]))


if __name__ == "__main__":
    main(*sys.argv[1:])
