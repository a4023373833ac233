"""Ranks find each other by torchrun's or Slurm's variables, and say in a line what keeps them apart."""

import socket

import pytest
import torch
from torch import distributed
from torch._C._distributed_c10d import HashStore

from dally.errors import InputError
from workloads.group import Group, JoinError, RankEnvironment, find_device, find_place, first_line, join
from workloads.settings import Backend

TORCHRUN = {
    "RANK": "3",
    "WORLD_SIZE": "4",
    "LOCAL_RANK": "1",
    "MASTER_ADDR": "gpu1",
    "MASTER_PORT": "29500",
}
SLURM = {
    "SLURM_PROCID": "5",
    "SLURM_NTASKS": "8",
    "SLURM_LOCALID": "1",
    "SLURM_JOB_ID": "123456",
    "SLURM_JOB_NODELIST": "gpu[003-006]",
}


def test_torchrun_wins_over_slurm() -> None:
    assert find_place({**SLURM, **TORCHRUN}) == RankEnvironment(3, 4, 1, "gpu1", 29500)


def test_under_slurm_all_meet_at_the_first_node_of_the_step() -> None:
    assert find_place(SLURM) == RankEnvironment(5, 8, 1, "gpu003", 10_000 + 123456 % 20_000)
    assert find_place({**SLURM, "SLURM_STEP_NODELIST": "gpu[005-006]"}).host == "gpu005"


def test_under_slurm_the_user_may_say_where_to_meet() -> None:
    place = find_place({**SLURM, "MASTER_ADDR": "10.1.0.3", "MASTER_PORT": "4000"})
    assert (place.host, place.port) == ("10.1.0.3", 4000)


def test_without_a_launcher_a_process_is_alone() -> None:
    assert find_place({}) == RankEnvironment(0, 1, 0, "localhost", 0)


def test_in_a_job_of_slurm_without_tasks_a_process_is_alone() -> None:
    job = {name: value for name, value in SLURM.items() if name != "SLURM_NTASKS"} | {"SLURM_PROCID": "0"}
    assert find_place(job) == RankEnvironment(0, 1, 0, "localhost", 0)


@pytest.mark.parametrize(
    ("env", "message"),
    [
        ({**TORCHRUN, "WORLD_SIZE": "four"}, "WORLD_SIZE is 'four', must be a whole number"),
        ({**TORCHRUN, "MASTER_PORT": ""}, "MASTER_PORT is not set"),
        ({"SLURM_PROCID": "0", "SLURM_NTASKS": "2"}, "SLURM_LOCALID is not set"),
        ({**SLURM, "SLURM_JOB_NODELIST": "gpu["}, "is not a host list"),
    ],
)
def test_a_broken_environment_is_named(env: dict[str, str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        find_place(env)


def test_nccl_needs_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(InputError, match="backend nccl needs a GPU and there is none here; use gloo"):
        join(Backend.NCCL, 1.0)


@pytest.mark.parametrize(("rank", "reason"), [(0, "1/2 clients joined"), (1, "Connection refused")])
def test_a_peer_that_does_not_come_is_one_line(
    rank: int, reason: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        port = str(server.getsockname()[1])
    place = {"RANK": str(rank), "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    for name, value in {**TORCHRUN, **place}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(JoinError) as caught:
        join(Backend.GLOO, 1.0)
    start = f"rank {rank} of 2 did not meet the others at 127.0.0.1:{port} within 1 s: "
    assert str(caught.value).startswith(start)
    assert reason in str(caught.value)
    assert "\n" not in str(caught.value)
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("rank", ["0", "1"])
def test_a_timeout_that_cannot_be_is_one_line(rank: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {**TORCHRUN, "RANK": rank, "MASTER_ADDR": "127.0.0.1"}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(JoinError, match=r"at 127\.0\.0\.1:29500 within inf s: "):
        join(Backend.GLOO, float("inf"))


def test_nccls_cause_is_told_with_the_first_line() -> None:
    error = RuntimeError(
        "NCCL error in: NCCLUtils.cpp:77, invalid usage, NCCL version 2.27.5\n"
        "ncclInvalidUsage: This usually reflects invalid usage of NCCL library.\n"
        "Last error:\nDuplicate GPU detected : rank 1 and rank 0 both on CUDA device 1000"
    )
    told = "invalid usage, NCCL version 2.27.5: Duplicate GPU detected : rank 1 and rank 0"
    assert told in first_line(error)


def test_one_rank_alone_needs_nobody(alone: Group) -> None:
    assert alone == Group(0, 1, torch.device("cpu"), Backend.GLOO)


@pytest.mark.parametrize(("gpus", "local_rank", "index"), [(1, 0, 0), (1, 3, 0), (4, 3, 3)])
def test_a_rank_takes_the_gpu_of_its_number_or_the_only_one_that_it_sees(
    gpus: int, local_rank: int, index: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    see_gpus(gpus, monkeypatch)
    assert find_device(Backend.NCCL, local_rank) == torch.device("cuda", index)


def test_more_ranks_than_gpus_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    see_gpus(2, monkeypatch)
    with pytest.raises(InputError, match="local rank 2 has no GPU of its own: there are 2"):
        find_device(Backend.NCCL, 2)


def test_what_nccl_says_of_two_ranks_on_one_gpu_is_told_in_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise RuntimeError(
            "NCCL error in: NCCLUtils.cpp:77, invalid usage\nncclInvalidUsage: ...\n"
            "Last error:\nDuplicate GPU detected : rank 1 and rank 0 both on CUDA device 1000"
        )

    see_gpus(1, monkeypatch)
    monkeypatch.setattr(distributed, "init_process_group", refuse)
    with pytest.raises(InputError, match="rank 1 of 2 shares its GPU with another rank: there are 1 here"):
        join(Backend.NCCL, 1.0, RankEnvironment(1, 2, 1, "n1", 4000), HashStore())


def see_gpus(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with so many GPUs."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: count)
    monkeypatch.setattr(torch.cuda, "set_device", lambda device: None)
