"""Limits what hosts send, and puts their network back exactly as it was; a record on the host says how.

The record is a file that root alone can read, in a folder that does not outlive a reboot, as no limit does.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dally.errors import InputError
from dally.hosts.network_spec import shaping_words
from testbed.remote.hosts import Hosts, RemoteError
from testbed.remote.qdiscs import HANDLE, Qdisc, Words, in_words, is_ours, settings, ways_back

RECORDS = "/run/dally-shape"
"""Folder of the records on a host, one file an interface."""

_DEFAULT = "/proc/sys/net/core/default_qdisc"
"""The kind that the kernel gives an interface with a queue; a container need not have it."""

_ROUTE = """
address=${1:-${SSH_CONNECTION%% *}}
known=$(getent ahosts "$address")
exec ip -json route get "${known%% *}"
"""

_TRIAL = """
ip link set lo mtu "$1" && ip link set lo up || exit
shift
tc qdisc replace dev lo root "$@" && tc -raw -json qdisc show dev lo
"""


@dataclass(frozen=True, slots=True)
class ShapedInterface:
    """An interface that is to be shaped.

    Attributes:
        host: Whose.
        interface: Its name.
        carries_ssh: Whether our own connection to the host goes through it.
        before: What it had before Dally ever touched it.
        way: How to put that back.
    """

    host: str
    interface: str
    carries_ssh: bool
    before: Sequence[Qdisc]
    way: Words


def inspect_interface(hosts: Hosts, name: str, interface: str | None, peer: str | None) -> ShapedInterface:
    """See what an interface has and how that can be put back, changing nothing.

    Args:
        hosts: The connected hosts.
        name: Whose interface.
        interface: Its name; None for the one that leads to `peer`.
        peer: Address of another host of the testbed; None if there is none.

    Raises:
        RemoteError: We are not root there, there is no such interface, or it could not be put back exactly as
            it is now.
    """
    _check_root(hosts, name)
    if interface is None and peer is None:
        raise RemoteError(f"{name}: no other host tells which interface to take; give --interface")
    found = interface or interface_to(hosts, name, peer or "")
    if found == "lo":
        raise RemoteError(f"{name}: {peer} is this host itself, over lo; give --interface")
    carries_ssh = found == interface_to(hosts, name)
    now, record = qdiscs_of(hosts, name, found), read_record(hosts, name, found)
    if record:
        return ShapedInterface(name, found, carries_ssh, record["before"], tuple(record["way"]))
    try:
        way = _way_back(hosts, name, found, now)
    except InputError as error:
        raise RemoteError(f"{name}: {found} is left alone: {error}") from error
    return ShapedInterface(name, found, carries_ssh, now, way)


def shape(hosts: Hosts, place: ShapedInterface, rate_bps: float) -> None:
    """Limit what leaves an interface; what was there is on record before.

    Raises:
        RemoteError: It did not work; `restore` undoes what did.
    """
    name, interface = place.host, place.interface
    hosts.ask(name, "mkdir", "-p", "-m", "700", RECORDS)
    record = {"before": list(place.before), "way": place.way}
    hosts.write(name, _record_path(interface), json.dumps(record), mode=0o600, replace=False)
    now = qdiscs_of(hosts, name, interface)
    if not is_ours(now) and settings(now) != settings(place.before):
        raise RemoteError(
            f"{name}: {interface} has {in_words(now)}, but {in_words(place.before)} is on record "
            "from before; see --restore"
        )
    _replace(hosts, name, interface, ("handle", HANDLE, *shaping_words(rate_bps)))


def restore(hosts: Hosts, name: str, interface: str | None) -> dict[str, Sequence[Qdisc]]:
    """Put back what the interfaces on record, or one of them, had before.

    Returns:
        What each has now, by the interface's name; empty if nothing is on record.

    Raises:
        RemoteError: Somebody else has changed it meanwhile, or it came back otherwise than it was; then the
            record stays.
    """
    _check_root(hosts, name)
    done: dict[str, Sequence[Qdisc]] = {}
    for found in [interface] if interface else recorded(hosts, name):
        record = read_record(hosts, name, found)
        if not record:
            continue
        before, now = record["before"], qdiscs_of(hosts, name, found)
        if settings(now) != settings(before):
            if not is_ours(now):
                raise RemoteError(
                    f"{name}: {found} was given {in_words(now)} by somebody else since; Dally leaves it "
                    f"alone (before: {in_words(before)}; {_record_path(found)})"
                )
            if record["way"]:
                _replace(hosts, name, found, tuple(record["way"]))
            else:
                hosts.ask(name, "tc", "qdisc", "del", "dev", found, "root")
            now = qdiscs_of(hosts, name, found)
        if settings(now) != settings(before):
            raise RemoteError(
                f"{name}: {found} now has {in_words(now)}, but had {in_words(before)} before; "
                f"see {_record_path(found)}"
            )
        done[found] = now
        hosts.ask(name, "rm", "-f", _record_path(found))
    return done


def recorded(hosts: Hosts, name: str) -> list[str]:
    """The interfaces of a host that are on record."""
    listed = hosts.attempt(name, "ls", RECORDS)
    if listed.status:
        return []
    files = (file for file in listed.stdout.splitlines() if file.endswith(".json"))
    return [file.removesuffix(".json") for file in files]


def read_record(hosts: Hosts, name: str, interface: str) -> Mapping[str, Any] | None:
    """What is on record of an interface: `before` and `way`; None if nothing is.

    Raises:
        RemoteError: The record cannot be read.
    """
    path = _record_path(interface)
    text = hosts.ask(name, "sh", "-c", '[ ! -e "$1" ] || exec cat "$1"', "sh", path)
    if not text:
        return None
    try:
        record: Mapping[str, Any] = json.loads(text)
    except ValueError as error:
        raise RemoteError(f"{name}: {path} is not a record of Dally's: {error}") from error
    return record


def qdiscs_of(hosts: Hosts, name: str, interface: str) -> list[Qdisc]:
    """What an interface has now.

    Raises:
        RemoteError: There is no such interface, or no tc.
    """
    return _listed(hosts, name, "tc", "-raw", "-json", "qdisc", "show", "dev", interface)


def interface_to(hosts: Hosts, name: str, address: str = "") -> str:
    """The interface through which a host reaches an address or a name; by default where we come from.

    Raises:
        RemoteError: It reaches it through none.
    """
    routes = _listed(hosts, name, "sh", "-c", _ROUTE, "sh", address)
    return str(routes[0]["dev"])


def _way_back(hosts: Hosts, name: str, interface: str, now: Sequence[Qdisc]) -> Words:
    """How to put back what is there; what is not a default is tried in a network namespace of its own."""
    if is_ours(now):
        raise InputError(f"Dally shapes it already, but {RECORDS} has no record of what was there before")
    default = hosts.attempt(name, "cat", _DEFAULT).stdout.strip() or "not known"
    if _listed(hosts, name, "tc", "-json", "filter", "show", "dev", interface):
        raise InputError("it has filters, which cannot be restored exactly")
    ways = ways_back(now, default)
    if ways == ((),):
        return ()
    mtu = hosts.ask(name, "cat", f"/sys/class/net/{interface}/mtu").strip()
    for way in ways:
        tried = hosts.attempt(name, "unshare", "--net", "sh", "-c", _TRIAL, "sh", mtu, *way)
        if tried.status == 0 and settings(json.loads(tried.stdout)) == settings(now):
            return way
    raise InputError(f"it has {in_words(now)} with settings of its own, which cannot be restored exactly")


def _replace(hosts: Hosts, name: str, interface: str, words: Words) -> None:
    hosts.ask(name, "tc", "qdisc", "replace", "dev", interface, "root", *words)


def _check_root(hosts: Hosts, name: str) -> None:
    if hosts.ask(name, "id", "-u").strip() != "0":
        raise RemoteError(f'{name}: only root can shape; set user = "root" in the hosts file')


def _listed(hosts: Hosts, name: str, *argv: str) -> list[Any]:
    """What a command prints as a JSON list; nothing printed is an empty one."""
    text = hosts.ask(name, *argv)
    try:
        found: list[Any] = json.loads(text or "[]")
    except ValueError as error:
        raise RemoteError(
            f"{name}: {' '.join(argv)} printed no JSON; is its iproute2 older than 2018?"
        ) from error
    return found


def _record_path(interface: str) -> str:
    return f"{RECORDS}/{interface}.json"
