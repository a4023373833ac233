"""What the ranks run on, as far as it can be known: CPU, GPUs, NCCL and the network between the hosts."""

import json
import os
import platform
import re
import subprocess
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from dally.profiles.schema import Env
from profiler.rank.nvml import CounterError, open_nvml
from profiler.rank.peers import Peer, address_among
from workloads.group import Group
from workloads.settings import Backend, Precision

_SOCKET_VARIABLES = {Backend.NCCL: "NCCL_SOCKET_IFNAME", Backend.GLOO: "GLOO_SOCKET_IFNAME"}
_COMMAND_TIMEOUT_S = 20.0
_BUCKET_BYTES = 25 << 20
"""To which DDP fills its buckets, unless told otherwise."""

_INTERFACES = Path("/sys/class/net")
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_CHOICE = re.compile(r"AllReduce: \d+ Bytes -> Algo (\w+) proto (\w+)")

_nccl_version: Callable[[], tuple[int, ...]] = torch.cuda.nccl.version


def gather_facts(group: Group, peers: Sequence[Peer], gpu_type: str | None) -> Env:
    """What this rank sees of its machine; of the others, their names. Nothing here fails: unknown is None.

    Args:
        group: This rank's.
        peers: All ranks.
        gpu_type: What Slurm calls them; without, the device's own name stands for it.
    """
    on_gpu, with_nccl = group.device.type == "cuda", group.backend == Backend.NCCL
    device_name = torch.cuda.get_device_name(group.device) if on_gpu else None
    driver, gpus = None, torch.cuda.device_count() if on_gpu else None
    if on_gpu:
        with suppress(CounterError):
            nvml = open_nvml()
            driver, gpus = nvml.driver(), nvml.count()  # all of the machine, also those hidden from this rank
    algorithm, protocol = chosen_algorithm(os.environ) if with_nccl else (None, None)
    asked_for = os.environ.get(_SOCKET_VARIABLES[group.backend], "")
    address = address_among(peers, group.rank)
    nic = find_interface(_listed("ip", "-j", "address", "show"), asked_for, address)
    qdisc, burst_bytes = root_qdisc(_listed("tc", "-j", "qdisc", "show", "dev", nic) if nic else [])
    nic_driver = _INTERFACES / nic / "device" / "driver" if nic else None
    speed_mbps = _read(_INTERFACES / nic / "speed") if nic else None  # -1 where it is not known
    topology = _COLOURS.sub("", _output("nvidia-smi", "topo", "-m")) if on_gpu else ""
    # Kernels on arm64 do not name the CPU's model.
    cpus = re.findall(r"^model name\s*: (.*)$", _read(Path("/proc/cpuinfo")) or "", re.MULTILINE)
    return Env(
        gpu_type=device_name and (gpu_type or device_name),
        device_name=device_name,
        gpu_count=gpus,
        driver=driver,
        cuda=torch.version.cuda if on_gpu else None,
        nccl=".".join(map(str, _nccl_version())) if with_nccl else None,
        torch=torch.__version__,
        nccl_env={name: value for name, value in sorted(os.environ.items()) if name.startswith("NCCL_")}
        if with_nccl
        else None,
        nccl_algorithm=algorithm,
        nccl_protocol=protocol,
        cpu=cpus[0].strip() if cpus else None,
        kernel=platform.release(),
        tcp_congestion_control=_read(Path("/proc/sys/net/ipv4/tcp_congestion_control")),
        qdisc=qdisc,
        qdisc_burst_bytes=burst_bytes,
        nic=f"{nic} ({nic_driver.resolve().name})" if nic_driver and nic_driver.exists() else nic,
        link_speed_bps=int(speed_mbps) * 1e6 or None if speed_mbps and speed_mbps.isdecimal() else None,
        gpu_topology=topology.partition("Legend")[0].strip() or None,
        hosts=tuple(dict.fromkeys(peer.host for peer in peers)),
    )


def usual_precision(device: torch.device) -> Precision:
    """What models are trained in on a device: bf16 where a GPU has it in hardware, else fp32."""
    if device.type == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False):
        return Precision.BF16
    return Precision.FP32


def let_nccl_choose(device: torch.device) -> None:
    """Reduce a bucket of the usual size, on all ranks, so that NCCL's last choice is one for gradients.

    For the few bytes that ranks have exchanged before it may choose otherwise.
    """
    dist.all_reduce(torch.zeros(_BUCKET_BYTES // 4, device=device))


def chosen_algorithm(env: Mapping[str, str]) -> tuple[str | None, str | None]:
    """Algorithm and protocol of the last all-reduce, or where a variable leaves no choice; else None.

    NCCL tells them in the file NCCL_DEBUG_FILE, with NCCL_DEBUG=INFO and NCCL_DEBUG_SUBSYS=TUNING; only its
    rank 0 does. In the file's name, %h is the host up to the first dot, %p the process.
    """
    host = os.uname().nodename.partition(".")[0]
    path = env.get("NCCL_DEBUG_FILE", "").replace("%h", host).replace("%p", str(os.getpid()))
    choices = _CHOICE.findall(_read(Path(path)) or "") if path else []
    if choices:
        algorithm, protocol = choices[-1]
        return algorithm, protocol
    values = (env.get("NCCL_ALGO", ""), env.get("NCCL_PROTO", ""))
    algorithm, protocol = (value if value.isalnum() else None for value in values)  # no list, no exclusion
    return algorithm, protocol


def find_interface(interfaces: Sequence[Mapping[str, Any]], names: str, address: str) -> str | None:
    """The network interface that carries the traffic between ranks; None if it is not found.

    It is the first that a variable asks for (prefixes by commas, whole names after `=`; `^` excludes), else
    the one with the address.

    Args:
        interfaces: As `ip -j address show` lists them.
        names: The value of NCCL_SOCKET_IFNAME or GLOO_SOCKET_IFNAME, as NCCL and gloo read it.
        address: Of this machine, on the network between the ranks.
    """
    exact, excluded = names.startswith("="), names.startswith("^")
    wanted = [name for name in names.lstrip("=").split(",") if name]
    for interface in interfaces:
        name = str(interface["ifname"])
        if not excluded and any(name == want or (not exact and name.startswith(want)) for want in wanted):
            return name
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


def _listed(*command: str) -> list[dict[str, Any]]:
    """What a command of iproute2 lists; nothing where it is missing or fails."""
    try:
        listed = json.loads(_output(*command))
    except ValueError:
        return []
    return listed if isinstance(listed, list) else []


def _output(*command: str) -> str:
    """What a command prints; empty where it is missing or fails."""
    try:
        return subprocess.run(
            command, capture_output=True, text=True, timeout=_COMMAND_TIMEOUT_S, check=True
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return ""


def _read(path: Path) -> str | None:
    """The text of a file without the spaces around it; None if it cannot be read or is empty."""
    try:
        return path.read_text(errors="replace").strip() or None
    except OSError:
        return None
