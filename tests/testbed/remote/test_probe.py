"""What a host tells of itself; here with GPUs of a stand-in for NVML and for nvidia-smi."""

import json
import os
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

from dally import __version__
from testbed.remote import probe
from tests.patience import LONGEST_S

NVML = """
def nvmlInit(): pass
def nvmlDeviceGetCount(): return 2
def nvmlDeviceGetHandleByIndex(index): return index
def nvmlDeviceGetName(handle): return ("H100", b"A100")[handle]
"""
SMI = "#!/bin/sh\necho 'GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-1)'\n"


def told(folder: Path) -> dict[str, Any]:
    """What the probe prints, sent as a text, where a folder is first to be searched."""
    env = {**os.environ, "PYTHONPATH": str(folder), "PATH": f"{folder}:{os.environ['PATH']}"}
    text = Path(probe.__file__).read_text()
    done = subprocess.run(
        [sys.executable, "-"],
        input=text,
        env=env,
        capture_output=True,
        text=True,
        timeout=LONGEST_S,
        check=True,
    )
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_versions_are_told(tmp_path: Path) -> None:
    found = told(tmp_path)
    assert found["python"] == platform.python_version()
    assert found["packages"]["dally"] == __version__
    assert found["uid"] == os.geteuid()


def test_gpus_are_counted_by_nvml(tmp_path: Path) -> None:
    (tmp_path / "pynvml.py").write_text(NVML)
    assert told(tmp_path)["gpus"] == {"names": ["H100", "A100"], "by": "NVML"}


def test_without_nvml_nvidia_smi_counts_them(tmp_path: Path) -> None:
    (tmp_path / "pynvml.py").write_text("raise ImportError('no')")
    (tmp_path / "nvidia-smi").write_text(SMI)
    (tmp_path / "nvidia-smi").chmod(0o755)
    assert told(tmp_path)["gpus"] == {"names": ["NVIDIA H100 80GB HBM3"], "by": "nvidia-smi"}


def test_without_both_the_reason_is_told(tmp_path: Path) -> None:
    (tmp_path / "pynvml.py").write_text("raise ImportError('not here')")
    gpus = told(tmp_path)["gpus"]
    assert gpus["names"] is None
    assert "ImportError: not here" in gpus["by"]
