"""`dally testbed check` on real hosts: two sshds of this machine, and one that does not answer."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from dally import __version__
from dally.commands import main
from testbed.remote.hosts import Hosts
from testbed.remote.survey import read_clock
from tests.dally.hosts.sshd import Sshd, free_port
from tests.testbed.remote.hosts_files import unreachable, write_hosts


def check(path: Path, *options: str) -> Result:
    """Run the command."""
    logs = f"--logs={path.parent / 'logs'}"
    return CliRunner().invoke(main, ["testbed", "check", "--hosts", str(path), logs, *options])


def findings(path: Path) -> tuple[int, dict[tuple[str, str], dict[str, str]]]:
    """Its exit code, and what it found by host and check."""
    done = check(path, "--json")
    return done.exit_code, {(row["host"], row["check"]): row for row in json.loads(done.stdout)}


def test_two_hosts_that_are_fit(hosts_toml: Path) -> None:
    code, found = findings(hosts_toml)
    bad = [row for row in found.values() if row["level"] == "problem"]
    assert (code, bad) == (0, [])
    for host, other in (("n1", "n2"), ("n2", "n1")):
        assert found[host, "dally"]["found"] == __version__
        assert found[host, "network"]["found"] == "reaches 1 others"
        assert found[host, "all-reduce"]["found"].startswith("1 MiB in ")
        assert found[host, "all-reduce"]["found"].endswith(f" ms with {other}")
        assert "a private one can be brought up" in found[host, "slurm"]["found"]


def test_hosts_are_judged_though_another_does_not_answer(daemons: tuple[Sshd, Sshd], tmp_path: Path) -> None:
    path = write_hosts(tmp_path, daemons[:1], unreachable("n9", free_port()))
    path.write_text(path.read_text().replace("python = ", 'python = "no-python" #'))
    done = check(path)
    assert done.exit_code == 1
    lines = done.stdout.splitlines()
    assert any(line.startswith("NO n9, ssh: n9 (127.0.0.1 port ") for line in lines)
    (python,) = [line for line in lines if line.startswith("NO n1, python: ")]
    assert python.endswith("-> python of n1 in the hosts file must name one that runs there")
    assert "date" in (tmp_path / "logs" / "n1.log").read_text()


def test_a_clock_on_this_machine_is_right_within_its_round_trip(hosts: Hosts) -> None:
    clock = read_clock(hosts, "n1")
    assert abs(clock.offset_s) <= clock.uncertainty_s + 0.01


def test_a_hosts_file_that_is_missing_is_one_line(tmp_path: Path) -> None:
    done = check(tmp_path / "hosts.toml")
    assert done.exit_code == 1
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("options", [("--partition", "gpu"), ("--work", "/nfs"), ("--reservation", "r")])
def test_a_partition_and_its_work_folder_go_together(tmp_path: Path, options: tuple[str, ...]) -> None:
    done = check(tmp_path / "hosts.toml", *options)
    assert done.exit_code == 2
    assert "--partition needs --work; --reservation and --slurm-conf go with both" in done.stderr
