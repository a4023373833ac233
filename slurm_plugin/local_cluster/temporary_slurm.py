"""A Slurm on this machine that lasts as long as a context."""

import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from slurm_plugin.local_cluster.local_slurm import START_S, LocalSlurm
from slurm_plugin.local_cluster.slurm_files import LocalClusterSpec


@contextmanager
def temporary_slurm(
    spec: Callable[[Path], LocalClusterSpec], timeout_s: float = START_S
) -> Iterator[LocalSlurm]:
    """Bring a Slurm up in a new folder below /tmp; end it and remove the folder afterwards.

    Args:
        spec: Gives what it is made of, for its folder.
        timeout_s: Longest wait for its nodes.

    Raises:
        ClusterError: It does not come up.
    """
    folder = Path(tempfile.mkdtemp(prefix="dally-", dir="/tmp"))
    try:
        local_slurm = LocalSlurm(spec(folder))
        local_slurm.start(timeout_s)
        try:
            yield local_slurm
        finally:
            local_slurm.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
