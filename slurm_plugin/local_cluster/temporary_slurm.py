"""A Slurm on this machine that lasts as long as a context."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

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
    with TemporaryDirectory(prefix="dally-", dir="/tmp", ignore_cleanup_errors=True) as folder:
        local_slurm = LocalSlurm(spec(Path(folder)))
        local_slurm.start(timeout_s)
        try:
            yield local_slurm
        finally:
            local_slurm.stop()
