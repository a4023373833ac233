import dataclasses
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, TypeVar

import pytest

from profiler.rank import background
from profiler.rank.background import FlowError, background_flows
from profiler.rank.exchange import RankExchange
from profiler.rank.peers import Peer
from tests.patience import LONGEST_S
from tests.profiler.rank.ranks import free_port
from tests.profiler.rank.test_peers import FIRST

SOME_BYTES = 8 << 20

Value = TypeVar("Value")


class ThreadExchange(RankExchange):
    """An exchange between threads that play ranks."""

    def __init__(self, rank: int, values: list[Any], barrier: threading.Barrier) -> None:
        super().__init__(rank, len(values))
        self._values = values
        self._barrier = barrier

    def gather(self, value: Value) -> list[Value]:
        self._values[self.rank] = value
        self._barrier.wait(LONGEST_S)
        values = list(self._values)
        self._barrier.wait(LONGEST_S)
        return values


def hosts(count: int) -> list[Peer]:
    """Ranks that take each other to be on hosts of their own."""
    return [
        dataclasses.replace(FIRST, rank=rank, host=f"n{rank}", stack=f"stack {rank}", address="127.0.0.1")
        for rank in range(count)
    ]


def keep_flows(peers: list[Peer]) -> list[tuple[int, ...]]:
    """What every rank sees while flows run between all of them."""
    values: list[Any] = [None] * len(peers)
    barrier = threading.Barrier(len(peers))

    def keep(rank: int) -> tuple[int, ...]:
        with background_flows(2, peers, ThreadExchange(rank, values, barrier)) as children:
            assert all(os.path.exists(f"/proc/{pid}") for pid in children)
            return children

    with ThreadPoolExecutor(len(peers)) as pool:
        return list(pool.map(keep, range(len(peers))))


@contextmanager
def flow_process() -> Iterator[tuple[subprocess.Popen[str], int]]:
    """The process, and the port on which it accepts flows."""
    with subprocess.Popen(
        [sys.executable, "-m", "profiler.rank.flows"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        try:
            yield process, int(process.stdout.readline())
        finally:
            process.kill()


def direct(process: subprocess.Popen[str], port: int, count: int) -> str:
    """Tell it where to send, and hear what it says."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(f"127.0.0.1 {port} {count}\n")
    process.stdin.flush()
    return process.stdout.readline()


def receive(stream: socket.socket, wanted: int) -> int:
    received = 0
    while received < wanted:
        received += len(stream.recv(1 << 16))
    return received


def test_so_many_flows_are_sent_without_end() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, flow_process() as (process, _):
        server.settimeout(LONGEST_S)
        assert direct(process, server.getsockname()[1], 2) == "sending\n"
        for _ in range(2):
            stream, _ = server.accept()
            with stream:
                assert receive(stream, SOME_BYTES) >= SOME_BYTES


def test_flows_are_taken_as_fast_as_they_come() -> None:
    with socket.create_server(("127.0.0.1", 0)) as sink, flow_process() as (process, port):
        direct(process, sink.getsockname()[1], 1)
        with socket.create_connection(("127.0.0.1", port), LONGEST_S) as stream:
            stream.sendall(bytes(SOME_BYTES))


def test_a_flow_process_ends_with_its_standard_input() -> None:
    with socket.create_server(("127.0.0.1", 0)) as sink, flow_process() as (process, _):
        direct(process, sink.getsockname()[1], 1)
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(LONGEST_S) == 0


def test_a_flow_process_that_is_told_nothing_ends_too() -> None:
    with flow_process() as (process, _):
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(LONGEST_S) == 0


def test_a_receiver_that_is_not_there_is_told() -> None:
    with flow_process() as (process, _):
        assert direct(process, free_port(), 1) == ""
        assert process.stderr is not None
        assert "Connection refused" in process.stderr.read()


def test_every_host_has_one_process_while_flows_run_and_none_afterwards() -> None:
    children = keep_flows(hosts(3))
    assert [len(pids) for pids in children] == [1, 1, 1]
    assert not any(os.path.exists(f"/proc/{pid}") for pids in children for pid in pids)


def test_ranks_on_the_same_host_share_its_process() -> None:
    first, second = hosts(2)
    peers = [first, dataclasses.replace(first, rank=1), dataclasses.replace(second, rank=2)]
    assert [len(pids) for pids in keep_flows(peers)] == [1, 0, 1]


def test_one_host_alone_has_no_flows() -> None:
    assert keep_flows(hosts(1)) == [()]


def test_where_flows_cannot_start_every_rank_is_told_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(process: subprocess.Popen[str], target: str, count: int) -> str:
        return "background flow: Connection refused"

    monkeypatch.setattr(background, "_connect", refuse)
    with pytest.raises(FlowError, match="no background flows from n0: background flow: Connection refused"):
        keep_flows(hosts(2))
