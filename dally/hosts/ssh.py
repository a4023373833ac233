"""Runs commands on machines over SSH; nothing of them stays when they are stopped or the connection goes."""

import shlex
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Self, TypeVar

from dally.errors import DallyError, InputError
from dally.hosts.hosts_file import HostsFile, Login, SshHost
from dally.hosts.processes import Command, ProcessError

try:
    import paramiko

    from dally.hosts.ssh_login import CONNECT_S, log_in
except ModuleNotFoundError as error:
    raise DallyError(
        "the Python package paramiko is not installed; in Dally's folder: pip install '.[ssh]'"
    ) from error

_Item = TypeVar("_Item")
_Found = TypeVar("_Found")

_AT_ONCE = 16

GRACE_S = 10
"""Seconds between SIGTERM and SIGKILL on the host."""

SUPERVISOR = f"""
exec 3<&0 </dev/null 4</dev/null
bytes=$1
shift
if [ "$bytes" -gt 0 ]; then
    input=$(mktemp) || exit
    head -c "$bytes" <&3 >"$input"
    exec 4<"$input"
    got=$(wc -c <"$input")
    rm -f "$input"
    [ "$got" -eq "$bytes" ] || exit 1
fi
setsid "$@" <&4 3<&- 4<&- &
command=$!
(exec 4<&-; cat <&3; kill -TERM -$command; sleep {GRACE_S}; kill -KILL -$command) >/dev/null 2>&1 &
exec 3<&- 4<&-
wait $command 2>/dev/null
status=$?
kill -KILL -$command 2>/dev/null
trap '' TERM
kill -TERM 0
exit $status
"""
"""Runs a command on the host, in a session of its own, until it ends or standard input does.

The first argument is how many bytes of standard input are the command's own; it gets all of them or is not
started. Our end of standard input closes with the connection, however that ends; sshd itself lets a command
without a terminal live on then.
"""


class SshProcess:
    """A command that runs on a host."""

    def __init__(self, channel: paramiko.Channel) -> None:
        """Take over the channel on which it was started."""
        self.channel = channel

    @property
    def stdout(self) -> Iterable[bytes]:
        """The lines it writes to standard output."""
        return self.channel.makefile("rb")

    @property
    def stderr(self) -> Iterable[bytes]:
        """The lines it writes to standard error."""
        return self.channel.makefile_stderr("rb")

    @property
    def ended(self) -> bool:
        """Whether it has ended, or the connection has."""
        return self.channel.exit_status_ready()

    def wait(self) -> int | None:
        """Wait until it ended; its exit status as a shell tells it, None if the connection broke."""
        status = self.channel.recv_exit_status()
        return status if status >= 0 else None

    def stop(self) -> None:
        """End it and all that it started, by SIGTERM and after a grace by SIGKILL."""
        with suppress(OSError):  # where the connection is gone, the host does the same by itself
            self.channel.shutdown_write()
        self.channel.status_event.wait(GRACE_S + CONNECT_S)
        self.channel.close()


class SshHosts:
    """Connections to all hosts of a file, open between `connect` and `close` or inside `with`.

    Attributes:
        file: The hosts.
    """

    def __init__(self, file: HostsFile) -> None:
        """Describe the hosts; `connect` logs in."""
        self.file = file
        self._clients: dict[str, paramiko.SSHClient] = {}
        self._jumps: dict[str, paramiko.SSHClient] = {}

    def __enter__(self) -> Self:
        self.connect()
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def host(self, name: str) -> SshHost:
        """The host of a name.

        Raises:
            InputError: No host of the file has it.
        """
        for host in self.file.hosts:
            if host.name == name:
                return host
        raise InputError(f"unknown host {name!r}; valid: {', '.join(host.name for host in self.file.hosts)}")

    def connect(self) -> None:
        """Log in to all hosts, several at once; if one fails, none stays connected.

        Raises:
            SshError: A host cannot be reached, or one side does not let the other in.
        """
        failed = self.connect_each()
        if failed:
            self.close()
            raise next(iter(failed.values()))

    def connect_each(self) -> dict[str, DallyError]:
        """Log in to all hosts, several at once, and stay connected to those that let us in.

        Returns:
            Why the others do not, by their names, in the order of the file.
        """
        known_hosts = self.file.known_hosts

        def join_jump(jump: Login) -> None:
            self._jumps[jump.name] = log_in(jump, known_hosts)

        def join(host: SshHost) -> None:
            via = None
            if host.jump:
                if error := jumps[host.jump]:
                    raise error
                via = self._jumps[host.jump.name]
            self._clients[host.name] = log_in(host.login, known_hosts, via)

        try:
            jumps = each({host.jump for host in self.file.hosts if host.jump}, join_jump)
            joined = each(self.file.hosts, join)
        except BaseException:
            self.close()
            raise
        return {host.name: error for host, error in joined.items() if error}

    def close(self) -> None:
        """Close all connections; what still runs on hosts ends."""
        for clients in (self._clients, self._jumps):
            for client in clients.values():
                client.close()
            clients.clear()

    def start(self, command: Command, stdin: bytes = b"") -> SshProcess:
        """Start a command on the host that it names.

        Args:
            command: What to run.
            stdin: What it reads from standard input; it starts when the host has all of it.

        Raises:
            ProcessError: The host is not connected, or does not start it.
        """
        client = self._clients.get(command.host)
        transport = client and client.get_transport()
        if not transport:
            connected = ", ".join(sorted(self._clients)) or "none"
            raise ProcessError(f"{command.name}: not connected to {command.host!r}; connected: {connected}")
        supervisor = ["exec", "sh", "-c", SUPERVISOR, "sh", str(len(stdin))]
        try:
            channel = transport.open_session(timeout=CONNECT_S)
            channel.exec_command(shlex.join([*supervisor, *_with_env(command)]))
            channel.sendall(stdin)
        except (paramiko.SSHException, OSError, EOFError) as error:
            raise ProcessError(
                f"{command.name}: {command.host} does not start it: {str(error) or 'connection lost'} "
                "(sshd starts MaxSessions commands at once)"
            ) from error
        return SshProcess(channel)

    def shown(self, command: Command) -> str:
        """The line that does the same in a shell.

        Raises:
            InputError: No host of the file has the name that the command names.
        """
        host = self.host(command.host)
        login, known = host.login, self.file.known_hosts
        options = [f"-p{login.port}"]
        options += [f"-i{login.key}"] if login.key else []
        options += [f"-oUserKnownHostsFile={known}"] if known else []
        options += [f"-J{_account(host.jump)}:{host.jump.port}"] if host.jump else []
        return shlex.join(["ssh", *options, _account(login), shlex.join(_with_env(command))])


def each(items: Iterable[_Item], act: Callable[[_Item], _Found]) -> dict[_Item, _Found | DallyError]:
    """Do the same for several items, some at once; what came of each, also where that is an error."""

    def attempt(item: _Item) -> _Found | DallyError:
        try:
            return act(item)
        except DallyError as error:
            return error

    listed = list(items)
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return dict(zip(listed, pool.map(attempt, listed), strict=True))


def _with_env(command: Command) -> list[str]:
    """The command's arguments with its variables; sshd takes none from elsewhere."""
    return ["env", *(f"{name}={value}" for name, value in command.env.items()), *command.argv]


def _account(login: Login) -> str:
    return f"{login.user}@{login.address}" if login.user else login.address
