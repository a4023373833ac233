"""Logs in to one machine over SSH: known host keys only, by key or agent; what fails says how to mend it."""

import logging
import socket
from pathlib import Path

import paramiko

from dally.errors import DallyError
from dally.hosts.hosts_file import SSH_PORT, Login

CONNECT_S = 15.0
"""Longest wait for a connection, and again for each step of logging in."""

_KEEPALIVE_S = 10
_SILENT_MS = 30_000
"""For how long a machine may leave what was sent unanswered before the connection counts as broken."""


class SshError(DallyError):
    """A machine cannot be reached, or one side does not let the other in."""


class _UnknownHostKeyError(paramiko.SSHException):
    """A machine showed a key, and none is known for it."""


class _Reject(paramiko.MissingHostKeyPolicy):
    """Refuses unknown machines, in a way that can be told from other failures."""

    def missing_host_key(self, client: paramiko.SSHClient, hostname: str, key: paramiko.PKey) -> None:
        raise _UnknownHostKeyError(f"{key.get_name()} {key.fingerprint}")


def log_in(
    login: Login, known_hosts: Path | None = None, via: paramiko.SSHClient | None = None
) -> paramiko.SSHClient:
    """Connect and log in.

    Args:
        login: Where and as whom.
        known_hosts: File of known host keys; None for ~/.ssh/known_hosts.
        via: A machine that passes the connection on.

    Raises:
        SshError: It cannot be reached, its key is unknown or another, or it refuses ours.
    """
    logging.getLogger("paramiko").setLevel(logging.CRITICAL)  # it logs tracebacks of what we report
    if login.key and not login.key.is_file():
        raise SshError(f"{login.name}: there is no key file {login.key}; check key in the hosts file")
    client = paramiko.SSHClient()
    client.set_missing_host_key_policy(_Reject())
    try:
        client.load_system_host_keys(known_hosts)
    except OSError as error:
        raise SshError(f"cannot read the known hosts {known_hosts}: {error.strerror}") from error
    try:
        _connect(client, login, known_hosts, _reach(login, via))
    except BaseException:
        client.close()
        raise
    return client


def _reach(login: Login, via: paramiko.SSHClient | None) -> socket.socket | paramiko.Channel:
    """A connection to a machine's sshd."""
    where = f"{login.name} ({login.address} port {login.port})"
    try:
        if via:
            transport = via.get_transport()
            assert transport
            target, origin = (login.address, login.port), ("127.0.0.1", 0)
            return transport.open_channel("direct-tcpip", target, origin, timeout=CONNECT_S)
        connection = socket.create_connection((login.address, login.port), timeout=CONNECT_S)
    except (OSError, paramiko.SSHException) as error:
        raise SshError(
            f"{where} cannot be reached: {_text(error)}; check its address and port, and that sshd runs"
        ) from error
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _SILENT_MS)
    # A command is several small messages; each would wait 40 ms for the other side's acknowledgement.
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def _connect(
    client: paramiko.SSHClient,
    login: Login,
    known_hosts: Path | None,
    connection: socket.socket | paramiko.Channel,
) -> None:
    file = known_hosts or "~/.ssh/known_hosts"
    try:
        client.connect(
            login.address,
            login.port,
            login.user,
            key_filename=str(login.key) if login.key else None,
            look_for_keys=login.key is None,
            timeout=CONNECT_S,
            banner_timeout=CONNECT_S,
            auth_timeout=CONNECT_S,
            sock=connection,
        )
    except _UnknownHostKeyError as error:
        raise SshError(
            f"{login.name}: its host key is not in {file}: {error}; compare it on the machine, then add it: "
            f"ssh-keyscan -p {login.port} {login.address} >> {file}"
        ) from error
    except paramiko.BadHostKeyException as error:
        entry = login.address if login.port == SSH_PORT else f"[{login.address}]:{login.port}"
        raise SshError(
            f"{login.name}: its host key is not the one in {file}; if the machine was set up anew: "
            f"ssh-keygen -f {file} -R '{entry}', and add the new key"
        ) from error
    except (paramiko.SSHException, OSError, EOFError) as error:
        raise _refused(login, error) from error
    transport = client.get_transport()
    assert transport
    transport.set_keepalive(_KEEPALIVE_S)


def _refused(login: Login, error: Exception) -> SshError:
    key = f"the key {login.key}" if login.key else "every key of the agent and of ~/.ssh"
    user = login.user or "you"
    if isinstance(error, paramiko.PasswordRequiredException):
        return SshError(
            f"{login.name}: {key} is locked by a passphrase; run: ssh-add {login.key or ''}".rstrip()
        )
    if isinstance(error, paramiko.AuthenticationException) or "No authentication methods" in str(error):
        return SshError(
            f"{login.name}: refuses {user} with {key}; add the public key to ~/.ssh/authorized_keys there, "
            "or name another user or key in the hosts file"
        )
    return SshError(f"{login.name}: logging in failed: {_text(error)}")


def _text(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
