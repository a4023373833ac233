"""A real sshd for tests: on a port of 127.0.0.1, with keys and configuration of its own."""

import getpass
import os
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.patience import LONGEST_S

PROGRAM = "/usr/sbin/sshd"
_PRIVILEGE_FOLDER = Path("/run/sshd")
_POLL_S = 0.02

_CONFIG = """
ListenAddress {address}:{port}
HostKey {folder}/host_key
AuthorizedKeysFile {folder}/user_key.pub
PidFile none
StrictModes no
UsePAM no
PasswordAuthentication no
KbdInteractiveAuthentication no
PrintMotd no
"""


@dataclass(frozen=True, slots=True)
class Sshd:
    """A running sshd, that lets this user in with the key in `user_key`."""

    name: str
    port: int
    folder: Path
    process: subprocess.Popen[bytes]
    address: str = "127.0.0.1"

    @property
    def user_key(self) -> Path:
        """The private key that it lets in."""
        return self.folder / "user_key"

    @property
    def known(self) -> str:
        """Its line in a file of known hosts."""
        kind, key = (self.folder / "host_key.pub").read_text().split()[:2]
        return f"[{self.address}]:{self.port} {kind} {key}\n"

    @property
    def table(self) -> str:
        """Its entry in a hosts file."""
        return (
            f'[[hosts]]\nname = "{self.name}"\naddress = "{self.address}"\nport = {self.port}\n'
            f'user = "{getpass.getuser()}"\nkey = "{self.user_key}"\nrack = "r1"\n'
        )


@contextmanager
def running_sshd(
    name: str, folder: Path, address: str = "127.0.0.1", enter: Sequence[str] = ()
) -> Iterator[Sshd]:
    """An sshd until the end of the block; its connections end with it.

    Args:
        name: Of its host.
        folder: For its files; it is made.
        address: Where it listens.
        enter: What begins the command that runs it in another network.
    """
    folder.mkdir()
    for key in ("host_key", "user_key"):
        make_key(folder / key)
    port = free_port()
    (folder / "config").write_text(_CONFIG.format(address=address, port=port, folder=folder))
    if os.geteuid() == 0:
        _PRIVILEGE_FOLDER.mkdir(exist_ok=True)
    argv = [*enter, PROGRAM, "-D", "-E", str(folder / "log"), "-f", str(folder / "config")]
    process = subprocess.Popen(argv, stdin=subprocess.DEVNULL)
    try:
        _await_listening(folder / "log", process)
        yield Sshd(name, port, folder, process, address)
    finally:
        process.kill()
        process.wait()


def make_key(path: Path, passphrase: str = "") -> None:
    """Write a private key, and the public one beside it."""
    argv = ["ssh-keygen", "-q", "-t", "ed25519", "-N", passphrase, "-f", str(path)]
    subprocess.run(argv, check=True, timeout=LONGEST_S)


def free_port() -> int:
    """A port of 127.0.0.1 that is free now."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port


def _await_listening(log: Path, process: subprocess.Popen[bytes]) -> None:
    """Wait until its log says that it listens."""
    until = time.monotonic() + LONGEST_S
    while process.poll() is None and time.monotonic() < until:
        if log.exists() and "Server listening" in log.read_text():
            return
        time.sleep(_POLL_S)
    raise AssertionError(f"sshd does not listen; it ended with {process.returncode}")
