"""What hosts over SSH are asked, through real sshds: answers, limits, files, and the log of it all."""

import re
from pathlib import Path

import pytest

from dally.hosts.hosts_file import read_hosts_file
from dally.hosts.processes import Command
from dally.hosts.ssh import SUPERVISOR, each
from testbed.remote.hosts import CommandLog, Hosts, RemoteError
from tests.dally.hosts.sshd import Sshd, free_port
from tests.dally.hosts.waits import await_gone, await_numbers
from tests.testbed.remote.hosts_files import unreachable, write_hosts


def test_a_command_gets_its_input_and_its_output_comes_back(hosts: Hosts) -> None:
    text = "it's\n\x00binary \u00e4\n" * 20_000
    assert hosts.ask("n1", "cat", stdin=text) == text


def test_a_command_that_fails_is_named_with_its_last_words(hosts: Hosts) -> None:
    with pytest.raises(RemoteError, match=r"^n2: sh failed: second$"):
        hosts.ask("n2", "sh", "-c", "echo first >&2; echo second >&2; exit 3")
    assert hosts.attempt("n2", "sh", "-c", "exit 3").status == 3


def test_a_command_that_takes_too_long_is_ended_on_its_host(hosts: Hosts, tmp_path: Path) -> None:
    with pytest.raises(RemoteError, match=r"^n1: sh took longer than 1 s$"):
        hosts.ask("n1", "sh", "-c", 'echo $$ >"$0"; exec sleep 1000', str(tmp_path / "pid"), timeout_s=1)
    await_gone(*await_numbers(tmp_path / "pid", 1))


def test_programs_of_the_administrator_are_found(hosts: Hosts) -> None:
    assert ":/usr/sbin:/sbin" in hosts.ask("n1", "sh", "-c", "echo $PATH")


def test_a_host_that_fails_does_not_hide_the_others(
    daemons: tuple[Sshd, Sshd], tmp_path: Path, log: CommandLog
) -> None:
    port = free_port()
    path = write_hosts(tmp_path, daemons[:1], unreachable("n9", port))
    hosts = Hosts(read_hosts_file(path), log)
    failed = hosts.connect_each()
    try:
        answers = each(["n1", "n9"], lambda name: hosts.ask(name, "echo", name))
    finally:
        hosts.close()
    assert str(failed["n9"]).startswith(f"n9 (127.0.0.1 port {port}) cannot be reached: Connection refused")
    assert failed.keys() == {"n9"}
    assert answers["n1"] == "n1\n"
    assert "not connected to 'n9'" in str(answers["n9"])


def test_a_file_is_written_with_its_mode_and_leaves_nothing_beside_it(hosts: Hosts, tmp_path: Path) -> None:
    folder = tmp_path / "there"
    folder.mkdir()
    assert hosts.write("n1", str(folder / "file"), "old", mode=0o600)
    assert hosts.write("n1", str(folder / "file"), "new", mode=0o640)
    assert not hosts.write("n1", str(folder / "file"), "newer", replace=False)
    assert [(path.name, path.read_text()) for path in folder.iterdir()] == [("file", "new")]
    assert (folder / "file").stat().st_mode & 0o777 == 0o640


def test_a_file_that_cannot_be_written_is_named(hosts: Hosts, tmp_path: Path) -> None:
    with pytest.raises(RemoteError, match=rf"^n1: cannot write {tmp_path}/none/file: "):
        hosts.write("n1", f"{tmp_path}/none/file", "text")


def test_input_that_was_cut_off_starts_nothing(hosts: Hosts, tmp_path: Path) -> None:
    supervisor = ("sh", "-c", SUPERVISOR, "sh", "10", "touch", str(tmp_path / "started"))
    assert hosts.attempt("n1", *supervisor, stdin="12345").status == 1
    assert not (tmp_path / "started").exists()


def test_every_command_is_logged_with_time_status_seconds_and_what_it_complained_of(
    hosts: Hosts, log: CommandLog
) -> None:
    hosts.attempt("n1", "sh", "-c", "echo oh no >&2\nexit 3")
    lines = log.path("n1").read_text().splitlines()
    stamp = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ"
    assert re.fullmatch(stamp + r" started     0\.000 s  sh -c 'echo oh no >&2\\nexit 3'", lines[0])
    assert re.fullmatch(stamp + r"       3 +\d+\.\d{3} s  sh -c 'echo oh no >&2\\nexit 3'", lines[1])
    assert lines[2:] == ["| oh no"]
    assert not log.path("n2").exists()


def test_the_log_tells_what_was_stopped_and_holds_no_input(hosts: Hosts, log: CommandLog) -> None:
    process = hosts.start(Command("a sleeper", ("sleep", "1000"), host="n1"), b"secret")
    process.stop()
    text = log.path("n1").read_text()
    assert re.search(r"Z stopped +\d+\.\d{3} s  sleep 1000\n$", text)
    assert "secret" not in text


def test_the_log_cuts_long_commands_and_long_complaints(hosts: Hosts, log: CommandLog) -> None:
    hosts.attempt("n1", "sh", "-c", "seq 100000 >&2", "x" * 5000)
    text = log.path("n1").read_text()
    assert len(text) < 4000
    assert text.endswith("| 99999\n| 100000\n")


def test_a_full_log_is_set_aside(log: CommandLog, hosts: Hosts) -> None:
    log.path("n1").write_bytes(b"old\n" * (3 << 20))
    hosts.ask("n1", "true")
    assert log.path("n1").read_text().count("\n") == 2
    assert log.path("n1").with_suffix(".log.1").stat().st_size == 12 << 20
