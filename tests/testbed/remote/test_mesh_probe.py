"""Who reaches whom over TCP, and who answers instead."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed.remote import mesh_probe
from testbed.remote.mesh_probe import reach
from tests.dally.hosts.sshd import free_port


@pytest.fixture
def port() -> Iterator[int]:
    """Where a host called n1 listens."""
    argv = [sys.executable, str(Path(mesh_probe.__file__)), "listen", "n1"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        yield int(process.stdout.readline())
        process.kill()


@pytest.mark.parametrize("address", ["127.0.0.1", "localhost"])
def test_a_host_that_answers_is_reached_again_and_again(port: int, address: str) -> None:
    assert [reach("n1", address, port) for _ in range(3)] == [None, None, None]


def test_another_host_at_the_address_is_told(port: int) -> None:
    assert reach("n2", "127.0.0.1", port) == "n1 answers there"


def test_why_a_host_is_not_reached_is_told() -> None:
    assert reach("n1", "127.0.0.1", free_port()) == "Connection refused"
