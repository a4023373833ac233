"""What a local network consists of: hosts in racks, the rates of their links, names and addresses."""

import math
from dataclasses import dataclass

from dally.errors import InputError

MOST_RACKS = MOST_HOSTS = 250
INTERFACE = "eth0"
"""The network interface of every host, for `GLOO_SOCKET_IFNAME` and `NCCL_SOCKET_IFNAME`."""

CORE = "core"
"""The name of the core switch."""

CORE_ADDRESS = f"10.{MOST_RACKS + 1}.0.1"
"""The core switch's own IPv4 address."""

CONGESTION_CONTROL = "reno"
"""Of TCP in the hosts: every kernel has it and lets every namespace choose it.

BBR, the default of some machines, drains each connection for 200 ms in every 10 s (ProbeRTT), and those of a
ring not all at once: iterations of MobileNetV3 on 4 hosts at 200 Mb/s took 772 ms with it, 650 with Reno.
"""

_QUEUE_S = 0.05
"""A packet that would wait longer at a shaped link is dropped."""

_FRAME_BYTES = 1514
_LEAST_BURST_BYTES = 256 * 1024
_BURST_S = 0.5e-3


@dataclass(frozen=True, slots=True)
class Rack:
    """Hosts behind one switch.

    Attributes:
        hosts: Their number.
        host_rate_bps: What each host's link carries each way, bits per second; None for as much as it can.
        uplink_rate_bps: The same for the switch's link to the core.
        burst_bytes: What each of these links may send at once; None: see `burst_bytes`.
    """

    hosts: int
    host_rate_bps: float | None = None
    uplink_rate_bps: float | None = None
    burst_bytes: int | None = None

    def __post_init__(self) -> None:
        if not 1 <= self.hosts <= MOST_HOSTS:
            raise InputError(f"a rack has {self.hosts} hosts, must be 1 to {MOST_HOSTS}")
        _check_rate("host_rate_bps", self.host_rate_bps)
        _check_rate("uplink_rate_bps", self.uplink_rate_bps)
        if self.burst_bytes is not None and self.burst_bytes < _FRAME_BYTES:
            raise InputError(f"burst_bytes is {self.burst_bytes}, must be {_FRAME_BYTES} or more")


@dataclass(frozen=True, slots=True)
class NetworkSpec:
    """Racks whose switches hang on one core switch; rack 1 has the hosts r1h1, r1h2 and so on."""

    racks: tuple[Rack, ...]

    def __post_init__(self) -> None:
        if not 1 <= len(self.racks) <= MOST_RACKS:
            raise InputError(f"the network has {len(self.racks)} racks, must be 1 to {MOST_RACKS}")

    @property
    def hosts_of(self) -> dict[str, tuple[str, ...]]:
        """The names of all racks, r1 first, each with those of its hosts."""
        return {
            f"r{rack}": tuple(f"r{rack}h{host}" for host in range(1, entry.hosts + 1))
            for rack, entry in enumerate(self.racks, 1)
        }

    @property
    def hosts(self) -> tuple[str, ...]:
        """The names of all hosts, rack by rack."""
        return tuple(host for hosts in self.hosts_of.values() for host in hosts)

    def rack(self, host: str) -> str:
        """The name of the rack a host stands in.

        Raises:
            InputError: There is no such host.
        """
        for rack, hosts in self.hosts_of.items():
            if host in hosts:
                return rack
        raise InputError(f"unknown host {host!r}; valid: {', '.join(self.hosts)}")

    def address(self, host: str) -> str:
        """A host's IPv4 address; all are in one network, 10.0.0.0/8.

        Raises:
            InputError: There is no such host.
        """
        rack = self.rack(host)
        return f"10.{rack[1:]}.0.{host.removeprefix(rack)[1:]}"


def shaping_words(rate_bps: float, burst: int | None = None) -> tuple[str, ...]:
    """The queueing discipline that shapes a link to a rate and a burst of so many bytes, as tc is told."""
    burst, latency = burst or burst_bytes(rate_bps), f"{_QUEUE_S * 1e3:g}ms"
    return ("tbf", "rate", f"{rate_bps:.0f}bit", "burst", str(burst), "latency", latency)


def burst_bytes(rate_bps: float) -> int:
    """How many bytes a shaped link may send at once.

    Less than 256 KB, or half a millisecond's worth, starves TCP: at 1 Gb/s a burst of 64 KB more than doubled
    the time of an all-reduce (measured; docs/local-network.md).
    """
    return max(_LEAST_BURST_BYTES, math.ceil(_BURST_S * rate_bps / 8))


def _check_rate(name: str, rate_bps: float | None) -> None:
    if rate_bps is not None and not 1000 <= rate_bps <= 1e12:
        raise InputError(f"{name} is {rate_bps:g}, must be 1e3 to 1e12 bits per second, or none for unshaped")
