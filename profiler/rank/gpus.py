"""What can be known of a machine's GPUs, their driver and NCCL."""

import os
import re
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import torch
import torch.distributed as dist

from profiler.rank.nvml import CounterError, Nvml
from workloads.settings import Precision

_COMMAND_TIMEOUT_S = 20.0
_BUCKET_BYTES = 25 << 20
"""To which DDP fills its buckets, unless told otherwise."""

_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_CHOICE = re.compile(r"AllReduce: \d+ Bytes -> Algo (\w+) proto (\w+)")

_Value = TypeVar("_Value")

_nccl_version: Callable[[], tuple[int, ...]] = torch.cuda.nccl.version


@dataclass(frozen=True, slots=True)
class GpuFacts:
    """As in `Env`; None for what is not known."""

    device_name: str | None
    count: int | None
    driver: str | None
    cuda: str | None
    topology: str | None


@dataclass(frozen=True, slots=True)
class NcclFacts:
    """As in `Env`; None for what is not known."""

    version: str | None
    variables: Mapping[str, str] | None
    algorithm: str | None
    protocol: str | None


def gpu_facts(device: torch.device, nvml: Nvml | None) -> GpuFacts:
    """The GPUs of this machine; all None if the device is none."""
    if device.type != "cuda":
        return GpuFacts(None, None, None, None, None)
    return GpuFacts(
        device_name=torch.cuda.get_device_name(device),
        count=_known(nvml.count) if nvml else torch.cuda.device_count(),
        driver=_known(nvml.driver) if nvml else None,
        cuda=torch.version.cuda,
        topology=_topology(),
    )


def nccl_facts(env: Mapping[str, str]) -> NcclFacts:
    """NCCL's version, the `NCCL_*` variables set, and what it chose for all-reduces, as far as it tells."""
    algorithm, protocol = chosen_algorithm(env)
    return NcclFacts(
        version=".".join(map(str, _nccl_version())),
        variables={name: value for name, value in sorted(env.items()) if name.startswith("NCCL_")},
        algorithm=algorithm,
        protocol=protocol,
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
    rank 0 does.
    """
    choices = _CHOICE.findall(_debug_text(env.get("NCCL_DEBUG_FILE", "")))
    if choices:
        algorithm, protocol = choices[-1]
        return algorithm, protocol
    return _only(env.get("NCCL_ALGO")), _only(env.get("NCCL_PROTO"))


def _debug_text(name: str) -> str:
    """What NCCL has written to its file; in its name, %h is the host up to the first dot, %p the process."""
    host = os.uname().nodename.partition(".")[0]
    path = name.replace("%h", host).replace("%p", str(os.getpid()))
    try:
        return Path(path).read_text(errors="replace") if path else ""
    except OSError:
        return ""


def _only(value: str | None) -> str | None:
    """A variable's value where it is one name, not a list or an exclusion."""
    return value if value and value.isalnum() else None


def _topology() -> str | None:
    """The table of `nvidia-smi topo -m`, without its legend."""
    try:
        done = subprocess.run(
            ["nvidia-smi", "topo", "-m"],
            capture_output=True,
            text=True,
            timeout=_COMMAND_TIMEOUT_S,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return _COLOURS.sub("", done.stdout).partition("Legend")[0].strip() or None


def _known(read: Callable[[], _Value]) -> _Value | None:
    try:
        return read()
    except CounterError:
        return None
