"""The commands that build a local network inside its holder: namespaces, veth pairs, bridges and shaping."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from profiler.hosts.network_spec import CONGESTION_CONTROL, INTERFACE, QDISC, NetworkSpec, burst_bytes

_QUEUE_S = 0.05
"""A packet that would wait longer at a shaped link is dropped."""

_CORE = "core"
_CONGESTION_CONTROL_FILE = "/proc/sys/net/ipv4/tcp_congestion_control"


@dataclass(frozen=True, slots=True)
class Step:
    """One command and what it reads from standard input."""

    argv: tuple[str, ...]
    stdin: str = ""


def uplink_port(rack: str) -> str:
    """The interface of a rack's switch towards the core, in the holder."""
    return f"{rack}-up"


def _core_port(rack: str) -> str:
    return f"{rack}-{_CORE}"


def wiring(spec: NetworkSpec, mount_point: str) -> Iterator[Step]:
    """The steps in order, to be run as root of the holder's namespaces.

    Every rack is a bridge in the holder, every host a namespace; each end of a link shapes what it sends, so
    that both directions have the rate.

    Args:
        spec: The network.
        mount_point: What to hide under a file system of its own, so that the names of namespaces are too.
    """
    yield Step(("mount", "-t", "tmpfs", "none", mount_point))
    yield Step(("ip", "-batch", "-"), "\n".join(_switch_lines(spec)))
    yield Step(("tc", "-batch", "-"), _shaping_lines(_switch_rates(spec)))
    for host in spec.hosts:
        yield Step(("ip", "-n", host, "-batch", "-"), "\n".join(_host_lines(spec.address(host))))
        yield Step(("ip", "netns", "exec", host, "tee", _CONGESTION_CONTROL_FILE), CONGESTION_CONTROL)
    for rack, entry in zip(spec.hosts_of.values(), spec.racks, strict=True):
        for host in rack:
            yield Step(("tc", "-n", host, "-batch", "-"), _shaping_lines({INTERFACE: entry.host_rate_bps}))


def _switch_lines(spec: NetworkSpec) -> Iterator[str]:
    yield "link set lo up"
    yield f"link add {_CORE} type bridge"
    yield f"link set {_CORE} up"
    for rack, hosts in spec.hosts_of.items():
        yield f"link add {rack} type bridge"
        yield f"link set {rack} up"
        yield f"link add {uplink_port(rack)} type veth peer name {_core_port(rack)}"
        yield f"link set {uplink_port(rack)} master {rack} up"
        yield f"link set {_core_port(rack)} master {_CORE} up"
        for host in hosts:
            yield f"netns add {host}"
            yield f"link add {host} type veth peer name {INTERFACE} netns {host}"
            yield f"link set {host} master {rack} up"


def _host_lines(address: str) -> Iterator[str]:
    yield "link set lo up"
    yield f"addr add {address}/8 dev {INTERFACE}"
    yield f"link set {INTERFACE} up"


def _switch_rates(spec: NetworkSpec) -> dict[str, float | None]:
    """The rate of every interface in the holder."""
    rates: dict[str, float | None] = {}
    for (rack, hosts), entry in zip(spec.hosts_of.items(), spec.racks, strict=True):
        rates |= dict.fromkeys(hosts, entry.host_rate_bps)
        rates |= dict.fromkeys((uplink_port(rack), _core_port(rack)), entry.uplink_rate_bps)
    return rates


def _shaping_lines(rates: Mapping[str, float | None]) -> str:
    return "\n".join(
        f"qdisc add dev {interface} root {QDISC} rate {rate_bps:.0f}bit burst {burst_bytes(rate_bps)} "
        f"latency {_QUEUE_S * 1e3:g}ms"
        for interface, rate_bps in rates.items()
        if rate_bps is not None
    )
