"""Local networks, set up for real: what they carry, and that nothing of them stays."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from dally.errors import InputError
from dally.hosts import network as network_module
from dally.hosts.local_process import LocalProcess
from dally.hosts.network import LocalNetwork, NetworkError
from dally.hosts.network_spec import NetworkSpec, Rack
from dally.hosts.network_wiring import WiringCommand, wiring
from dally.hosts.processes import Command, ProcessError, run_together
from tests.dally.hosts.network_probe import Pair, round_trip_s, together_bps, transfer
from tests.dally.hosts.waits import await_gone
from tests.patience import LONGEST_S, wait_until

MEGABYTE = 1_000_000
ROOT = Path(__file__).parents[3]
NOBODY = 65534

MARGIN = 1.2
"""A short transfer may pass its rate, as the first burst is free."""

FAST_BPS, SLOW_BPS = 400e6, 100e6
SPEC = NetworkSpec((Rack(2, FAST_BPS, SLOW_BPS), Rack(2, SLOW_BPS), Rack(2, FAST_BPS)))

OWNER = """
import json, sys, time
from dally.hosts.network import LocalNetwork
from dally.hosts.network_spec import NetworkSpec, Rack
from dally.hosts.local_process import LocalProcess
from dally.hosts.processes import Command
with LocalNetwork(NetworkSpec((Rack(2, 1e9),))) as network:
    LocalProcess(Command("x", network.command("r1h1", ("sleep", "1000"))))
    print(json.dumps(network.command("r1h2", ())), flush=True)
    time.sleep(1000)
"""

SEND = """
import socket, sys, time
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as port:
    target = (socket.gethostbyname(sys.argv[1]), 29999)
    for _ in range(50):
        try:
            port.sendto(bytes(30_000), target)
        except OSError:
            pass
        time.sleep(1e-3)
"""
"""Sends 1.5 MB, whether anybody is there or not."""

UNPRIVILEGED = """
from dally.hosts.network import LocalNetwork
from tests.dally.hosts.network_probe import together_bps, transfer
from dally.hosts.network_spec import NetworkSpec, Rack
with LocalNetwork(NetworkSpec((Rack(2, 200e6), Rack(1, 200e6)))) as network:
    print(together_bps(transfer(network, [("r1h1", "r2h1")], 5_000_000)))
"""


@pytest.fixture(scope="module")
def network() -> Iterator[LocalNetwork]:
    """A fast rack behind a slow uplink, a slow rack, and a fast one."""
    with LocalNetwork(SPEC) as started:
        yield started


def rate_bps(network: LocalNetwork, *pairs: Pair, megabytes: int = 6) -> float:
    """What pairs get together when each sends so much."""
    return together_bps(transfer(network, pairs, megabytes * MEGABYTE))


def inside(network: LocalNetwork, host: str, *argv: str) -> str:
    """What a command prints that runs inside a host."""
    done = subprocess.run(
        network.command(host, argv), capture_output=True, text=True, timeout=LONGEST_S, check=True
    )
    return done.stdout


def namespaces(pid: int) -> set[str]:
    """The network and process namespaces of a process."""
    return {os.readlink(f"/proc/{pid}/ns/{kind}") for kind in ("net", "mnt", "pid_for_children")}


def processes_in(spaces: set[str]) -> list[int]:
    """The processes of this machine that live in one of these namespaces."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            links = {os.readlink(folder / "ns" / kind) for kind in ("net", "mnt", "pid")}
        except OSError:
            continue
        if links & spaces:
            found.append(int(folder.name))
    return found


def holder_of(command: tuple[str, ...]) -> int:
    """The process that holds the namespaces which a command enters."""
    return int(next(part.removeprefix("--target=") for part in command if part.startswith("--target=")))


def test_a_fast_host_gets_as_many_times_more_as_its_rate_says(network: LocalNetwork) -> None:
    slow, fast = rate_bps(network, ("r2h1", "r2h2")), rate_bps(network, ("r3h1", "r3h2"), megabytes=24)
    assert fast / slow == pytest.approx(FAST_BPS / SLOW_BPS, rel=0.2)


def test_no_host_sends_or_receives_more_than_its_rate(network: LocalNetwork) -> None:
    for pair in (("r2h1", "r3h1"), ("r3h1", "r2h1")):
        assert rate_bps(network, pair) < MARGIN * SLOW_BPS


def test_both_directions_have_the_rate_at_once(network: LocalNetwork) -> None:
    there, back = ("r2h1", "r2h2"), ("r2h2", "r2h1")
    # Half duplex would make them no more than one way alone; two full ways take more than its CPU too.
    assert rate_bps(network, there, back, megabytes=12) > 1.2 * rate_bps(network, there, megabytes=12)


def test_pairs_that_share_an_uplink_share_its_rate(network: LocalNetwork) -> None:
    across = [("r1h1", "r3h1"), ("r1h2", "r3h2")]
    back = [(target, source) for source, target in across]
    inside_rack = rate_bps(network, ("r1h1", "r1h2"), megabytes=24)
    for pairs in (across, back):
        assert inside_rack / rate_bps(network, *pairs, megabytes=3) == pytest.approx(
            FAST_BPS / SLOW_BPS, rel=0.2
        )


def test_hosts_use_reno_whatever_the_machine_uses(network: LocalNetwork) -> None:
    for host in network.spec.hosts:
        assert inside(network, host, "cat", "/proc/sys/net/ipv4/tcp_congestion_control").strip() == "reno"


def test_small_messages_do_not_wait_for_the_rate(network: LocalNetwork) -> None:
    full_packet_s = 1500 * 8 / SLOW_BPS
    assert round_trip_s(network, ("r2h1", "r2h2")) < 20 * full_packet_s


def test_counters_tell_which_links_were_crossed_and_in_which_direction(network: LocalNetwork) -> None:
    before = network.traffic()
    transfer(network, [("r1h1", "r3h2")], MEGABYTE)
    after = network.traffic()
    sent = {name: after[name].sent_bytes - before[name].sent_bytes for name in after}
    received = {name: after[name].received_bytes - before[name].received_bytes for name in after}
    assert {name for name in sent if sent[name] >= MEGABYTE} == {"r1h1", "r1"}
    assert {name for name in received if received[name] >= MEGABYTE} == {"r3h2", "r3"}
    packets = {name: after[name].sent_packets - before[name].sent_packets for name in after}
    assert all(60 * packets[name] < sent[name] < 65_536 * packets[name] for name in ("r1h1", "r1"))


def test_the_core_reaches_hosts_by_their_names(network: LocalNetwork) -> None:
    command = network.core_command(("getent", "hosts", "r3h2"))
    done = subprocess.run(command, capture_output=True, text=True, timeout=LONGEST_S, check=True)
    assert done.stdout.split() == [network.address("r3h2"), "r3h2"]
    before = network.traffic()["r3h2"].received_bytes
    command = network.core_command((sys.executable, "-c", SEND, "r3h2"))
    subprocess.run(command, timeout=LONGEST_S, check=True)
    assert network.traffic()["r3h2"].received_bytes - before > MEGABYTE


def test_a_cut_uplink_carries_nothing_until_it_is_mended() -> None:
    with LocalNetwork(NetworkSpec((Rack(1, FAST_BPS, FAST_BPS), Rack(1, FAST_BPS)))) as own:
        own.cut("r1")
        before = own.traffic()["r2"].received_bytes
        subprocess.run(
            own.command("r1h1", (sys.executable, "-c", SEND, "r2h1")), timeout=LONGEST_S, check=True
        )
        assert own.traffic()["r2"].received_bytes - before < MEGABYTE / 100
        own.mend("r1")
        assert rate_bps(own, ("r1h1", "r2h1"), megabytes=12) < MARGIN * FAST_BPS


def test_an_unknown_link_cannot_be_cut(network: LocalNetwork) -> None:
    with pytest.raises(InputError, match="unknown host 'r9'"):
        network.cut("r9")


def test_a_limited_folder_is_full_at_its_size_and_seen_inside_only(tmp_path: Path) -> None:
    with LocalNetwork(NetworkSpec((Rack(1),))) as own:
        own.limit_folder(tmp_path, MEGABYTE)
        write = ("head", "--bytes=2M", "/dev/zero")
        command = own.core_command(("sh", "-c", f"{' '.join(write)} > {tmp_path}/file"))
        done = subprocess.run(command, capture_output=True, text=True, timeout=LONGEST_S)
        assert "No space left on device" in done.stderr
        assert not list(tmp_path.iterdir())


def test_a_command_runs_in_the_same_folder_with_the_same_variables(
    network: LocalNetwork, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GIVEN", "value")
    assert inside(network, "r1h1", "sh", "-c", "pwd; echo $GIVEN") == f"{tmp_path}\nvalue\n"


def test_a_host_sees_only_its_own_interfaces(network: LocalNetwork) -> None:
    links = json.loads(inside(network, "r1h1", "ip", "-json", "address"))
    addresses = {link["ifname"]: link["addr_info"][0]["local"] for link in links}
    assert addresses == {"lo": "127.0.0.1", "eth0": network.address("r1h1")}
    assert inside(network, "r1h1", "ls", "/sys/class/net").split() == ["eth0", "lo"]


def test_the_machine_itself_sees_nothing_of_it() -> None:
    names = {path.name for path in Path("/sys/class/net").iterdir()}
    with LocalNetwork(NetworkSpec((Rack(1),))):
        assert not {path.name for path in Path("/sys/class/net").iterdir()} - names
        assert not Path("/run/netns/r1h1").exists()


def test_two_networks_do_not_disturb_each_other(network: LocalNetwork) -> None:
    with LocalNetwork(NetworkSpec((Rack(2, SLOW_BPS),))) as other:
        before = network.traffic()["r1h1"].sent_bytes
        assert rate_bps(other, ("r1h1", "r1h2")) < MARGIN * SLOW_BPS
        assert network.traffic()["r1h1"].sent_bytes - before < MEGABYTE


def test_stop_ends_everything_inside() -> None:
    network = LocalNetwork(NetworkSpec((Rack(1),)))
    network.start()
    with subprocess.Popen(network.command("r1h1", ("sleep", "1000"))):
        spaces = namespaces(holder_of(network.command("r1h1", ())))
        wait_until(lambda: len(processes_in(spaces)) > 2, "the command to be inside")
        network.stop()
    wait_until(lambda: not processes_in(spaces), "the namespaces to be empty")
    network.stop()


def test_when_its_owner_is_killed_everything_inside_ends() -> None:
    with subprocess.Popen([sys.executable, "-c", OWNER], stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout
        holder = holder_of(json.loads(owner.stdout.readline()))
        spaces = namespaces(holder)
        assert processes_in(spaces)
        owner.kill()
    await_gone(holder)
    wait_until(lambda: not processes_in(spaces), "the namespaces to be empty")


def test_a_killed_holder_takes_the_network_along() -> None:
    with LocalNetwork(NetworkSpec((Rack(1),))) as network:
        holder = holder_of(network.command("r1h1", ()))
        spaces = namespaces(holder)
        os.kill(holder, 9)
        wait_until(lambda: not processes_in(spaces), "the namespaces to be empty")
        with pytest.raises(NetworkError, match="in the local network: ip -json"):
            network.traffic()


def test_a_start_that_fails_halfway_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    failing = LocalNetwork(NetworkSpec((Rack(1),)))
    spaces: set[str] = set()

    def broken(spec: NetworkSpec, mount_point: str) -> Iterator[WiringCommand]:
        yield from wiring(spec, mount_point)
        spaces.update(namespaces(holder_of(failing.command("r1h1", ()))))
        yield WiringCommand(("ip", "link", "set", "no-such-link", "up"))

    monkeypatch.setattr(network_module, "wiring", broken)
    with pytest.raises(NetworkError, match=r"ip link set no-such-link up: Cannot find device") as caught:
        failing.start()
    assert "\n" not in str(caught.value)
    assert spaces
    wait_until(lambda: not processes_in(spaces), "the namespaces to be empty")
    with pytest.raises(NetworkError, match="is not up"):
        failing.command("r1h1", ())


def test_a_program_that_is_missing_is_named_with_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    find = shutil.which

    def find_all_but_tc(name: str, path: str) -> str | None:
        return None if name == "tc" else find(name, path=path)

    monkeypatch.setattr(shutil, "which", find_all_but_tc)
    with pytest.raises(NetworkError, match=r"^tc is missing; as root: apt-get install iproute2$"):
        LocalNetwork(NetworkSpec((Rack(1, SLOW_BPS),))).start()


def test_programs_are_found_that_are_not_in_the_search_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/usr/bin")
    with LocalNetwork(NetworkSpec((Rack(1, SLOW_BPS),))) as network:
        assert inside(network, "r1h1", "echo", "here") == "here\n"


def test_who_may_not_make_namespaces_is_told_so_in_one_line() -> None:
    # To a user that its user namespace does not know, the kernel gives no further one.
    argv = ["unshare", "--user", sys.executable, "-c", OWNER]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=LONGEST_S)
    assert "cannot make namespaces here (unshare: " in done.stderr.splitlines()[-1]


def test_a_rank_that_is_killed_inside_its_host_is_named_and_ends_those_in_others() -> None:
    with LocalNetwork(NetworkSpec((Rack(2),))) as own:
        spaces = namespaces(holder_of(own.command("r1h1", ())))
        empty = len(processes_in(spaces))
        argv = {"r1h1": ("sleep", "1000"), "r1h2": ("sh", "-c", "kill -KILL $$")}
        commands = [Command(f"rank on {host}", own.command(host, argv[host])) for host in own.spec.hosts]
        with pytest.raises(ProcessError, match=r"^rank on r1h2: killed by SIGKILL$"):
            run_together(commands, LocalProcess, print, LONGEST_S)
        wait_until(lambda: len(processes_in(spaces)) == empty, "the other rank to end")


def test_an_unknown_host_and_a_second_start_are_refused(network: LocalNetwork) -> None:
    with pytest.raises(InputError, match="unknown host 'r9h1'; valid: r1h1, "):
        network.command("r9h1", ("true",))
    with pytest.raises(NetworkError, match="already up"):
        network.start()


def test_it_works_without_being_root() -> None:
    may = subprocess.run([*as_nobody(), "unshare", "--user", "--map-root-user", "true"], capture_output=True)
    if may.returncode:
        pytest.skip(f"the kernel forbids user namespaces: {may.stderr.decode().strip()}")
    argv = [*as_nobody(), python_for_all(), "-c", UNPRIVILEGED]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(argv, capture_output=True, text=True, timeout=LONGEST_S, env=environment, cwd="/")
    assert done.stderr == ""
    assert 0 < float(done.stdout) < MARGIN * 200e6


def as_nobody() -> list[str]:
    """What makes a command of root's one of an ordinary user."""
    if os.geteuid():
        return []
    ids = f"--reuid={NOBODY}", f"--regid={NOBODY}"
    return ["setpriv", *ids, "--clear-groups"]


def python_for_all() -> str:
    """A Python that any user may run; that of the tests may lie in root's home."""
    for path in (sys.executable, "/usr/bin/python3"):
        probe = [*as_nobody(), "test", "-x", path]
        if not subprocess.run(probe).returncode:
            return path
    raise AssertionError(f"no user but root can run {sys.executable}, and there is no /usr/bin/python3")
