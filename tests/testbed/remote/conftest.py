"""Fixtures for hosts over SSH: two real sshds of this machine, and connections to both."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from dally.hosts.hosts_file import read_hosts_file
from testbed.remote.hosts import CommandLog, Hosts
from tests.dally.hosts.sshd import Sshd, running_sshd
from tests.testbed.remote.hosts_files import write_hosts


@pytest.fixture(scope="module")
def daemons(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Sshd, Sshd]]:
    """Two sshds, as of the hosts n1 and n2."""
    folder = tmp_path_factory.mktemp("sshd")
    with running_sshd("n1", folder / "n1") as one, running_sshd("n2", folder / "n2") as two:
        yield one, two


@pytest.fixture
def hosts_toml(daemons: tuple[Sshd, Sshd], tmp_path: Path) -> Path:
    """A hosts file of both."""
    return write_hosts(tmp_path, daemons)


@pytest.fixture
def log(tmp_path: Path) -> CommandLog:
    """The log of what hosts are asked."""
    return CommandLog(tmp_path / "logs")


@pytest.fixture
def hosts(hosts_toml: Path, log: CommandLog) -> Iterator[Hosts]:
    """Connections to both."""
    with Hosts(read_hosts_file(hosts_toml), log) as connected:
        yield connected
