"""Reads hosts.toml: the machines reached over SSH, what they hold, how to log in; docs/ssh-hosts.md."""

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from dally.cluster.toml_file import TomlTable
from dally.config_text import naming, parse_toml, read_text
from dally.errors import InputError

_LOGIN_KEYS = ("name", "address", "user", "port", "key")
_HOST_KEYS = (*_LOGIN_KEYS, "rack", "gpus", "python", "jump")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
SSH_PORT = 22
_LAST_PORT = 65535


@dataclass(frozen=True, slots=True)
class Login:
    """A machine, and how to log in.

    Attributes:
        name: What messages call it.
        address: Where it is reached: a host name or an IP address.
        user: None for the same user as here.
        port: Of its sshd.
        key: File of the private key; None for those of the agent and the usual files.
    """

    name: str
    address: str
    user: str | None
    port: int
    key: Path | None


@dataclass(frozen=True, slots=True)
class SshHost:
    """A machine that runs ranks.

    Attributes:
        login: How to log in.
        rack: Name of the rack it stands in.
        gpus: How many ranks it may hold.
        python: Path of the interpreter there that has Dally.
        jump: The machine through which it is reached, if it is not reached directly.
    """

    login: Login
    rack: str
    gpus: int
    python: str
    jump: Login | None

    @property
    def name(self) -> str:
        """What messages call it."""
        return self.login.name


@dataclass(frozen=True, slots=True)
class HostsFile:
    """Machines, and the file of their known host keys; None for the user's own, ~/.ssh/known_hosts."""

    hosts: tuple[SshHost, ...]
    known_hosts: Path | None


def read_hosts_file(path: Path) -> HostsFile:
    """Read a hosts file; paths in it count from its own folder.

    Raises:
        InputError: It cannot be read, a key is unknown or missing, or a value is wrong.
    """
    text = read_text(path)
    folder = path.parent
    with naming(path):
        top = TomlTable("", parse_toml(text))
        top.check_keys(("known_hosts", "jumps", "hosts"))
        jumps = _logins(top.tables("jumps"), _LOGIN_KEYS, folder)
        tables = top.tables("hosts")
        if not tables:
            raise InputError("hosts is missing: [[hosts]] tables, each with name, address and rack")
        logins = _logins(tables, _HOST_KEYS, folder)
        hosts = tuple(
            _host(table, login, jumps) for table, login in zip(tables, logins.values(), strict=True)
        )
        return HostsFile(hosts, _path(top, "known_hosts", folder))


def _host(table: TomlTable, login: Login, jumps: Mapping[str, Login]) -> SshHost:
    jump = table.text("jump", "")
    if jump and jump not in jumps:
        valid = ", ".join(jumps) or "none, there are no [[jumps]]"
        raise InputError(f"{table.key_path('jump')} is {jump!r}; valid: {valid}")
    return SshHost(
        login=login,
        rack=table.text("rack"),
        gpus=table.count("gpus", 1),
        python=table.text("python", "python3"),
        jump=jumps.get(jump),
    )


def _logins(tables: Sequence[TomlTable], keys: Sequence[str], folder: Path) -> dict[str, Login]:
    """How to log in to machines, by their names, in the order of their tables."""
    found: dict[str, Login] = {}
    for table in tables:
        table.check_keys(keys)
        name, port = table.text("name"), table.count("port", SSH_PORT)
        if not _NAME.fullmatch(name):
            raise InputError(
                f"{table.key_path('name')} is {name!r}, must be letters, digits, '.', '_' and '-'"
            )
        if name in found:
            raise InputError(f"{table.key_path('name')} is {name!r}, as for another one above")
        if port > _LAST_PORT:
            raise InputError(f"{table.key_path('port')} is {port}, must be 1 to {_LAST_PORT}")
        user = table.text("user", "") or None
        found[name] = Login(name, table.text("address", name), user, port, _path(table, "key", folder))
    return found


def _path(table: TomlTable, key: str, folder: Path) -> Path | None:
    text = table.text(key, "")
    return folder / os.path.expanduser(text) if text else None
