"""Where the runs of a sweep go: to processes of this machine, to Dask, or to jobs of Slurm by Dask."""

import signal
from collections.abc import Iterator, Mapping
from concurrent.futures import Executor, ProcessPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from multiprocessing import active_children, parent_process
from os import _exit
from threading import Thread
from typing import Any

from dally.errors import InputError
from dally.optional import import_optional

LOCAL, DASK, SLURM = "local", "dask", "slurm"


def workers(on: str, count: int, slurm: Mapping[str, Any]) -> AbstractContextManager[Executor]:
    """An executor for the runs; what still runs when it is left is dropped.

    Args:
        on: `local`, `dask`, `slurm`, or the address of a Dask scheduler, like `tcp://host:8786`.
        count: How many runs at a time; at an address as many as there are workers.
        slurm: What else `dask_jobqueue.SLURMCluster` is told.

    Raises:
        InputError: `on` is none of these.
        MissingModuleError: Dask is not installed.
    """
    if on == LOCAL:
        return _local(count)
    if on not in (DASK, SLURM) and "://" not in on:
        raise InputError(
            f"--on is {on!r}, must be {LOCAL}, {DASK}, {SLURM} or an address like tcp://host:8786"
        )
    dask = import_optional("simulator.sweep.dask_workers", "dask")
    starts = {DASK: lambda: dask.on_this_machine(count), SLURM: lambda: dask.on_slurm(count, slurm)}
    found: AbstractContextManager[Executor] = starts.get(on, lambda: dask.at(on))()
    return found


@contextmanager
def _local(count: int) -> Iterator[Executor]:
    """Processes on this machine."""
    executor = ProcessPoolExecutor(count, initializer=_begin)
    try:
        asked: list[int] = []  # Python loses an interruption that comes while it forks
        before = signal.signal(signal.SIGINT, lambda number, _: asked.append(number))
        executor.submit(int)
        signal.signal(signal.SIGINT, before)
        for number in asked[:1]:
            signal.raise_signal(number)
        yield executor
    finally:
        for process in active_children():
            process.terminate()
        executor.shutdown(cancel_futures=True)


def _begin() -> None:
    """A worker leaves interruption to its parent, and does not outlive it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    parent = parent_process()
    assert parent is not None

    def end_with_parent() -> None:
        parent.join()
        _exit(1)

    Thread(target=end_with_parent, daemon=True).start()
