"""The ranks that train together: found in the environment that torchrun or Slurm sets, or one alone."""

import os
import re
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta

import torch
from torch import distributed
from torch._C._distributed_c10d import HashStore, Store
from torch.distributed.distributed_c10d import _set_pg_timeout

from dally.errors import DallyError, InputError
from dally.hostlist import expand
from workloads.settings import Backend

_FIRST_PORT, _PORTS = 10_000, 20_000
"""Where ranks under Slurm meet: below the ports that Linux gives out of itself."""

_RETRY_S = 0.1

_PATIENCE = timedelta(minutes=30)


class JoinError(DallyError):
    """The ranks did not come together."""


@dataclass(frozen=True, slots=True)
class Group:
    """This process among those that train together.

    Attributes:
        rank: Its number, from 0.
        size: Of how many.
        device: What it computes on.
        backend: What carries the collectives.
    """

    rank: int
    size: int
    device: torch.device
    backend: Backend


@dataclass(frozen=True, slots=True)
class RankEnvironment:
    """Where a process stands, as its environment says, and where all meet: rank 0's host and a free port."""

    rank: int
    size: int
    local_rank: int
    host: str
    port: int


def join(
    backend: Backend, timeout_s: float, place: RankEnvironment | None = None, store: Store | None = None
) -> Group:
    """Meet the other ranks; blocks until all are there and a first sum went around.

    Args:
        backend: What carries the collectives.
        timeout_s: How long to wait for the others, here; later, every collective waits for half an hour, as
            a rank may be busy with a checkpoint, or stopped for a while.
        place: Where this process stands; None for what its environment says.
        store: Where all meet, if not at the place's host and port: they tell then only where it is.

    Raises:
        InputError: The backend needs a GPU that is not there, or the environment is broken.
        JoinError: Not all came within the time.
    """
    place = place or find_place(os.environ)
    device, limit_s = find_device(backend, place.local_rank), timeout_s
    try:
        store = HashStore() if place.size == 1 else store
        url = None
        if store is None:
            host = f"[{place.host}]" if ":" in place.host else place.host
            url = f"tcp://{host}:{place.port}"
            if place.rank > 0:
                timeout_s = _wait_until_open(place, timeout_s)
        distributed.init_process_group(
            backend,
            init_method=url,
            store=store,
            rank=place.rank,
            world_size=place.size,
            timeout=timedelta(seconds=timeout_s),
        )
        first = torch.zeros(1, device=device)  # data take other ways than the rendezvous
        distributed.all_reduce(first)
        first.item()  # NCCL's sum is only queued until somebody reads it
        _set_pg_timeout(_PATIENCE)
    except (OSError, RuntimeError, ValueError, OverflowError) as error:  # the last is a timeout's
        if "Duplicate GPU" in str(error):  # NCCL's
            raise InputError(
                f"rank {place.rank} of {place.size} shares its GPU with another rank: there are "
                f"{torch.cuda.device_count()} here; start no more ranks than GPUs"
            ) from error
        raise JoinError(
            f"rank {place.rank} of {place.size} did not meet the others at {place.host}:{place.port} "
            f"within {limit_s:g} s: {first_line(error)}"
        ) from error
    return Group(place.rank, place.size, device, backend)


def _wait_until_open(place: RankEnvironment, timeout_s: float) -> float:
    """Wait for rank 0 to listen, where torch would print pages of stacks; the seconds left."""
    until_s = time.monotonic() + timeout_s
    while True:
        left_s = until_s - time.monotonic()
        try:
            socket.create_connection((place.host, place.port), max(left_s, _RETRY_S)).close()
        except OSError:
            if left_s < _RETRY_S:
                raise
            time.sleep(_RETRY_S)
        else:
            return max(until_s - time.monotonic(), _RETRY_S)


def leave() -> None:
    """Part from the other ranks."""
    distributed.destroy_process_group()


def gather(group: Group, number: int) -> list[int]:
    """What all ranks say, in order."""
    own = torch.tensor([number], device=group.device)
    all_ = [torch.empty_like(own) for _ in range(group.size)]
    distributed.all_gather(all_, own)
    return [int(item) for item in all_]


def free_port() -> int:
    """A port of this machine that nobody listens at."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        port = server.getsockname()[1]
    assert isinstance(port, int)
    return port


def find_place(env: Mapping[str, str]) -> RankEnvironment:
    """Where this process stands, by torchrun's variables, else by Slurm's, else alone.

    Under Slurm, MASTER_ADDR and MASTER_PORT may say where to meet; if they do not, it is at the step's first
    node, and at a port made from the job's number.

    Raises:
        InputError: A variable is missing or no number.
    """
    if "RANK" in env:
        rank, size, local = (_number(env, name) for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"))
        return RankEnvironment(rank, size, local, _text(env, "MASTER_ADDR"), _number(env, "MASTER_PORT"))
    if "SLURM_PROCID" in env and "SLURM_NTASKS" in env:  # a script of sbatch may have the first without
        rank, size, local = (_number(env, name) for name in ("SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID"))
        # MASTER_*: whoever launched the ranks may know rank 0's host and its address better.
        host = (
            env.get("MASTER_ADDR")
            or expand(env.get("SLURM_STEP_NODELIST") or _text(env, "SLURM_JOB_NODELIST"))[0]
        )
        given = env.get("MASTER_PORT")
        port = _number(env, "MASTER_PORT") if given else _FIRST_PORT + _number(env, "SLURM_JOB_ID") % _PORTS
        return RankEnvironment(rank, size, local, host, port)
    return RankEnvironment(0, 1, 0, "localhost", 0)


def first_line(error: Exception) -> str:
    """What an error says, without the place in torch's sources before it and the stack after it.

    NCCL's has the cause further down.
    """
    line = re.sub(r"^\[\S+:\d+\] ", "", str(error).split("\n", 1)[0])
    cause = re.search(r"^Last error:\s+(\S.*)", str(error), re.MULTILINE)
    return f"{line}: {cause[1]}" if cause else line


def find_device(backend: Backend, local_rank: int) -> torch.device:
    """What a rank computes on: a GPU of its own with NCCL.

    A process that sees one GPU takes it, whichever its number is: Slurm may show each task only its own.

    Raises:
        InputError: The backend needs a GPU and there is none, or there are more ranks here than GPUs.
    """
    if backend is Backend.GLOO:
        return torch.device("cpu")
    if not torch.cuda.is_available():
        raise InputError("backend nccl needs a GPU and there is none here; use gloo")
    there = torch.cuda.device_count()
    if 1 < there <= local_rank:
        raise InputError(
            f"local rank {local_rank} has no GPU of its own: there are {there}; start no more ranks than GPUs"
        )
    device = torch.device("cuda", min(local_rank, there - 1))
    torch.cuda.set_device(device)
    return device


def _number(env: Mapping[str, str], name: str) -> int:
    text = _text(env, name)
    if not text.isdecimal():
        raise InputError(f"{name} is {text!r}, must be a whole number")
    return int(text)


def _text(env: Mapping[str, str], name: str) -> str:
    if not env.get(name):
        raise InputError(f"{name} is not set, though others of torchrun's or Slurm's variables are")
    return env[name]
