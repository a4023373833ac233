"""The commands that build a local network inside its holder: namespaces, veth pairs, bridges and shaping."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from dally.hosts.network_spec import (
    CONGESTION_CONTROL,
    CORE,
    CORE_ADDRESS,
    INTERFACE,
    NetworkSpec,
    shaping_words,
)

_Shape = tuple[float | None, int | None]
"""The rate of a link and the bytes of a burst, as in `Rack`."""

_CONGESTION_CONTROL_FILE = "/proc/sys/net/ipv4/tcp_congestion_control"


@dataclass(frozen=True, slots=True)
class WiringCommand:
    """One command and what it reads from standard input."""

    argv: tuple[str, ...]
    stdin: str = ""


def uplink_port(rack: str) -> str:
    """The interface of a rack's switch towards the core, in the holder."""
    return f"{rack}-up"


def _core_port(rack: str) -> str:
    return f"{rack}-{CORE}"


def wiring(spec: NetworkSpec, mount_point: str) -> Iterator[WiringCommand]:
    """The steps in order, to be run as root of the holder's namespaces.

    Every rack is a bridge in the holder, every host a namespace; each end of a link shapes what it sends, so
    that both directions have the rate.

    Args:
        spec: The network.
        mount_point: What to hide under a file system of its own, so that the names of namespaces are too.
    """
    yield WiringCommand(("mount", "-t", "tmpfs", "none", mount_point))
    yield WiringCommand(("ip", "-batch", "-"), "\n".join(_switch_lines(spec)))
    shaped: dict[str, _Shape] = {}  # of every interface in the holder
    for (rack, hosts), entry in zip(spec.hosts_of.items(), spec.racks, strict=True):
        shaped |= dict.fromkeys(hosts, (entry.host_rate_bps, entry.burst_bytes))
        ports = uplink_port(rack), _core_port(rack)
        shaped |= dict.fromkeys(ports, (entry.uplink_rate_bps, entry.burst_bytes))
    yield WiringCommand(("tc", "-batch", "-"), _shaping_lines(shaped))
    for host in spec.hosts:
        up = f"link set lo up\naddr add {spec.address(host)}/8 dev {INTERFACE}\nlink set {INTERFACE} up"
        yield WiringCommand(("ip", "-n", host, "-batch", "-"), up)
        yield WiringCommand(
            ("ip", "netns", "exec", host, "tee", _CONGESTION_CONTROL_FILE), CONGESTION_CONTROL
        )
        shaping = _shaping_lines({INTERFACE: shaped[host]})
        yield WiringCommand(("tc", "-n", host, "-batch", "-"), shaping)


def hosts_text(spec: NetworkSpec, machine_hosts: str) -> str:
    """What /etc/hosts says inside: what it says outside, and the names of all hosts."""
    addresses = {CORE: CORE_ADDRESS} | {host: spec.address(host) for host in spec.hosts}
    lines = [f"{address} {name}" for name, address in addresses.items()]
    return "\n".join([machine_hosts.rstrip("\n"), *lines]) + "\n"


def overlays(texts: Mapping[str, str], mount_point: str) -> Iterator[WiringCommand]:
    """The steps that put other texts on files, seen inside only, once the network is wired.

    Args:
        texts: By the paths of files that are there.
        mount_point: The same folder as for `wiring`.
    """
    file = f"{mount_point}/overlay"
    for path, text in texts.items():
        yield WiringCommand(("tee", file), text)
        yield WiringCommand(("mount", "--bind", file, path))
        yield WiringCommand(("rm", file))  # `ip` would take it for a namespace


def _switch_lines(spec: NetworkSpec) -> Iterator[str]:
    yield "link set lo up"
    yield f"link add {CORE} type bridge"
    yield f"addr add {CORE_ADDRESS}/8 dev {CORE}"
    yield f"link set {CORE} up"
    for rack, hosts in spec.hosts_of.items():
        yield f"link add {rack} type bridge"
        yield f"link set {rack} up"
        yield f"link add {uplink_port(rack)} type veth peer name {_core_port(rack)}"
        yield f"link set {uplink_port(rack)} master {rack} up"
        yield f"link set {_core_port(rack)} master {CORE} up"
        for host in hosts:
            yield f"netns add {host}"
            yield f"link add {host} type veth peer name {INTERFACE} netns {host}"
            yield f"link set {host} master {rack} up"


def _shaping_lines(shaped: Mapping[str, _Shape]) -> str:
    return "\n".join(
        f"qdisc add dev {interface} root {' '.join(shaping_words(rate_bps, burst))}"
        for interface, (rate_bps, burst) in shaped.items()
        if rate_bps is not None
    )
