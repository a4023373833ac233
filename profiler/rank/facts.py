"""What the ranks run on, as far as it can be known."""

import os
import platform
from collections.abc import Sequence
from pathlib import Path

import torch

from dally.profiles.schema import Env
from profiler.rank.gpus import gpu_facts, nccl_facts
from profiler.rank.network import network_facts
from profiler.rank.nvml import Nvml
from profiler.rank.peers import Peer, address_among
from workloads.group import Group
from workloads.settings import Backend

_SOCKET_VARIABLES = {Backend.NCCL: "NCCL_SOCKET_IFNAME", Backend.GLOO: "GLOO_SOCKET_IFNAME"}


def gather_facts(group: Group, peers: Sequence[Peer], nvml: Nvml | None, gpu_type: str | None) -> Env:
    """What this rank sees of its machine; of the others, their names. Nothing here fails: unknown is None.

    Args:
        group: This rank's.
        peers: All ranks.
        nvml: The library, where there are GPUs.
        gpu_type: What Slurm calls them; without, the device's own name stands for it.
    """
    gpu = gpu_facts(group.device, nvml)
    nccl = nccl_facts(os.environ) if group.backend == Backend.NCCL else None
    address = address_among(peers, group.rank)
    network = network_facts(address, os.environ, _SOCKET_VARIABLES[group.backend])
    return Env(
        gpu_type=gpu.device_name and (gpu_type or gpu.device_name),
        device_name=gpu.device_name,
        gpu_count=gpu.count,
        driver=gpu.driver,
        cuda=gpu.cuda,
        nccl=nccl.version if nccl else None,
        torch=torch.__version__,
        nccl_env=nccl.variables if nccl else None,
        nccl_algorithm=nccl.algorithm if nccl else None,
        nccl_protocol=nccl.protocol if nccl else None,
        cpu=_cpu(),
        kernel=platform.release(),
        tcp_congestion_control=_first_line(Path("/proc/sys/net/ipv4/tcp_congestion_control")),
        qdisc=network.qdisc,
        qdisc_burst_bytes=network.qdisc_burst_bytes,
        nic=network.nic,
        link_speed_bps=network.link_speed_bps,
        gpu_topology=gpu.topology,
        hosts=tuple(dict.fromkeys(peer.host for peer in peers)),
    )


def _cpu() -> str | None:
    """The CPU's model; arm64 kernels do not name it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return None
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else None


def _first_line(path: Path) -> str | None:
    try:
        return path.read_text().split("\n", 1)[0].strip() or None
    except OSError:
        return None
