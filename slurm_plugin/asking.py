"""Asking the controller for a page: one deadline, an answer of bounded size, and proof of who gave it.

Asked over a bare socket: it is quick to load, and a proxy in the environment does not matter.
"""

import json
import os
import socket
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from ipaddress import IPv6Address, ip_address
from typing import Any
from urllib.parse import urlsplit

from dally.errors import DallyError
from dally.words import clean
from slurm_plugin.config import Config
from slurm_plugin.munge import ProofError, Realm, read_realm

CREDENTIAL, PROOF, CLUSTER = "Dally-Credential", "Dally-Proof", "Dally-Cluster"
"""Headers: who asks; that the controller answers; of which cluster it is."""

_HEALTH_S = 2.0
"""A submission waits so long for the controller, and then goes on without."""

_PAUSE_S = 0.02
"""Before somebody is asked again who had no room."""

_HEAD_BYTES = 2**14
_MOST_BYTES = {"/health": 2**16, "/queue": 2**27}
_MOST_OTHERS_BYTES = 2**25
_LONGEST_TEXT = 500


class NoControllerError(DallyError):
    """No controller answers, or it cannot say, or cannot prove that it is the one."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What was answered.

    Attributes:
        status: HTTP's number, 200 if there is such a page and the controller is well.
        told: What the page says; None if it is no JSON table.
        proven: The controller has proved that it is the one; else Slurm has nothing here to prove it by.
    """

    status: int
    told: Mapping[str, Any] | None
    proven: bool

    @property
    def reason(self) -> str:
        """What it says against it, as one line of text."""
        told = self.told or {}
        return clean(str(told.get("error") or told.get("reason") or f"HTTP {self.status}"))[:_LONGEST_TEXT]


def ask_controller(config: Config) -> tuple[str, Mapping[str, Any]]:
    """Why no controller answers at its address, and what one that is well tells of itself.

    Returns:
        The reason is empty if the controller is well, or the address empty.
    """
    if not config.url:
        return "", {}
    try:
        answer = ask_page(config, "/health", _HEALTH_S)
    except NoControllerError as error:
        return str(error), {}
    if answer.status != 200 or answer.told is None:
        return f"the controller at {config.url} is not well: {answer.reason}", {}
    return "", answer.told


def ask_page(config: Config, page: str, timeout_s: float) -> Answer:
    """What the controller answers.

    Args:
        config: Where it is, and who runs it.
        page: Path of the page.
        timeout_s: Within this all is done, whatever the other end does, seconds.

    Raises:
        NoControllerError: There is no answer, or none of this cluster's controller; the message names the
            address.
    """
    end_s, url = time.monotonic() + timeout_s, config.url
    failed: OSError | ValueError | ProofError | None = None
    try:
        realm = read_realm(config, timeout_s)
        places = _places(url)
        while places:
            place, until_s = places.pop(0), time.monotonic() + _left_s(end_s) / (1 + len(places))
            try:
                return _asked(realm, config, place, page, until_s)
            except _CutOffError:
                places.append(place)
                time.sleep(min(_PAUSE_S, _left_s(end_s)))
            except (OSError, ValueError, ProofError) as error:
                failed = failed if isinstance(failed, ProofError) else error
        raise failed or OSError("nothing is there")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise NoControllerError(f"no controller answers at {url}: {reason}") from error
    except ProofError as error:
        why = clean(str(error))[:_LONGEST_TEXT]
        raise NoControllerError(f"what answers at {url} is not known to be the controller: {why}") from error


_Place = tuple[int, tuple[Any, ...]]
"""The family of an address, and the address with its port."""


class _CutOffError(OSError):
    """A connection was taken and closed without an answer: there was no room for it, at that moment."""


def address(place: tuple[Any, ...]) -> str:
    """An address with its port, written in one way at both ends of a connection."""
    host = ip_address(str(place[0]).partition("%")[0])
    if isinstance(host, IPv6Address):
        host = host.ipv4_mapped or host
    return f"[{host}]:{place[1]}"


def _places(url: str) -> list[_Place]:
    """All addresses that the host's name has."""
    place = urlsplit(url)
    found = socket.getaddrinfo(place.hostname or "", place.port or 80, type=socket.SOCK_STREAM)
    return list(dict.fromkeys((family, told) for family, _, _, _, told in found))


def _asked(realm: Realm, config: Config, place: _Place, page: str, end_s: float) -> Answer:
    """What is answered at one address.

    Raises:
        OSError, ValueError, ProofError: There is no answer, or none of this cluster's controller.
    """
    nonce = os.urandom(16).hex()
    lines = [f"GET {page} HTTP/1.0", f"Host: {urlsplit(config.url).netloc}"]
    if realm.has_munge:  # made before it connects: who has connected and says nothing is cut off first
        lines.append(f"{CREDENTIAL}: {realm.question(page, address(place[1]), nonce, _left_s(end_s))}")
    with socket.socket(place[0], socket.SOCK_STREAM) as connection:
        connection.settimeout(_left_s(end_s))
        connection.connect(place[1])
        try:
            connection.sendall("\r\n".join([*lines, "\r\n"]).encode())
            said = _received(connection, _MOST_BYTES.get(page, _MOST_OTHERS_BYTES), end_s)
        except ConnectionError as error:
            raise _CutOffError(str(error)) from error
    if not said:
        raise _CutOffError("that is no answer")
    status, headers, body = _parted(said)
    if headers.get(CLUSTER.lower()) != realm.cluster:
        raise ProofError(f"it does not say that it is cluster {realm.cluster}'s")
    if len(body) < int(headers.get("content-length", 0)):
        raise _CutOffError("its answer ends too early")
    if realm.has_munge:
        proof = headers.get(PROOF.lower())
        if proof is None:
            raise ProofError(f"it shows no proof of being user {config.user}'s")
        realm.check(proof, page, nonce, status, body, _left_s(end_s))
    told: object = None
    with suppress(ValueError, RecursionError):
        told = json.loads(body)
    return Answer(status, told if isinstance(told, dict) else None, realm.has_munge)


def _left_s(end_s: float) -> float:
    """Seconds until the deadline."""
    if (left_s := end_s - time.monotonic()) <= 0:
        raise TimeoutError("timed out")
    return left_s


def _received(connection: socket.socket, most: int, end_s: float) -> bytes:
    """All that is said until the other end closes the connection."""
    parts, room = list[bytes](), most + _HEAD_BYTES
    while room > 0:
        connection.settimeout(_left_s(end_s))
        if not (part := connection.recv(min(room, 2**18))):
            return b"".join(parts)
        parts.append(part)
        room -= len(part)
    raise ValueError(f"its answer is longer than {most} bytes")


def _parted(said: bytes) -> tuple[int, Mapping[str, str], bytes]:
    """An answer's status, its headers by their names in lower case, and its content."""
    head, _, body = said.partition(b"\r\n\r\n")
    first, *lines = head[:_HEAD_BYTES].decode("ascii", "replace").split("\r\n")
    words = first.split(" ")
    if words[0][:5] != "HTTP/" or len(words) < 2 or words[1] not in _STATUSES:
        raise ValueError("that is no answer")
    pairs = (line.partition(":") for line in lines)
    return int(words[1]), {name.strip().lower(): value.strip() for name, _, value in pairs}, body


_STATUSES = frozenset(map(str, range(100, 600)))
