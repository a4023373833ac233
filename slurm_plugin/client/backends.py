"""The choice of how to reach Slurm: its commands, or pyslurm where a site has built it."""

import importlib
import os
import subprocess
import sys
from collections.abc import Callable

from dally.errors import InputError
from dally.extensions import SLURM_BACKENDS, blaming_extension, extension_names, load_extension
from slurm_plugin.client.command_line import CommandLine
from slurm_plugin.client.pyslurm_backend import PyslurmSlurm
from slurm_plugin.client.slurm import Slurm

_VERSION = "25.11"
_PROBE_TIMEOUT_S = 30
_PROBE = "import pyslurm; print(pyslurm.__version__)"


def open_slurm(name: str) -> Slurm:
    """Access to the cluster by the backend that the configuration names; see `Config`.

    Raises:
        InputError: Pyslurm was asked for and does not work here.
        ExtensionError: It is another package's and is broken.
    """
    if name in ("command-line", "auto"):
        return CommandLine()
    if name in extension_names(SLURM_BACKENDS):
        opener: Callable[[], Slurm] = load_extension(SLURM_BACKENDS, name)
        with blaming_extension(SLURM_BACKENDS, name):
            return opener()
    problem = pyslurm_problem()
    if not problem:
        os.environ["SLURM_BITSTR_LEN"] = (
            "0"  # libslurm reads it at each request and else cuts long task lists
        )
        return PyslurmSlurm(importlib.import_module("pyslurm"), CommandLine())
    raise InputError(
        f"backend pyslurm does not work here: {problem}; where Slurm {_VERSION} and its headers are, "
        "install it by `pip install '.[pyslurm]'` in Dally's folder, else use the backend command-line"
    )


def pyslurm_problem() -> str:
    """What keeps pyslurm from being used here, in one line; empty if nothing does.

    Asked of another process, as an import without a readable slurm.conf ends the process.
    """
    try:
        probe = subprocess.run(
            (sys.executable, "-P", "-c", _PROBE),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_PROBE_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"importing it took more than {_PROBE_TIMEOUT_S} s"
    except OSError as error:
        return f"cannot start Python to try it: {error.strerror}"
    if probe.returncode != 0:
        said = probe.stderr.strip().splitlines()
        return said[-1] if said else f"importing it ended Python with exit code {probe.returncode}"
    version = probe.stdout.strip()
    return "" if version.startswith(f"{_VERSION}.") else f"it is version {version}, must be {_VERSION}"
