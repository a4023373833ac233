"""A private Slurm on remote hosts, from the distribution's packages: it ends with the connection to them.

All its state is in one folder, of the same name on every host, and in a folder of its own in the one that all
hosts share. slurmctld runs on the first host, slurmd on all.
"""

import secrets
import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import TypeVar

from dally.hosts.processes import Command
from dally.hosts.ssh import each
from slurm_plugin.local_cluster.cluster import ClusterError
from slurm_plugin.local_cluster.local_slurm import PACKAGES
from testbed.remote.head_node import HeadNode
from testbed.remote.hosts import Hosts, LoggedProcess, all_or_error, next_address
from testbed.remote.shaping import interface_to
from testbed.remote.slurm_files import PARTITION, Node, claimed_cpus, hardware, remote_conf_files

_Found = TypeVar("_Found")

START_S = 90.0
_POLL_S = 0.3
_PORTS = (10_000, 32_000)
_PROGRAMS = ("slurmctld", "slurmd", "munged", "srun", "setsid")
_FOLDERS = ("etc", "munge", "spool", "run", "log", "dev", "state")

_MAKE = """
set -e
umask 022
mkdir "$0"
cd "$0"
mkdir "$@"
chmod 700 state
"""

_FIND = 'for program; do command -v "$program"; done >&2; slurmd -V'
_FAKE = 'i=0; while [ "$i" -lt "$1" ]; do ln -sfn /dev/null "$0/nvidia$i"; i=$((i + 1)); done'


class PrivateSlurm:
    """A Slurm cluster of one's own on the hosts of a file, up between `start` and `stop` or inside `with`."""

    def __init__(self, hosts: Hosts, shared: Path, fake_gpus: bool = False) -> None:
        """Do nothing yet; the first host becomes the head node, `shared` is a folder that all hosts share."""
        token = secrets.token_hex(4)
        self.folder = Path(f"/tmp/dally-{token}")
        self._hosts, self._fake_gpus = hosts, fake_gpus
        self._shared, self._work = shared, shared / f"dally-{token}"
        self._names = [host.name for host in hosts.file.hosts]
        self._cleanups: dict[str, LoggedProcess] = {}
        self._daemons: list[LoggedProcess] = []
        self._interfaces: dict[str, str] = {}

    def __enter__(self) -> HeadNode:
        self.start()
        return self.cluster

    def __exit__(self, *error: object) -> None:
        self.stop()

    @property
    def cluster(self) -> HeadNode:
        """What workloads run on."""
        conf = self.folder / "etc" / "slurm.conf"
        return HeadNode(self._hosts, self._names[0], conf, self._work, PARTITION, self._interfaces)

    @property
    def ended(self) -> bool:
        """Whether it has ended on a host, or contact with that was lost."""
        return any(cleanup.ended for cleanup in self._cleanups.values())

    def start(self) -> None:
        """Bring it up and wait until every node is idle; if that fails, nothing of it stays.

        Raises:
            ClusterError: A host lacks something, the folder is not shared, or a daemon does not come up.
            RemoteError: The same, of one or more hosts.
        """
        if len({host.python for host in self._hosts.file.hosts}) > 1:
            raise ClusterError("python in the hosts file must be the same on all hosts, as jobs start on any")
        versions = self._on_all(self._version)
        if len(set(versions.values())) > 1:
            said = ", ".join(f"{name} has {version}" for name, version in versions.items())
            raise ClusterError(f"Slurm must be the same on all hosts: {said}")
        head = self._names[0]
        major, minor = versions[head].split(".")[:2]
        nodes = [*self._on_all(self._node).values()]
        port = Random().randrange(_PORTS[0], _PORTS[1] - len(nodes))
        files = remote_conf_files(self.folder, port, nodes, (int(major), int(minor)))
        key = secrets.token_hex(256)
        try:
            self._on_all(self._start_cleanup)
            self._share()
            is_first = self._on_all(lambda name: self._prepare(name, files, key))
            all_or_error(each([name for name in self._names if is_first[name]], self._start_munge))
            self._run(head, "slurmctld", "-D")
            self._wait("slurmctld to answer", lambda: "is UP" in self._said("scontrol", "ping"))
            self._on_all(lambda name: self._run(name, "slurmd", "-D", "-N", name))
            sinfo = ("sinfo", "--noheader", "--Node", "--format=%t")
            idle = ["idle"] * len(self._names)
            self._wait("all nodes to be idle", lambda: self._said(*sinfo).split() == idle)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """End all of it on all hosts and remove its folders, in whatever state it is."""
        each(self._cleanups, lambda name: self._cleanups[name].stop())
        self._cleanups.clear()
        for daemon in self._daemons:
            daemon.stop()
        self._daemons.clear()

    def _on_all(self, act: Callable[[str], _Found]) -> dict[str, _Found]:
        return all_or_error(each(self._names, act))

    def _version(self, name: str) -> str:
        """Slurm's version on a host that has what it takes."""
        if self._hosts.ask(name, "id", "-u").strip() != "0":
            raise ClusterError(f'{name}: only root can bring Slurm up; set user = "root" in the hosts file')
        found = self._hosts.attempt(name, "sh", "-c", _FIND, "sh", *_PROGRAMS)
        there = {Path(line).name for line in found.stderr.split()}
        if lacks := [program for program in _PROGRAMS if program not in there]:
            raise ClusterError(
                f"{name} lacks {', '.join(lacks)}; there, as root: "
                f"apt-get install --no-install-recommends {' '.join(PACKAGES)}"
            )
        return found.stdout.split()[-1]

    def _node(self, name: str) -> Node:
        """A host as Slurm is to see it."""
        host = self._hosts.host(name)
        cpus, memory_mb = hardware(self._hosts.ask(name, "slurmd", "-C"))
        devices = self.folder / "dev" if self._fake_gpus else Path("/dev")
        if self._fake_gpus:
            cpus = claimed_cpus(cpus, host.gpus)
        else:
            gpus = [f"/dev/nvidia{number}" for number in range(host.gpus)]
            if self._hosts.attempt(name, "ls", *gpus).status:
                raise ClusterError(
                    f"{name} has no {gpus[0]} to {gpus[-1]}, though gpus is {host.gpus} in the hosts file; "
                    "lower it, or have GPUs pretended"
                )
        numbers = "0" if host.gpus == 1 else f"[0-{host.gpus - 1}]"
        address = host.login.address
        peer = next_address(self._hosts.file, name) or address
        self._interfaces[name] = interface_to(self._hosts, name, peer)
        return Node(name, address, host.rack, host.gpus, cpus, memory_mb, f"{devices}/nvidia{numbers}")

    def _start_cleanup(self, name: str) -> None:
        """Start what ends everything on a host; the head node's also removes the shared folder."""
        python = self._hosts.host(name).python
        more = [str(self._work)] if name == self._names[0] else []
        argv = (python, "-P", "-m", "testbed.remote.host_cleanup", str(self.folder), *more)
        cleanup = self._hosts.start(Command(f"the cleanup on {name}", argv, host=name))
        self._cleanups[name] = cleanup
        if next(iter(cleanup.stdout), b"").strip() != b"ready":
            last = [line.decode(errors="replace").strip() for line in cleanup.stderr]
            raise ClusterError(f"{name}: {python} does not run Dally: {last[-1] if last else 'no message'}")

    def _share(self) -> None:
        """Make the shared folder and check that all hosts see what the head node writes there."""
        head, token, file = self._names[0], self.folder.name, str(self._work / ".token")
        self._hosts.ask(head, "mkdir", "-m", "1777", str(self._work))
        self._hosts.write(head, file, token)
        for name, said in self._on_all(lambda name: self._hosts.attempt(name, "cat", file)).items():
            if said.stdout != token:
                raise ClusterError(
                    f"{self._shared} is not shared: {name} does not see what {head} wrote there"
                )

    def _prepare(self, name: str, files: dict[str, str], key: str) -> bool:
        """Write a host's files; whether it was the first on its machine to do so."""
        made = self._hosts.attempt(name, "sh", "-c", _MAKE, str(self.folder), *_FOLDERS)
        if made.status:
            # Another host on the same machine may have made it; what belongs to somebody else is a trap.
            if self._hosts.attempt(name, "sh", "-c", '[ -O "$0" ]', str(self.folder)).status:
                raise ClusterError(f"{name}: cannot make {self.folder}: {made.reason}")
            return False
        for file, text in files.items():
            self._hosts.write(name, str(self.folder / "etc" / file), text)
        self._hosts.write(name, str(self.folder / "munge" / "key"), key, mode=0o600)
        if self._fake_gpus:
            most = max(host.gpus for host in self._hosts.file.hosts)
            self._hosts.ask(name, "sh", "-c", _FAKE, str(self.folder / "dev"), str(most))
        return True

    def _start_munge(self, name: str) -> None:
        folder = self.folder / "munge"
        files = (f"--{kind}-file={folder / kind}" for kind in ("key", "seed", "pid", "log"))
        socket = f"--socket={folder / 'socket'}"
        self._run(name, "munged", "--foreground", "--force", socket, *files)
        munge = ("munge", "--no-input", socket)
        self._wait(f"munged on {name} to answer", lambda: self._hosts.attempt(name, *munge).status == 0)

    def _run(self, name: str, *argv: str) -> None:
        conf = str(self.folder / "etc" / "slurm.conf")
        log = str(self.folder / "log" / f"{argv[0]}-{name}.out")
        quiet = ("sh", "-c", 'exec "$@" >"$0" 2>&1', log, *argv)
        command = Command(f"{argv[0]} on {name}", quiet, {"SLURM_CONF": conf}, name)
        self._daemons.append(self._hosts.start(command))

    def _said(self, *argv: str) -> str:
        """What Slurm answers on the head node; nothing where it does not."""
        try:
            return self.cluster.ask(*argv)
        except ClusterError:
            return ""

    def _wait(self, what: str, holds: Callable[[], bool]) -> None:
        until = time.monotonic() + START_S
        while not holds():
            if time.monotonic() > until:
                tail = ("sh", "-c", 'cd "$0" && tail -qn 2 *', str(self.folder / "log"))
                said = " | ".join(self._hosts.attempt(self._names[0], *tail).stdout.splitlines())
                raise ClusterError(
                    f"waited {START_S:g} s for {what}; the logs there end: {said or 'nothing'}"
                )
            time.sleep(_POLL_S)
