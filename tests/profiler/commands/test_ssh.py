import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from dally.profiles.files import load_profiles
from tests.dally.hosts.sshd import running_sshd
from tests.profiler.commands.real import SMALL, run


@pytest.fixture
def hosts_file(tmp_path: Path) -> Iterator[Path]:
    """Two hosts of a rack, each with an sshd of its own on this machine."""
    with ExitStack() as stack:
        sshds = [stack.enter_context(running_sshd(name, tmp_path / name)) for name in ("h1", "h2")]
        (tmp_path / "known_hosts").write_text("".join(sshd.known for sshd in sshds))
        tables = (f'{sshd.table}python = "{sys.executable}"\n' for sshd in sshds)
        (tmp_path / "hosts.toml").write_text('known_hosts = "known_hosts"\n' + "".join(tables))
        yield tmp_path / "hosts.toml"


def test_hosts_are_measured_over_ssh(hosts_file: Path, tmp_path: Path) -> None:
    done = run("ssh", *SMALL, "--hosts", hosts_file, "--out", tmp_path / "out")

    assert done.returncode == 0, done.stderr
    (profile,) = load_profiles(tmp_path / "out").profiles
    assert set(profile.tiers) == {"machine", "rack"}


def test_a_dry_run_prints_an_ssh_for_each_rank(hosts_file: Path, tmp_path: Path) -> None:
    done = run("ssh", *SMALL, "--hosts", hosts_file, "--out", tmp_path / "out", "--dry-run")

    assert sum(line.startswith("ssh ") for line in done.stdout.splitlines()) == 3
    assert not (tmp_path / "out").exists()


def test_a_host_that_cannot_be_reached_is_named_before_anything_is_written(tmp_path: Path) -> None:
    (tmp_path / "hosts.toml").write_text(
        '[[hosts]]\nname = "h1"\naddress = "127.0.0.1"\nport = 1\nrack = "r1"\n'
    )
    done = run("ssh", *SMALL, "--hosts", tmp_path / "hosts.toml", "--out", tmp_path / "out")

    assert done.returncode == 1
    assert done.stderr.startswith("profile-models: h1 (127.0.0.1 port 1) cannot be reached")
    assert len(done.stderr.splitlines()) == 1
    assert not (tmp_path / "out").exists()
