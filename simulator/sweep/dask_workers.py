"""Runs of a sweep on Dask: on workers of this machine, of a scheduler that runs already, or jobs of Slurm."""

import subprocess
from collections.abc import Iterator, Mapping
from concurrent.futures import Executor
from contextlib import contextmanager
from typing import Any

from dask_jobqueue.slurm import SLURMCluster
from distributed import Client, LocalCluster

from dally.errors import DallyError, InputError

_A_JOB = {"cores": 1, "processes": 1, "memory": "4GiB"}
"""A job of Slurm is one worker that simulates one run at a time."""

_ANSWER_S, _CONNECT_S = 60.0, 5.0


@contextmanager
def on_this_machine(count: int) -> Iterator[Executor]:
    """So many workers of this machine, which end with the sweep."""
    with LocalCluster(n_workers=count, threads_per_worker=1, dashboard_address=None) as cluster:
        yield from _executor(cluster)


@contextmanager
def on_slurm(count: int, options: Mapping[str, Any]) -> Iterator[Executor]:
    """So many jobs of Slurm, which end with the sweep.

    Args:
        count: Jobs, each a worker.
        options: Those of `dask_jobqueue.SLURMCluster`, such as `queue`, `walltime` and `memory`.

    Raises:
        InputError: It does not know one of them, or Slurm would not take such a job.
    """
    try:
        cluster = SLURMCluster(**{**_A_JOB, **options})
    except (TypeError, ValueError) as error:
        raise InputError(f"[slurm]: {error}") from error
    with cluster:
        _check_accepted(cluster.job_script())
        cluster.scale(jobs=count)
        yield from _executor(cluster)


def _check_accepted(script: str) -> None:
    """Ask Slurm whether it would take a job: Dask waits for ever for one that was refused."""
    try:
        asked = subprocess.run(
            ["sbatch", "--test-only"], input=script, text=True, capture_output=True, timeout=_ANSWER_S
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise InputError(f"--on slurm: sbatch does not answer: {error}") from error
    if asked.returncode:
        raise InputError(f"[slurm]: {' '.join(asked.stderr.split())}")


@contextmanager
def at(address: str) -> Iterator[Executor]:
    """The workers of a Dask scheduler that runs already."""
    yield from _executor(address)


def _executor(cluster: LocalCluster | SLURMCluster | str) -> Iterator[Executor]:
    try:
        client = Client(cluster, timeout=_CONNECT_S)
    except OSError as error:
        raise DallyError(f"no Dask scheduler answers at {cluster}: {error}") from error
    with client:
        pool = client.get_executor(pure=False)
        try:
            yield pool
        finally:
            pool.shutdown(wait=False)
