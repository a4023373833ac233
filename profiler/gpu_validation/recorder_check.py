"""What two ranks send each other over NCCL is recorded, and read as the plan that they train by."""

import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from dally.errors import InputError
from dally.words import plural
from profiler.gpu_validation.checks import CheckFolder
from profiler.gpu_validation.commands import StepError, last_line, start_command, wait_for
from profiler.recorded.plan_recognition import recognise
from profiler.recorded.record import RankRecord, read_run
from workloads.recorder import environment
from workloads.registry import WORKLOADS

_RANKS, _STEPS = 2, 30
_APART = 0.03
"""What is sent may differ by this fraction from the gradients: running means of the model are sent, too."""


def record_ranks(work: CheckFolder, model: str, backend: str) -> tuple[RankRecord, ...]:
    """Train with two ranks on one GPU, each passing for a host of its own, and record them.

    Raises:
        StepError: A rank did not end well, or there is no record.
    """
    from workloads.group import free_port  # noqa: PLC0415  # the other checks are listed without torch, too

    until_s = time.monotonic() + work.limit_s
    folder = work.folder / "recorded"
    logs = [work.log(f"recorded-{rank}") for rank in range(_RANKS)]
    address = f"MASTER_PORT={free_port()}"
    ranks = [
        start_command((*_as_host(rank, address, folder), *_train(model, backend)), log)
        for rank, log in enumerate(logs)
    ]
    codes = [wait_for(process, until_s - time.monotonic()) for process in ranks]
    for rank, code in enumerate(codes):
        if code is None:
            raise StepError(f"rank {rank} took longer than {work.limit_s:.0f} s; see {logs[rank]}")
        if code:
            raise StepError(f"rank {rank} ended with {code}: {last_line(logs[rank])}")
    try:
        return read_run(folder).records
    except InputError as error:
        raise StepError(str(error)) from error


def judge_records(records: Sequence[RankRecord], model: str) -> str:
    """Whether the records say that each of two ranks has a replica, and sends the model's gradients.

    Raises:
        StepError: They say something else, or nothing.
    """
    lacks = [f"rank {record.rank}: {record.lacks}" for record in records if record.lacks]
    if lacks:
        raise StepError("; ".join(lacks))
    found = recognise(records)
    if str(found.plan) != f"dp={_RANKS}" or len(records) != _RANKS:
        told = plural(len(records), "rank")
        raise StepError(f"read as {found.plan} from {told}, must be dp={_RANKS} from {_RANKS} ranks")
    sent, gradients = found.traffic[0].sent_bytes, WORKLOADS[model].grad_bytes
    said = f"{found.plan}, {sent / 1e6:.1f} MB sent in a step, {sent / gradients:.3f} of the gradients"
    if abs(sent / gradients - 1) > _APART:
        raise StepError(f"{said}; 1 give or take {_APART:g} is valid")
    return said


def _as_host(rank: int, address: str, folder: Path) -> tuple[str, ...]:
    """What is put before a rank's command: NCCL then takes it for the only rank of a host."""
    place = (f"RANK={rank}", f"WORLD_SIZE={_RANKS}", "LOCAL_RANK=0", "MASTER_ADDR=127.0.0.1", address)
    host = (f"NCCL_HOSTID=host{rank}", "NCCL_MULTI_RANK_GPU_ENABLE=1")
    network = ("NCCL_NET=Socket", "NCCL_SOCKET_IFNAME=lo")
    recorded = (f"{name}={value}" for name, value in environment(folder, os.environ).items())
    return ("env", *place, *host, *network, *recorded)


def _train(model: str, backend: str) -> tuple[str, ...]:
    program = (sys.executable, "-m", "workloads.train", model)
    return (*program, "--global-batch=32", f"--steps={_STEPS}", f"--backend={backend}")
