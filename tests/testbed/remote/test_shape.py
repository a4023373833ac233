"""`dally testbed shape` for real: on hosts in network namespaces, over SSH through what it shapes."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from dally.hosts.network import LocalNetwork
from dally.hosts.network_spec import NetworkSpec, Rack, burst_bytes
from testbed.remote.shaping import RECORDS
from tests.dally.hosts.sshd import Sshd, running_sshd
from tests.patience import LONGEST_S
from tests.testbed.remote.hosts_files import write_hosts

SPEC = NetworkSpec((Rack(1, 400e6), Rack(1)))
OWN_RUN = ("unshare", "--mount", "sh", "-c", 'mount -t tmpfs none /run && mkdir /run/sshd && exec "$@"', "sh")
"""As every host has a /run of its own."""


@dataclass(frozen=True, slots=True)
class ShapedSite:
    """Two hosts with a network card each: r1h1 has a limit from before, r2h1 has none."""

    network: LocalNetwork
    daemons: tuple[Sshd, ...]
    hosts_toml: Path

    def command(self, *options: str) -> subprocess.CompletedProcess[str]:
        """Run `dally testbed shape` from outside the racks."""
        folder = self.hosts_toml.parent
        argv = [sys.executable, "-m", "dally", "testbed", "shape", f"--hosts={self.hosts_toml}"]
        return subprocess.run(
            self.network.core_command([*argv, f"--logs={folder / 'logs'}", *options]),
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            timeout=LONGEST_S,
        )

    def done(self, *options: str) -> list[str]:
        """The lines of a run that went well."""
        run = self.command(*options)
        assert (run.returncode, run.stderr) == (0, "")
        return run.stdout.splitlines()

    def refused(self, *options: str) -> str:
        """The one line of a run that did not."""
        run = self.command(*options)
        assert (run.returncode, run.stderr.count("\n")) == (1, 1)
        return run.stderr

    def inside(self, host: str, *argv: str) -> str:
        """What a command prints on a host."""
        command = self.network.command(host, argv)
        return subprocess.run(command, capture_output=True, text=True, timeout=LONGEST_S, check=True).stdout

    def qdiscs(self, host: str) -> list[dict[str, Any]]:
        """What a host's network card has."""
        found: list[dict[str, Any]] = json.loads(
            self.inside(host, "tc", "-raw", "-json", "qdisc", "show", "dev", "eth0")
        )
        return found


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ShapedSite]:
    """The site, once for all tests."""
    folder = tmp_path_factory.mktemp("site")
    with LocalNetwork(SPEC) as network, ExitStack() as stack:
        daemons = tuple(
            stack.enter_context(
                running_sshd(host, folder / host, network.address(host), network.command(host, OWN_RUN))
            )
            for host in network.spec.hosts
        )
        yield ShapedSite(network, daemons, write_hosts(folder, daemons))


@pytest.fixture
def site(started: ShapedSite) -> Iterator[ShapedSite]:
    """The site, restored after the test."""
    yield started
    started.done("--restore")


def test_hosts_are_shaped_through_the_connection_and_restored_exactly(site: ShapedSite) -> None:
    before = {host: site.qdiscs(host) for host in site.network.spec.hosts}
    assert site.done("--rate=50Mb", "--yes") == [
        "r1h1: eth0 sends at most 50 Mb/s; before: tbf at 400 Mb/s",
        "r2h1: eth0 sends at most 50 Mb/s; before: noqueue",
    ]
    for host in site.network.spec.hosts:
        (shaped,) = site.qdiscs(host)
        assert (shaped["kind"], shaped["options"]["rate"]) == ("tbf", 50e6 / 8)
        assert shaped["options"]["burst"] == pytest.approx(burst_bytes(50e6), rel=0.01)
        statistics = json.loads(site.inside(host, "tc", "-s", "-json", "qdisc", "show", "dev", "eth0"))
        assert statistics[0]["bytes"] > 0
    assert site.done("--restore") == [
        "r1h1: eth0 has tbf at 400 Mb/s as before",
        "r2h1: eth0 has noqueue as before",
    ]
    assert {host: site.qdiscs(host) for host in site.network.spec.hosts} == before


def test_shaping_twice_keeps_the_first_record_and_restoring_twice_is_harmless(site: ShapedSite) -> None:
    before = site.qdiscs("r1h1")
    site.done("--rate=50Mb", "--yes", "--only=r1h1")
    assert site.done("--rate=20Mb", "--yes", "--only=r1h1") == [
        "r1h1: eth0 sends at most 20 Mb/s; before: tbf at 400 Mb/s"
    ]
    assert site.done("--show") == ["r1h1: eth0 has tbf at 20 Mb/s (by Dally)", "r2h1: eth0 has noqueue"]
    site.done("--restore")
    assert site.qdiscs("r1h1") == before
    assert site.done("--restore") == ["r1h1: nothing to restore", "r2h1: nothing to restore"]


def test_without_yes_nothing_that_carries_the_connection_is_touched(site: ShapedSite) -> None:
    said = site.refused("--rate=50Mb")
    assert "eth0 of r1h1, eth0 of r2h1 also carry this SSH connection; nothing was changed" in said
    assert [site.qdiscs(host)[0].get("handle") != "da11:" for host in site.network.spec.hosts] == [True, True]


def test_an_interface_that_does_not_carry_the_connection_is_shaped_without_asking(site: ShapedSite) -> None:
    site.inside("r2h1", "ip", "link", "add", "eth1", "type", "veth", "peer", "name", "eth2")
    site.inside("r2h1", "ip", "link", "set", "eth1", "up")
    try:
        assert site.done("--rate=50Mb", "--only=r2h1", "--interface=eth1") == [
            "r2h1: eth1 sends at most 50 Mb/s; before: noqueue"
        ]
        assert site.done("--restore", "--only=r2h1") == ["r2h1: eth1 has noqueue as before"]
    finally:
        site.inside("r2h1", "ip", "link", "del", "eth1")


def test_if_one_host_cannot_be_restored_exactly_none_is_touched(site: ShapedSite) -> None:
    site.inside("r2h1", "tc", "qdisc", "add", "dev", "eth0", "root", "handle", "1:", "htb")
    before = {host: site.qdiscs(host) for host in site.network.spec.hosts}
    try:
        said = site.refused("--rate=50Mb", "--yes")
    finally:
        site.inside("r2h1", "tc", "qdisc", "del", "dev", "eth0", "root")
    assert "r2h1: eth0 is left alone: it has htb with settings of its own" in said
    assert site.qdiscs("r1h1") == before["r1h1"]


def test_what_somebody_else_has_set_since_is_left_alone(site: ShapedSite) -> None:
    site.done("--rate=50Mb", "--yes", "--only=r2h1")
    site.inside(
        "r2h1", "tc", "qdisc", "replace", "dev", "eth0", "root", "handle", "7:", "pfifo", "limit", "9"
    )
    assert "r2h1: eth0 was given pfifo by somebody else since" in site.refused("--restore", "--only=r2h1")
    site.inside("r2h1", "tc", "qdisc", "del", "dev", "eth0", "root")
    assert site.done("--restore", "--only=r2h1") == ["r2h1: eth0 has noqueue as before"]


def test_the_record_is_for_root_alone(site: ShapedSite) -> None:
    site.done("--rate=50Mb", "--yes", "--only=r2h1")
    log = (site.hosts_toml.parent / "logs" / "r2h1.log").read_text()
    assert f"{RECORDS}/eth0.json 600 ln" in log
    assert f"mkdir -p -m 700 {RECORDS}" in log


def test_wrong_options_are_refused(site: ShapedSite) -> None:
    assert "--only names 'r9h9'; valid: r1h1, r2h1" in site.refused("--restore", "--only=r9h9")
    assert "must be 1e6 to 1e12" in site.refused("--rate=10kb")
    assert site.command().returncode == 2
    assert site.command("--restore", "--show").returncode == 2
