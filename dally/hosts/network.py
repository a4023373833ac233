"""A network of hosts inside this machine: namespaces behind switches, with shaped links.

All of it lives in namespaces of one holder process, so it is gone with that process, however its owner ends;
the machine's own network is not touched. It works as root, and as any user that may make user namespaces.
"""

import json
import os
import select
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from dally.errors import DallyError
from dally.hosts.network_spec import NetworkSpec
from dally.hosts.network_wiring import WiringCommand, hosts_text, overlays, uplink_port, wiring

_NAMES = Path("/run/netns")
"""Where `ip` keeps the names of namespaces."""

_HOSTS = Path("/etc/hosts")
_NAME_SERVERS = Path("/etc/resolv.conf")
_START_S = 30.0
_STEP_S = 30.0
_PACKAGES = {
    "unshare": "util-linux",
    "nsenter": "util-linux",
    "mount": "mount",
    "ip": "iproute2",
    "tc": "iproute2",
    "tee": "coreutils",
    "rm": "coreutils",
}


class NetworkError(DallyError):
    """A local network cannot be set up, or is not up."""


@dataclass(frozen=True, slots=True)
class Traffic:
    """What a link has carried since the start, headers included, seen from what hangs below it.

    Attributes:
        sent_bytes: Upwards.
        received_bytes: Downwards.
        sent_packets: As many headers are in the bytes; 0 where packets are not counted.
        received_packets: The same downwards.
    """

    sent_bytes: int
    received_bytes: int
    sent_packets: int = 0
    received_packets: int = 0


class JoinedNetwork:
    """A local network that is up, as any process of its owner's user can use it.

    All methods raise `NetworkError` if it is not up, and `InputError` for a host or a link that it lacks.

    Attributes:
        spec: What it is made of.
    """

    def __init__(self, spec: NetworkSpec, holder: int | None) -> None:
        """Use the network whose holder this is; None if it is not up."""
        self.spec = spec
        self._pid = holder

    @property
    def holder(self) -> int:
        """The process whose namespaces the network is made of.

        Raises:
            NetworkError: The network is not up.
        """
        if self._pid is None:
            raise NetworkError("the local network is not up")
        return self._pid

    def address(self, host: str) -> str:
        """A host's IPv4 address."""
        return self.spec.address(host)

    def command(self, host: str, argv: Sequence[str]) -> tuple[str, ...]:
        """The command that runs a command inside a host, in the folder where this process is.

        It ends with the network. Whoever ends it earlier must signal its process group: what is signalled
        alone is the program that waits outside for the one inside.
        """
        self.spec.rack(host)
        return (*self._enter(), _program("ip"), "netns", "exec", host, *_in_this_folder(), *argv)

    def core_command(self, argv: Sequence[str]) -> tuple[str, ...]:
        """Return the command that runs a command on the core switch, which reaches every host."""
        return (*self._enter(), *_in_this_folder(), *argv)

    def traffic(self) -> dict[str, Traffic]:
        """Return what every link has carried: a host's by its name, a rack's uplink by the rack's."""
        links = json.loads(self._take(WiringCommand(("ip", "-json", "-stats", "link"))))
        stats = {link["ifname"]: link["stats64"] for link in links}
        seen = {host: _from_below(stats[host]) for host in self.spec.hosts}
        for rack in self.spec.hosts_of:
            above = _from_below(stats[uplink_port(rack)])
            seen[rack] = Traffic(
                above.received_bytes, above.sent_bytes, above.received_packets, above.sent_packets
            )
        return seen

    def cut(self, link: str) -> None:
        """Cut a link, a host's by its name or a rack's uplink by the rack's: it carries nothing."""
        self._take(WiringCommand(("ip", "link", "set", self._port(link), "down")))

    def mend(self, link: str) -> None:
        """Make a link that was cut carry again, at its rate as before."""
        self._take(WiringCommand(("ip", "link", "set", self._port(link), "up")))

    def limit_folder(self, folder: Path, size_bytes: int) -> None:
        """Put an empty file system of this size on a folder, seen only inside the network."""
        self._take(WiringCommand(("mount", "-t", "tmpfs", "-o", f"size={size_bytes}", "none", str(folder))))

    def _port(self, link: str) -> str:
        """The interface of a link on the switch below it."""
        if link in self.spec.hosts_of:
            return uplink_port(link)
        self.spec.rack(link)
        return link

    def _enter(self) -> tuple[str, ...]:
        target = self.holder
        user = ("--user", "--preserve-credentials") if os.geteuid() else ()
        children = f"--pid=/proc/{target}/ns/pid_for_children"  # unshare itself stays outside the new one
        return (_program("nsenter"), f"--target={target}", *user, "--mount", "--net", children)

    def _take(self, step: WiringCommand) -> str:
        argv = [*self._enter(), _program(step.argv[0]), *step.argv[1:]]
        what = f"in the local network: {' '.join(step.argv)}"
        try:
            done = subprocess.run(argv, input=step.stdin, capture_output=True, text=True, timeout=_STEP_S)
        except subprocess.TimeoutExpired as error:
            raise NetworkError(f"{what} took longer than {_STEP_S:g} s") from error
        if done.returncode:
            raise NetworkError(f"{what}: {_first_line(done.stderr)}")
        return done.stdout


class LocalNetwork(JoinedNetwork):
    """Hosts in network namespaces, up between `start` and `stop` or inside `with`."""

    def __init__(self, spec: NetworkSpec) -> None:
        """Describe the network; `start` sets it up."""
        super().__init__(spec, None)
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    @property
    def ended(self) -> bool:
        """Whether the holder has ended since the start, and so all in the network."""
        return self._process is None or self._process.poll() is not None

    def start(self) -> None:
        """Set the network up; if that fails, nothing of it stays.

        Raises:
            NetworkError: A program is missing, this user may not make namespaces, or a step failed.
        """
        if self._process:
            raise NetworkError("the local network is already up")
        try:
            self._process = _start_holder()
            self._pid = self._process.pid
            # A file system of our own hides the names of namespaces from outside.
            if not _NAMES.is_dir() and not os.geteuid():
                _NAMES.mkdir(parents=True)
            mount_point = str(_NAMES if _NAMES.is_dir() else _NAMES.parent)
            # Inside, names lead to the hosts. There is no name server; waiting for one would take seconds.
            texts = {_HOSTS: hosts_text(self.spec, _HOSTS.read_text()) if _HOSTS.exists() else ""}
            texts[_NAME_SERVERS] = ""
            present = {str(path): text for path, text in texts.items() if path.exists()}
            for step in (*wiring(self.spec, mount_point), *overlays(present, mount_point)):
                self._take(step)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Remove the network and end every process in it; nothing happens if it is not up."""
        if self._process:
            self._process.kill()
            self._process.communicate()
            self._process = self._pid = None


def _in_this_folder() -> tuple[str, str]:
    """Return what leads back to the current folder: entering the namespaces leads to the root folder."""
    return "env", f"--chdir={Path.cwd()}"


def _from_below(stats: dict[str, dict[str, int]]) -> Traffic:
    """What crossed a switch's port, seen from the machine on its other end."""
    sent, received = stats["rx"], stats["tx"]
    return Traffic(sent["bytes"], received["bytes"], sent["packets"], received["packets"])


def _start_holder() -> subprocess.Popen[str]:
    """Start the process whose namespaces the network is made of, and wait until they are there."""
    user = ("--user", "--map-root-user") if os.geteuid() else ()
    namespaces = ("--mount", "--net", "--pid", "--fork", "--kill-child", "--mount-proc")
    holder_argv = (sys.executable, "-P", "-m", "dally.hosts.network_holder")
    argv = [_program("unshare"), *user, *namespaces, *holder_argv]
    pipe = subprocess.PIPE
    # A session of its own: Ctrl-C is for us, who then decide when the network ends.
    holder = subprocess.Popen(argv, stdin=pipe, stdout=pipe, stderr=pipe, text=True, start_new_session=True)
    assert holder.stdout
    assert holder.stderr
    try:
        if not select.select([holder.stdout], [], [], _START_S)[0]:
            raise NetworkError(f"the local network's first process did not start within {_START_S:g} s")
        if not holder.stdout.readline():
            who = "root" if not os.geteuid() else f"user {os.geteuid()}"
            raise NetworkError(
                f"{who} cannot make namespaces here ({_first_line(holder.stderr.read())}); "
                "run as root, or allow user namespaces (docs/local-network.md)"
            )
    except BaseException:
        holder.kill()
        holder.communicate()
        raise
    return holder


def _program(name: str) -> str:
    """The path of a program, also of one that Debian leaves out of an ordinary user's search path."""
    path = shutil.which(name, path=f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin")
    if not path:
        raise NetworkError(f"{name} is missing; as root: apt-get install {_PACKAGES[name]}")
    return path


def _first_line(text: str) -> str:
    return next((line.strip() for line in text.splitlines() if line.strip()), "no message")
