from pathlib import Path

import pytest
import torch

from profiler.rank.gpus import GpuFacts, chosen_algorithm, gpu_facts

TOLD = (
    "n1:812:830 [0] NCCL INFO AllReduce: 4096 Bytes -> Algo RING proto LL channel{Lo..Hi}={0..0}\n"
    "n1:812:830 [0] NCCL INFO Broadcast: 400 Bytes -> Algo RING proto LL channel{Lo..Hi}={0..0}\n"
    "n1:812:830 [0] NCCL INFO AllReduce: 26214400 Bytes -> Algo TREE proto SIMPLE channel{Lo..Hi}={0..7}\n"
)


def test_without_a_gpu_nothing_is_known_of_gpus() -> None:
    assert gpu_facts(torch.device("cpu"), None) == GpuFacts(None, None, None, None, None)


def test_the_algorithm_is_the_one_nccl_told_last_for_an_all_reduce(tmp_path: Path) -> None:
    told = tmp_path / "nccl.log"
    told.write_text(TOLD)
    assert chosen_algorithm({"NCCL_DEBUG_FILE": str(told), "NCCL_ALGO": "Ring"}) == ("TREE", "SIMPLE")


@pytest.mark.parametrize(
    ("env", "chosen"),
    [
        ({"NCCL_ALGO": "Ring", "NCCL_PROTO": "Simple"}, ("Ring", "Simple")),
        ({"NCCL_ALGO": "Ring,Tree", "NCCL_PROTO": "^LL128"}, (None, None)),
        ({"NCCL_DEBUG_FILE": "/nowhere/nccl.log"}, (None, None)),
        ({}, (None, None)),
    ],
)
def test_else_it_is_known_only_where_a_variable_leaves_no_choice(
    env: dict[str, str], chosen: tuple[str | None, str | None]
) -> None:
    assert chosen_algorithm(env) == chosen
