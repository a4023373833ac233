"""Waits on a host until its connection ends, then ends a private Slurm there and removes its folders."""

import shutil
import signal
import sys
from pathlib import Path

from slurm_plugin.local_cluster.processes import end_processes

_ENDINGS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def main(folder: str, *more_folders: str) -> None:
    """Wait for a signal to end, which comes when the connection does; then clean up."""
    signal.pthread_sigmask(signal.SIG_BLOCK, _ENDINGS)
    print("ready", flush=True)
    signal.sigwait(_ENDINGS)
    end_processes({"SLURM_CONF": str(Path(folder) / "etc" / "slurm.conf")}, f"{folder}/log/slurmd-")
    for path in (folder, *more_folders):
        shutil.rmtree(path, ignore_errors=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
