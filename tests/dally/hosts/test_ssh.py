"""Commands over SSH, through real sshds: what they say, how they end, and who is not let in."""

import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from dally.hosts import ssh
from dally.hosts.hosts_file import HostsFile, read_hosts_file
from dally.hosts.processes import Command, ProcessError, run_together
from dally.hosts.ssh import SshHosts
from dally.hosts.ssh_login import SshError
from tests.dally.hosts.sshd import Sshd, free_port, make_key, running_sshd
from tests.dally.hosts.waits import await_gone, await_numbers, is_gone
from tests.patience import LONGEST_S, wait_until

TELL_PID = "import os, sys; open(sys.argv[1], 'a').write(f'{os.getpid()}\\n')\n"
SLEEP = "import time; time.sleep(1000)\n"
IGNORE = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"

DRIVER = """
import sys
from pathlib import Path
from dally.hosts.hosts_file import read_hosts_file
from dally.hosts.processes import Command, run_together
from dally.hosts.ssh import SshHosts
with SshHosts(read_hosts_file(Path(sys.argv[1]))) as hosts:
    argv = (sys.executable, "-c", sys.argv[2], sys.argv[3])
    run_together([Command(name, argv, host=name) for name in ("n1", "n2")], hosts.start, print, 600)
"""


@pytest.fixture(scope="module")
def daemons(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Sshd, Sshd]]:
    """Two sshds, as of the hosts n1 and n2."""
    folder = tmp_path_factory.mktemp("sshd")
    with running_sshd("n1", folder / "n1") as one, running_sshd("n2", folder / "n2") as two:
        yield one, two


@pytest.fixture
def hosts_toml(daemons: tuple[Sshd, Sshd], tmp_path: Path) -> Path:
    """A hosts file of both."""
    return write_hosts(tmp_path, *daemons)


@pytest.fixture
def hosts(hosts_toml: Path) -> Iterator[SshHosts]:
    """Connections to both."""
    with SshHosts(read_hosts_file(hosts_toml)) as connected:
        yield connected


def write_hosts(folder: Path, *daemons: Sshd, known: str | None = None) -> Path:
    """A hosts file, and the known hosts beside it: the daemons' own keys or those given."""
    (folder / "known").write_text(known if known is not None else "".join(one.known for one in daemons))
    path = folder / "hosts.toml"
    path.write_text('known_hosts = "known"\n' + "".join(one.table for one in daemons))
    return path


def python(host: str, script: str, *arguments: object, **env: str) -> Command:
    """A command that runs some Python on a host."""
    return Command(f"rank on {host}", (sys.executable, "-c", script, *map(str, arguments)), env, host)


def refusal(file: HostsFile) -> str:
    """Why not all hosts of a file can be connected to; in one line."""
    with pytest.raises(SshError) as caught:
        SshHosts(file).connect()
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_lines_come_back_and_variables_and_arguments_arrive_as_they_are(hosts: SshHosts) -> None:
    odd = 'it\'s "$HOME" `x` \\ !'
    lines: list[str] = []
    script = "import os, sys; print(os.environ['ODD']); print(sys.argv[1])"
    run_together([python("n1", script, odd, ODD=odd)], hosts.start, lines.append, LONGEST_S)
    assert lines == [odd, odd]


def test_a_rank_that_fails_ends_the_others_on_other_hosts(hosts: SshHosts, tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    await_other = (
        "import sys, time\nfrom pathlib import Path\n"
        "while not Path(sys.argv[1]).exists(): time.sleep(0.01)\nraise ValueError('no GPU')"
    )
    commands = [python("n1", TELL_PID + SLEEP, pids), python("n2", await_other, pids)]
    with pytest.raises(ProcessError, match=r"^rank on n2: ValueError: no GPU$"):
        run_together(commands, hosts.start, print, LONGEST_S)
    await_gone(*await_numbers(pids, 1))


def test_a_killed_rank_is_named_with_its_signal(hosts: SshHosts) -> None:
    with pytest.raises(ProcessError, match=r"^rank on n1: killed by SIGKILL$"):
        run_together([python("n1", "import os; os.kill(os.getpid(), 9)")], hosts.start, print, LONGEST_S)


def test_stop_ends_what_ignores_the_request_and_what_that_started(
    hosts: SshHosts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    grace = f"sleep {ssh.GRACE_S}"
    assert grace in ssh.SUPERVISOR
    monkeypatch.setattr(ssh, "SUPERVISOR", ssh.SUPERVISOR.replace(grace, "sleep 0.2"))
    pids = tmp_path / "pids"
    stubborn = IGNORE + TELL_PID + SLEEP
    parent = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {stubborn!r}, sys.argv[1]])\n"
    process = hosts.start(python("n1", IGNORE + parent + TELL_PID + SLEEP, pids))
    running = await_numbers(pids, 2)
    process.stop()
    for pid in running:
        await_gone(pid)


def test_what_a_command_leaves_behind_ends_with_it(hosts: SshHosts, tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    child = (
        f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {TELL_PID + SLEEP!r}, sys.argv[1]])"
    )
    wait = "\nimport time\nwhile not os.path.exists(sys.argv[1]): time.sleep(0.01)"
    run_together([python("n1", child + "\nimport os" + wait, pids)], hosts.start, print, LONGEST_S)
    await_gone(*await_numbers(pids, 1))


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_when_the_driver_is_ended_by_a_signal_its_ranks_end(
    number: signal.Signals, hosts_toml: Path, tmp_path: Path
) -> None:
    pids = tmp_path / "pids"
    argv = [sys.executable, "-c", DRIVER, str(hosts_toml), TELL_PID + SLEEP, str(pids)]
    with subprocess.Popen(argv, stderr=subprocess.DEVNULL) as driver:
        ranks = await_numbers(pids, 2)
        os.kill(driver.pid, number)
        driver.wait(LONGEST_S)
    for pid in ranks:
        await_gone(pid)


def test_a_connection_that_breaks_is_reported_and_ends_the_rank(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    with running_sshd("n1", tmp_path / "n1") as daemon:
        with SshHosts(read_hosts_file(write_hosts(tmp_path, daemon))) as hosts:
            process = hosts.start(python("n1", TELL_PID + SLEEP, pids))
            (rank,) = await_numbers(pids, 1)
            (session,) = children(daemon.process.pid)
            os.kill(session, signal.SIGKILL)
            assert process.wait() is None
            process.stop()
        await_gone(rank)


def children(pid: int) -> list[int]:
    """The children of a process."""
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def test_a_host_behind_a_jump_host_is_reached_through_it(daemons: tuple[Sshd, Sshd], tmp_path: Path) -> None:
    host = daemons[0]
    with running_sshd("gate", tmp_path / "gate") as gate:
        path = write_hosts(tmp_path, host, known=gate.known + host.known)
        jumps = gate.table.replace("[[hosts]]", "[[jumps]]").replace('rack = "r1"\n', "")
        path.write_text(path.read_text() + f'jump = "gate"\n{jumps}')
        lines: list[str] = []
        with SshHosts(read_hosts_file(path)) as hosts:
            assert len(children(gate.process.pid)) == 1
            command = python("n1", "import os; print(os.environ['SSH_CONNECTION'].split()[3])")
            run_together([command], hosts.start, lines.append, LONGEST_S)
    assert lines == [str(host.port)]


def test_hosts_behind_a_jump_host_that_fails_say_so_and_others_are_connected(
    daemons: tuple[Sshd, Sshd], tmp_path: Path
) -> None:
    path = write_hosts(tmp_path, *daemons)
    jump = f'jump = "gate"\n[[jumps]]\nname = "gate"\naddress = "127.0.0.1"\nport = {free_port()}\n'
    path.write_text(path.read_text() + jump)
    hosts = SshHosts(read_hosts_file(path))
    try:
        failed = hosts.connect_each()
        assert {name: str(error)[:4] for name, error in failed.items()} == {"n2": "gate"}
        run_together([python("n1", "")], hosts.start, print, LONGEST_S)
    finally:
        hosts.close()


def test_a_command_reads_what_it_is_given(hosts: SshHosts) -> None:
    process = hosts.start(Command("cat", ("cat",), host="n1"), b"a\0b\n")
    assert (list(process.stdout), process.wait()) == ([b"a\0b\n"], 0)
    process.stop()


def test_a_shown_command_does_the_same_in_a_shell(hosts: SshHosts, hosts_toml: Path) -> None:
    line = hosts.shown(
        python("n2", "import os, sys; print(os.environ['ODD'], sys.argv[1])", "a b", ODD="it's")
    )
    assert str(hosts_toml.parent / "known") in line
    done = subprocess.run(shlex.split(line), capture_output=True, text=True, timeout=LONGEST_S, check=True)
    assert done.stdout == "it's a b\n"


def test_a_command_for_an_unknown_host_is_refused(hosts: SshHosts) -> None:
    with pytest.raises(ProcessError, match=r"not connected to 'n3'; connected: n1, n2"):
        hosts.start(python("n3", ""))


def test_an_unknown_host_key_is_refused_with_the_way_to_add_it(
    daemons: tuple[Sshd, Sshd], tmp_path: Path
) -> None:
    said = refusal(read_hosts_file(write_hosts(tmp_path, daemons[0], known="")))
    assert said.startswith("n1: its host key is not in ")
    assert f"ssh-keyscan -p {daemons[0].port} 127.0.0.1 >> {tmp_path}/known" in said


def test_a_changed_host_key_is_refused_with_the_way_to_forget_the_old_one(
    daemons: tuple[Sshd, Sshd], tmp_path: Path
) -> None:
    one, two = daemons
    said = refusal(
        read_hosts_file(write_hosts(tmp_path, one, known=two.known.replace(str(two.port), str(one.port))))
    )
    assert said.startswith("n1: its host key is not the one in ")
    assert f"ssh-keygen -f {tmp_path}/known -R '[127.0.0.1]:{one.port}'" in said


def test_a_key_that_the_host_refuses_is_named(daemons: tuple[Sshd, Sshd], tmp_path: Path) -> None:
    make_key(tmp_path / "other")
    path = write_hosts(tmp_path, daemons[0])
    path.write_text(path.read_text().replace(str(daemons[0].user_key), str(tmp_path / "other")))
    said = refusal(read_hosts_file(path))
    assert said.startswith("n1: refuses ")
    assert f"the key {tmp_path}/other" in said
    assert "authorized_keys" in said


def test_a_key_locked_by_a_passphrase_is_named(daemons: tuple[Sshd, Sshd], tmp_path: Path) -> None:
    make_key(tmp_path / "locked", "secret")
    path = write_hosts(tmp_path, daemons[0])
    path.write_text(path.read_text().replace(str(daemons[0].user_key), str(tmp_path / "locked")))
    assert refusal(read_hosts_file(path)) == (
        f"n1: the key {tmp_path}/locked is locked by a passphrase; run: ssh-add {tmp_path}/locked"
    )


def test_a_key_file_that_is_not_there_is_named(daemons: tuple[Sshd, Sshd], tmp_path: Path) -> None:
    path = write_hosts(tmp_path, daemons[0])
    path.write_text(path.read_text().replace(str(daemons[0].user_key), "no-key"))
    assert refusal(read_hosts_file(path)).startswith(f"n1: there is no key file {tmp_path}/no-key")


def test_missing_known_hosts_are_named(daemons: tuple[Sshd, Sshd], tmp_path: Path) -> None:
    path = write_hosts(tmp_path, daemons[0])
    (tmp_path / "known").unlink()
    assert refusal(read_hosts_file(path)).startswith(f"cannot read the known hosts {tmp_path}/known")


def test_if_one_host_cannot_be_reached_it_is_named_and_no_other_stays_connected(
    daemons: tuple[Sshd, Sshd], tmp_path: Path
) -> None:
    path = write_hosts(tmp_path, daemons[0])
    port = free_port()
    path.write_text(
        path.read_text() + f'[[hosts]]\nname = "n9"\naddress = "127.0.0.1"\nport = {port}\nrack = "r1"\n'
    )
    said = refusal(read_hosts_file(path))
    assert said.startswith(f"n9 (127.0.0.1 port {port}) cannot be reached: Connection refused; check")
    sessions = children(daemons[0].process.pid)
    wait_until(lambda: all(map(is_gone, sessions)), "the session at the other host to end")


def test_an_address_that_does_not_exist_is_named(tmp_path: Path) -> None:
    path = write_hosts(tmp_path)
    path.write_text('[[hosts]]\nname = "n1"\naddress = "no-such-host.invalid"\nrack = "r1"\n')
    assert refusal(read_hosts_file(path)).startswith("n1 (no-such-host.invalid port 22) cannot be reached: ")


def test_without_paramiko_the_way_to_install_it_is_told() -> None:
    script = "import sys; sys.modules['paramiko'] = None; import dally.hosts.ssh"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=LONGEST_S)
    assert done.stderr.splitlines()[-1].endswith("in Dally's folder: pip install '.[ssh]'")
