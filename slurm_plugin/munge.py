"""Who asks for the controller's pages and who answers: both prove it by munge, as Slurm's own daemons do.

Each credential can be read by the other end's user alone, so whoever else gets hold of one can do nothing
with it. Slurm itself takes a question for a credential of the asker's only where the controller's user is
SlurmUser or root. It says what it is for: one question, asked at one address, has one answer, so nobody in
between can pass it on.
"""

import os
import pwd
import re
import subprocess
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from dally.errors import DallyError
from slurm_plugin.config import Config

_USUAL_PLACES = ("/etc/slurm/slurm.conf", "/run/slurm/conf/slurm.conf")
_SETTING = re.compile(
    r'^\s*(ClusterName|AuthType|AuthInfo|SlurmUser)\s*=\s*"?([^\s"#(]+)', re.IGNORECASE | re.MULTILINE
)
_INCLUDE = re.compile(r"^\s*include\s+(\S+)", re.IGNORECASE | re.MULTILINE)
_SOCKET = re.compile("(?:^|,)socket=([^,]+)", re.IGNORECASE)
_MAKER = re.compile(r"^UID:.*\((\d+)\)$", re.MULTILINE)
_QUESTION = re.compile("dally asks (.*) ([0-9a-f]{32})")


class ProofError(DallyError):
    """Nobody can prove, or check, who somebody is."""


@dataclass(frozen=True, slots=True)
class Realm:
    """What both ends know of the cluster without asking each other.

    Attributes:
        cluster: Its name in Slurm.
        has_munge: Slurm's commands prove by munge who calls them; else nobody can prove anything here.
        socket: Munge's socket; empty for the usual one.
        user: The user that the controller runs as: a name, or a number.
        slurm_user: SlurmUser.
    """

    cluster: str
    has_munge: bool
    socket: str
    user: str
    slurm_user: str

    @property
    def uid(self) -> int:
        """The number of the controller's user.

        Raises:
            ProofError: This machine does not know the user.
        """
        try:
            return int(self.user) if self.user.isdecimal() else pwd.getpwnam(self.user).pw_uid
        except KeyError:
            raise ProofError(
                f"user is {self.user!r} in dally.toml, must be a user of this machine or its number"
            ) from None

    def question(self, page: str, at: str, nonce: str, timeout_s: float) -> str:
        """A credential of ours for a question asked at an address, which the controller alone can read."""
        return self._encode(f"dally asks {self.cluster} {page} {at} {nonce}", self.uid, timeout_s)

    def asker(self, credential: str, page: str, at: str, timeout_s: float) -> tuple[int, str]:
        """Who asks for a page by a credential, which counts once, and the nonce of the question.

        Raises:
            ProofError: The credential is none, was used before, or is for something else.
        """
        uid, text = self._decode(credential, timeout_s)
        asked = _QUESTION.fullmatch(text)
        if asked is None or asked[1] != f"{self.cluster} {page} {at}":
            raise ProofError("the credential is for another question, or another address")
        return uid, asked[2]

    def proof(self, asker: tuple[int, str], page: str, status: int, body: bytes, timeout_s: float) -> str:
        """A credential of ours for an answer, which the asker alone can read."""
        uid, nonce = asker
        return self._encode(self._answer(page, nonce, status, body), uid, timeout_s)

    def check(
        self, credential: str, page: str, nonce: str, status: int, body: bytes, timeout_s: float
    ) -> None:
        """Whether the controller has made a credential for this answer to this question.

        Raises:
            ProofError: It has not.
        """
        uid, text = self._decode(credential, timeout_s)
        if uid != self.uid:
            raise ProofError(f"user {uid} answers")
        if text != self._answer(page, nonce, status, body):
            raise ProofError("the credential is for another answer")

    def _answer(self, page: str, nonce: str, status: int, body: bytes) -> str:
        return f"dally answers {self.cluster} {page} {nonce} {status:d} {sha256(body).hexdigest()}"

    def _encode(self, text: str, reader: int, timeout_s: float) -> str:
        return self._run("munge", f"--restrict-uid={reader}", text=text, timeout_s=timeout_s).strip()

    def _decode(self, credential: str, timeout_s: float) -> tuple[int, str]:
        """Who made a credential, and what it says."""
        said = self._run("unmunge", "--keys=STATUS,UID", text=credential, timeout_s=timeout_s)
        about, _, text = said.partition("\n\n")
        if (maker := _MAKER.search(about)) is None:
            raise ProofError("unmunge does not say who made the credential")
        return int(maker[1]), text

    def _run(self, program: str, *options: str, text: str, timeout_s: float) -> str:
        socket = (f"--socket={self.socket}",) if self.socket else ()
        return _said(program, *socket, *options, text=text, timeout_s=timeout_s)


def read_realm(config: Config, timeout_s: float) -> Realm:
    """What slurm.conf says of the cluster, or slurmctld where there is no such file.

    Raises:
        ProofError: Neither names the cluster.
    """
    place = Path(config.cluster)
    places = (place if place.name == "slurm.conf" else place / "slurm.conf", *map(Path, _USUAL_PLACES))
    if own := os.environ.get("SLURM_CONF"):
        places = (Path(own), *places)
    text = next(filter(None, map(_text, places)), "")
    text = text or _said("scontrol", "show", "config", text="", timeout_s=timeout_s)
    values = {found[1].lower(): found[2] for found in _SETTING.finditer(text)}
    if "clustername" not in values:
        raise ProofError("no ClusterName in slurm.conf; name its folder as `cluster` in dally.toml")
    socket = _SOCKET.search(values.get("authinfo", ""))
    return Realm(
        values["clustername"].lower(),
        values.get("authtype", "auth/munge") == "auth/munge",
        socket[1] if socket else "",
        config.user,
        values.get("slurmuser", "root"),
    )


def _text(path: Path, depth: int = 0) -> str:
    """The text of a configuration file of Slurm's, and those that it includes; empty if it is not there."""
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    included = _INCLUDE.findall(text) if depth < 8 else ()
    return "\n".join([text, *(_text(path.parent / name, depth + 1) for name in included)])


def _said(program: str, *options: str, text: str, timeout_s: float) -> str:
    """What a program prints."""
    try:
        done = subprocess.run(
            [program, *options],
            input=text,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=max(0.0, timeout_s),
            check=False,
        )
    except OSError as error:
        raise ProofError(f"cannot run {program}: {error.strerror or error}") from error
    except (subprocess.TimeoutExpired, ValueError) as error:
        raise ProofError(f"{program} gives no answer in time") from error
    if done.returncode:
        lines = (done.stderr.strip() or done.stdout).splitlines()
        raise ProofError(lines[0] if lines else f"{program} failed ({done.returncode})")
    return done.stdout
