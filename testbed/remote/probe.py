"""Tells facts of the machine on which it runs, as JSON; sent to hosts as a text, so it needs Python alone.

It changes nothing. It must also run on a Python that is too old for Dally, to be able to say so.
"""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import subprocess
import sys
from importlib import import_module, metadata

_ANSWER_S = 10
_DAEMONS = ("slurmctld", "slurmd", "munged")


def facts() -> dict[str, object]:
    """All that is to be known; None for what there is not."""
    munge = _answer("munged", "-V").split()  # munge-0.5.15 (2022-06-22)
    running = _running()
    cluster = re.search(r"^ClusterName\s*=\s*(\S+)", _answer("scontrol", "show", "config"), re.MULTILINE)
    return {
        "python": platform.python_version(),
        "packages": {name: _package(name) for name in ("dally", "torch")},
        "kernel": os.uname().release,
        "uid": os.getuid(),
        "programs": {name: shutil.which(name) for name in _DAEMONS},
        "slurm": _last_word("slurmd", "-V") or _last_word("scontrol", "-V"),
        "munge": munge[0].rpartition("-")[2] if munge else None,
        "running": [name for name in _DAEMONS if name in running],
        "slurm_cluster": cluster[1] if cluster else None,
        "gpus": _gpus(),
    }


def _package(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _answer(*argv: str) -> str:
    try:
        nothing = subprocess.DEVNULL
        done = subprocess.run(argv, stdin=nothing, stdout=subprocess.PIPE, stderr=nothing, timeout=_ANSWER_S)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return "" if done.returncode else done.stdout.decode(errors="replace")


def _last_word(*argv: str) -> str | None:
    words = _answer(*argv).split()
    return words[-1] if words else None


def _running() -> set[str]:
    names = set()
    for number in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{number}/comm") as file:
                names.add(file.read().strip())
        except OSError:
            continue
    return names


def _gpus() -> dict[str, object]:
    """Names of the GPUs; None with the reason where they cannot be counted."""
    try:
        pynvml = import_module("pynvml")
        pynvml.nvmlInit()
        handles = map(pynvml.nvmlDeviceGetHandleByIndex, range(pynvml.nvmlDeviceGetCount()))
        names = [pynvml.nvmlDeviceGetName(handle) for handle in handles]
        names = [name.decode() if isinstance(name, bytes) else name for name in names]
        return {"names": names, "by": "NVML"}
    except Exception as error:  # a missing module, a missing driver: nvidia-smi may still tell
        reason = f"{type(error).__name__}: {error}"
    if not shutil.which("nvidia-smi"):
        return {"names": None, "by": f"no NVML ({reason}) and no nvidia-smi"}
    lines = [line for line in _answer("nvidia-smi", "-L").splitlines() if line.startswith("GPU ")]
    return {"names": [line.split(":")[1].split("(")[0].strip() for line in lines], "by": "nvidia-smi"}


if __name__ == "__main__":
    json.dump(facts(), sys.stdout)
