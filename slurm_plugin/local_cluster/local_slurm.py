"""A real Slurm cluster on this one machine, for tests and the testbed: start it, disturb it, stop it.

Its nodes are daemons with GPUs that exist in name only. The machine needs Debian's Slurm and munge.
"""

import os
import pwd
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from math import inf
from pathlib import Path
from tempfile import TemporaryDirectory

from dally.hosts.network import LocalNetwork
from slurm_plugin.local_cluster.cluster import ASK_S, ClusterError, LocalCluster, search_path
from slurm_plugin.local_cluster.ports import ReservedPorts
from slurm_plugin.local_cluster.processes import child_of, end_processes, start_supervisor
from slurm_plugin.local_cluster.slurm_files import LocalClusterSpec, conf_files

PACKAGES = ("slurmctld", "slurmd", "slurm-client", "munge", "slurm-wlm-basic-plugins")
"""Debian's packages that a local cluster needs."""

START_S = 180.0
"""Seconds until all daemons answer: one at most on an idle machine, a minute beside a dozen busy programs."""

_POLL_S = 0.05
_PROGRAMS = ("munged", "slurmctld", "slurmd", "squeue", "sbatch")
_FOLDERS = {".": 0o755, "work": 0o1777, "state": 0o700} | dict.fromkeys(
    ("etc", "munge", "spool", "run", "log", "dev"), 0o755
)


class LocalSlurm:
    """One Slurm cluster of daemons on this machine.

    All it starts ends with `stop`, and also when this process ends without, be it by SIGKILL.

    Attributes:
        spec: What it is made of, its ports filled in.
        work: Folder in which its commands run and anybody may write.
        network: The network that its nodes are the hosts of, if they have one.
    """

    def __init__(self, spec: LocalClusterSpec, kept_open: tuple[int, ...] = ()):
        """Set it up without starting anything; its folder is made by `start` and removed by `stop`.

        Args:
            spec: What it is made of.
            kept_open: File descriptors that stay open, should this process be killed, until nothing is left.
        """
        self._most_nodes = len(spec.node_names())
        self._ports: list[ReservedPorts] = []
        self.spec = spec if spec.port else replace(spec, port=self.reserve_ports(self._most_nodes + 1))
        self.work = spec.work
        self.network = LocalNetwork(spec.network) if spec.network else None
        self._kept_open = kept_open
        self._daemons: dict[str, subprocess.Popen[bytes]] = {}
        self._supervisor: subprocess.Popen[bytes] | None = None

    @property
    def environment(self) -> dict[str, str]:
        """The environment for commands that are to speak to this cluster."""
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("SLURM")}
        return {**inherited, "PATH": search_path(), "SLURM_CONF": str(self.spec.conf)}

    @property
    def cluster(self) -> LocalCluster:
        """The cluster as what workloads run on."""
        return LocalCluster(self.spec, self.network)

    def version(self) -> tuple[int, int]:
        """The installed Slurm's version, like (22, 5)."""
        major, minor = self.run("slurmctld", "-V").split()[1].split(".")[:2]
        return int(major), int(minor)

    def start(self, timeout_s: float = START_S) -> None:
        """Write the configuration, start all daemons and wait until every node is idle.

        Raises:
            ClusterError: Slurm is not installed, or a daemon does not come up.
        """
        missing = [program for program in _PROGRAMS if not shutil.which(program, path=search_path())]
        if missing:
            install = f"apt-get install --no-install-recommends {' '.join(PACKAGES)}"
            raise ClusterError(f"a local cluster needs {', '.join(missing)}; on Debian, as root: {install}")
        if pwd.getpwuid(os.geteuid()).pw_name != self.spec.user:
            raise ClusterError(f"the cluster's daemons are to run as {self.spec.user}; start it as that user")
        self._supervisor = start_supervisor(self.spec.folder, self.spec.conf, self._kept_open)
        try:
            if self.network:
                self.network.start()
            for path, mode in _FOLDERS.items():
                (self.spec.folder / path).mkdir(parents=True, exist_ok=True)
                (self.spec.folder / path).chmod(mode)
            self._write_conf()
            munge = self.spec.socket.parent
            (munge / "key").touch(mode=0o600)
            (munge / "key").write_bytes(os.urandom(1024))
            files = (f"--{name}-file={munge / name}" for name in ("key", "seed", "pid", "log"))
            daemon = ["munged", "--foreground", "--force", f"--socket={self.spec.socket}", *files]
            self.start_daemon("munged", daemon)
            self.wait_up("munged", self.spec.socket.exists)
            self._start_slurm()
            self.wait_for(lambda: self.node_states() == {"idle"}, "all nodes to be idle", timeout_s)
            for node in self.spec.node_names() if self.spec.preload else ():
                self.wait_up(_preloader(node), (self.spec.preloaded / node).exists)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """End every process of the cluster and its jobs, and remove its folder, in whatever state it is."""
        if self.network:
            self.network.stop()
        if self._supervisor:
            self._supervisor.communicate()  # closes its standard input: it ends what is left, then the folder
            self._supervisor = None
        for daemon in self._daemons.values():
            daemon.wait()
        self._daemons.clear()
        for ports in self._ports:
            ports.release()

    def reserve_ports(self, count: int) -> int:
        """The first of so many free ports in a row, which nobody else gets until the cluster has ended."""
        self._ports.append(ReservedPorts(count))
        return self._ports[-1].first

    def start_controller(self) -> None:
        """Start slurmctld and wait until it answers."""
        # By exactly this name, and slurmd too: under Debian's names with `-wlm`, nodes silently have no GPUs.
        self.start_daemon("slurmctld", ["slurmctld", "-D"])
        self.wait_up("slurmctld", self.controller_answers)

    def stop_controller(self) -> None:
        """Let slurmctld save its state and exit."""
        self._end("slurmctld", signal.SIGTERM)

    def kill_controller(self) -> None:
        """Kill slurmctld; what it did in the last seconds may be lost to it."""
        self._end("slurmctld", signal.SIGKILL)

    def saved_s(self) -> float:
        """When slurmctld last saved its jobs, seconds since 1970; -inf if never."""
        saved = self.spec.folder / "state" / "job_state"
        return saved.stat().st_mtime if saved.exists() else -inf

    def pause_controller(self) -> None:
        """Freeze slurmctld: it takes connections and does not answer."""
        os.kill(self._pid("slurmctld"), signal.SIGSTOP)

    def resume_controller(self) -> None:
        """Let a frozen slurmctld go on."""
        # Who waits outside the network for it stops and goes on with it.
        os.killpg(self._daemons["slurmctld"].pid, signal.SIGCONT)

    def controller_answers(self) -> bool:
        """Slurmctld is up and answers."""
        return "is UP" in self.attempt("scontrol", "ping").stdout

    def start_node(self, name: str) -> None:
        """Start a node's slurmd; the node is back some time later."""
        self.start_daemon(name, ["slurmd", "-D", "-N", name], host=name)
        daemon = self._daemons.get(_preloader(name))
        if self.spec.preload and (daemon is None or daemon.poll() is not None):
            self.spec.preloaded.mkdir(mode=0o755, exist_ok=True)
            socket_path = self.spec.preloaded / name
            socket_path.unlink(missing_ok=True)
            preload = [sys.executable, "-P", "-m", "workloads.preload", str(socket_path)]
            self.start_daemon(_preloader(name), ["env", "OMP_NUM_THREADS=1", *preload], host=name)

    def kill_slurmd(self, name: str) -> None:
        """Kill a node's slurmd; the jobs on the node run on."""
        self._end(name, signal.SIGKILL)

    def kill_node(self, name: str) -> None:
        """Lose a node: its slurmd and all processes of its jobs are gone at once."""
        self.kill_slurmd(name)
        marks = {"SLURM_CONF": str(self.spec.conf), "SLURMD_NODENAME": name}
        end_processes(marks, f"{self.spec.folder}/log/slurmd-{name}.log")
        if self.spec.preload:
            self._daemons[_preloader(name)].wait()

    def node_states(self) -> set[str]:
        """The states that nodes are in, in sinfo's short words."""
        return set(self.run("sinfo", "--noheader", "--Node", "--format=%t").split())

    def rewrite(self, spec: LocalClusterSpec) -> None:
        """Restart slurmctld and all slurmd with another configuration; jobs stay.

        Folder, user and ports stay too, so there cannot be more nodes than at first. When this returns,
        every node answers.

        Raises:
            ClusterError: There are more nodes than at first, or a daemon does not come up.
        """
        if spec.network != self.spec.network:
            raise ClusterError("the cluster's network stays as it is: it cannot be another one")
        if spec.nodes > self._most_nodes and not spec.network:
            raise ClusterError(
                f"the cluster has ports for {self._most_nodes} nodes, {spec.nodes} are too many"
            )
        self.stop_controller()
        for name in self.spec.node_names():
            self._end(name, signal.SIGTERM)
        self.spec = replace(spec, folder=self.spec.folder, user=self.spec.user, port=self.spec.port)
        self._write_conf()
        self._start_slurm()
        self.wait_for(lambda: self.node_states() <= {"idle", "mix", "alloc"}, "all nodes to be up")

    def run(self, *command: str, user: str | None = None, stdin: str = "", timeout_s: float = ASK_S) -> str:
        """Return the standard output of a command that speaks to this cluster, run by this or another user.

        Raises:
            ClusterError: It failed or took too long; the message holds what it said.
        """
        return self.cluster.ask(*_as_user(user, command), stdin=stdin, timeout_s=timeout_s)

    def attempt(
        self, *command: str, user: str | None = None, stdin: str = "", timeout_s: float = ASK_S
    ) -> subprocess.CompletedProcess[str]:
        """Like `run`, but exit code, output and errors are for the caller to judge."""
        return self.cluster.attempt(*_as_user(user, command), stdin=stdin, timeout_s=timeout_s)

    def wait_for(self, holds: Callable[[], bool], what: str, timeout_s: float = START_S) -> None:
        """Wait until something holds, and leave the machine to the cluster for as long as a look took.

        Raises:
            ClusterError: It does not in time; the message has the end of slurmctld's log.
        """
        deadline = time.monotonic() + timeout_s
        while True:
            began = time.monotonic()
            if holds():
                return
            looked_s = time.monotonic() - began
            if time.monotonic() > deadline:
                raise ClusterError(
                    f"waited {timeout_s:g} s for {what}; slurmctld's log ends: {self._tail('slurmctld.log')}"
                )
            time.sleep(max(_POLL_S, looked_s))

    def _write_conf(self) -> None:
        for number in range(self.spec.gpus):
            device = self.spec.folder / "dev" / f"nvidia{number}"
            if not device.is_symlink():
                device.symlink_to("/dev/null")
        for name, text in conf_files(self.spec, self.version()).items():
            (self.spec.conf.parent / name).write_text(text, encoding="utf-8")

    def _start_slurm(self) -> None:
        self.start_controller()
        for name in self.spec.node_names():
            self.start_node(name)

    def start_daemon(self, name: str, command: list[str], host: str = "") -> None:
        """Start a daemon, on a node or on the head; it ends with the cluster."""
        if self.network:
            command = ["env", f"--chdir={self.spec.folder}", *command]
            command = [*(self.network.command(host, command) if host else self.network.core_command(command))]
        with (self.spec.folder / "log" / f"{name}.out").open("ab") as output:
            self._daemons[name] = subprocess.Popen(
                command,
                env={**self.environment, **({"SLURMD_NODENAME": host} if host else {})},
                cwd=self.spec.folder,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    def _pid(self, name: str) -> int:
        """The daemon's own number, also where another program waits for it outside a network."""
        waiting = self._daemons[name].pid
        return child_of(waiting) or waiting if self.network else waiting

    def wait_up(self, name: str, answers: Callable[[], bool]) -> None:
        """Wait until a daemon answers.

        Raises:
            ClusterError: It ended, or does not answer in time.
        """

        def up() -> bool:
            if self._daemons[name].poll() is not None:
                raise ClusterError(f"{name} ended: {self._tail(f'{name}.out')}")
            return answers()

        self.wait_for(up, f"{name} to answer")

    def _end(self, name: str, number: signal.Signals) -> None:
        daemon = self._daemons[name]
        if daemon.poll() is None:
            os.kill(self._pid(name), number)
        try:
            daemon.wait(ASK_S)
        except subprocess.TimeoutExpired as error:
            raise ClusterError(f"{name} did not end within {ASK_S:g} s of {number.name}") from error

    def _tail(self, log: str) -> str:
        path = self.spec.folder / "log" / log
        return " | ".join(path.read_text(errors="replace").splitlines()[-3:]) if path.exists() else "nothing"


@contextmanager
def temporary_slurm(
    spec: Callable[[Path], LocalClusterSpec], timeout_s: float = START_S
) -> Iterator[LocalSlurm]:
    """A Slurm that is brought up in a new folder below /tmp; afterwards it is ended and the folder removed.

    Args:
        spec: Gives what it is made of, for its folder.
        timeout_s: Longest wait for its nodes.

    Raises:
        ClusterError: It does not come up.
    """
    with TemporaryDirectory(prefix="dally-", dir="/tmp", ignore_cleanup_errors=True) as folder:
        local_slurm = LocalSlurm(spec(Path(folder)))
        local_slurm.start(timeout_s)
        try:
            yield local_slurm
        finally:
            local_slurm.stop()


def _as_user(user: str | None, command: tuple[str, ...]) -> tuple[str, ...]:
    """Return what runs a command as a user of this machine; None for the one that runs this."""
    if not user:
        return command
    account = pwd.getpwnam(user)
    return (
        "setpriv",
        f"--reuid={account.pw_uid}",
        f"--regid={account.pw_gid}",
        "--clear-groups",
        *command,
    )


def _preloader(node: str) -> str:
    """The name of a node's preloaded process among the daemons."""
    return f"preload-{node}"


def make_user(name: str) -> None:
    """Make an ordinary user who can run jobs, if there is none of this name.

    Raises:
        ClusterError: It could not be made.
    """
    if _is_user(name):
        return
    command = ["useradd", "--no-create-home", "--home-dir", "/tmp", "--shell", "/bin/sh", name]
    done = subprocess.run(command, capture_output=True, text=True, timeout=ASK_S)
    if done.returncode and not _is_user(name):  # somebody else may have made it meanwhile
        raise ClusterError(f"cannot make the user {name}: {done.stderr.strip()}")


def _is_user(name: str) -> bool:
    return any(account.pw_name == name for account in pwd.getpwall())
