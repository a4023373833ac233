"""Hosts files of sshds that tests have started, whose hosts have the tests' own Python."""

import sys
from collections.abc import Sequence
from pathlib import Path

from tests.dally.hosts.sshd import Sshd


def write_hosts(folder: Path, daemons: Sequence[Sshd], more: str = "", gpus: int = 1) -> Path:
    """A hosts file, and the known hosts beside it."""
    (folder / "known").write_text("".join(daemon.known for daemon in daemons))
    own = f'python = "{sys.executable}"\ngpus = {gpus}\n'
    path = folder / "hosts.toml"
    path.write_text('known_hosts = "known"\n' + "".join(daemon.table + own for daemon in daemons) + more)
    return path


def unreachable(name: str, port: int) -> str:
    """A table of a host at whose port nobody listens."""
    return f'[[hosts]]\nname = "{name}"\naddress = "127.0.0.1"\nport = {port}\nrack = "r1"\n'
