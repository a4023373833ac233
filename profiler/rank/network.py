"""The network interface that carries the traffic between ranks: its queue, its card and its rate."""

import json
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_COMMAND_TIMEOUT_S = 10.0
_CLASS = Path("/sys/class/net")


@dataclass(frozen=True, slots=True)
class NetworkFacts:
    """As in `Env`; None for what is not known."""

    qdisc: str | None
    qdisc_burst_bytes: int | None
    nic: str | None
    link_speed_bps: float | None


def network_facts(address: str, env: Mapping[str, str], variable: str) -> NetworkFacts:
    """Facts of the interface used.

    Args:
        address: Of this machine, on the network between the ranks.
        env: The environment; `variable` in it may name the interface.
        variable: NCCL_SOCKET_IFNAME or GLOO_SOCKET_IFNAME.
    """
    interfaces = _listed(["ip", "-j", "address", "show"])
    name = named_interface(interfaces, env.get(variable, "")) or interface_of(interfaces, address)
    if name is None:
        return NetworkFacts(None, None, None, None)
    qdisc, burst_bytes = root_qdisc(_listed(["tc", "-j", "qdisc", "show", "dev", name]))
    return NetworkFacts(qdisc, burst_bytes, _card(name), _speed_bps(name))


def named_interface(interfaces: Sequence[Mapping[str, Any]], names: str) -> str | None:
    """The first interface that a variable asks for: prefixes by commas, whole names after `=`; `^` excludes.

    Args:
        interfaces: As `ip -j address show` lists them.
        names: The variable's value, as NCCL and gloo read it.
    """
    exact, excluded = names.startswith("="), names.startswith("^")
    wanted = [name for name in names.lstrip("=").split(",") if name]
    for interface in interfaces:
        name = str(interface["ifname"])
        if not excluded and any(name == want or (not exact and name.startswith(want)) for want in wanted):
            return name
    return None


def interface_of(interfaces: Sequence[Mapping[str, Any]], address: str) -> str | None:
    """The interface that has an address."""
    for interface in interfaces:
        if any(item.get("local") == address for item in interface.get("addr_info", ())):
            return str(interface["ifname"])
    return None


def root_qdisc(qdiscs: Sequence[Mapping[str, Any]]) -> tuple[str | None, int | None]:
    """Kind of the queue at an interface's root, and the largest burst of its queues, bytes.

    Args:
        qdiscs: As `tc -j qdisc show dev NAME` lists them.
    """
    roots = [str(qdisc["kind"]) for qdisc in qdiscs if qdisc.get("root")]
    bursts = [qdisc["options"]["burst"] for qdisc in qdiscs if "burst" in qdisc.get("options", {})]
    return (roots[0] if roots else None), (int(max(bursts)) if bursts else None)


def _listed(command: Sequence[str]) -> list[dict[str, Any]]:
    """What a command of iproute2 lists; nothing where it is missing or fails."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_COMMAND_TIMEOUT_S, check=True)
        listed = json.loads(done.stdout)
    except (OSError, subprocess.SubprocessError, ValueError):
        return []
    return listed if isinstance(listed, list) else []


def _card(name: str) -> str:
    """The interface, with its card's driver where there is a card."""
    driver = _CLASS / name / "device" / "driver"
    return f"{name} ({driver.resolve().name})" if driver.exists() else name


def _speed_bps(name: str) -> float | None:
    try:
        megabits = int((_CLASS / name / "speed").read_text())
    except (OSError, ValueError):
        return None
    return megabits * 1e6 if megabits > 0 else None
