from pathlib import Path

import pytest
import torch

from profiler.rank import clocks, facts
from profiler.rank.gpus import GpuFacts, chosen_algorithm, gpu_facts, usual_precision
from tests.profiler.rank.test_peers import FIRST
from workloads.group import Group
from workloads.settings import Backend, Precision

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


@pytest.mark.parametrize(("in_hardware", "precision"), [(True, Precision.BF16), (False, Precision.FP32)])
def test_bf16_is_usual_where_the_gpu_has_it_itself(
    in_hardware: bool, precision: Precision, monkeypatch: pytest.MonkeyPatch
) -> None:
    def supported(including_emulation: bool = True) -> bool:
        return including_emulation or in_hardware

    monkeypatch.setattr(torch.cuda, "is_bf16_supported", supported)
    assert usual_precision(torch.device("cuda", 0)) is precision


def test_on_cpus_fp32_is_usual() -> None:
    assert usual_precision(torch.device("cpu")) is Precision.FP32


@pytest.mark.parametrize(("told", "gpu_type"), [("h100", "h100"), (None, "NVIDIA H100 80GB HBM3")])
def test_slurms_type_and_cudas_name_of_a_gpu_are_two_facts(
    told: str | None, gpu_type: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "NVIDIA H100 80GB HBM3")
    monkeypatch.setattr(facts, "nccl_facts", lambda env: None)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    group = Group(0, 1, 0, torch.device("cuda", 0), Backend.NCCL)
    env = facts.gather_facts(group, [FIRST], None, told)
    assert (env.gpu_type, env.device_name) == (gpu_type, "NVIDIA H100 80GB HBM3")


def test_a_type_that_slurm_has_is_none_of_a_machine_without_gpus() -> None:
    group = Group(0, 1, 0, torch.device("cpu"), Backend.GLOO)
    assert facts.gather_facts(group, [FIRST], None, "h100").gpu_type is None


class FakeEvent:
    """Like torch.cuda.Event: a moment in the GPU's stream, in milliseconds."""

    now_ms = 0.0

    def __init__(self, enable_timing: bool) -> None:
        assert enable_timing

    def record(self) -> None:
        self.at_ms = FakeEvent.now_ms

    def elapsed_time(self, end: "FakeEvent") -> float:
        return end.at_ms - self.at_ms


def test_on_a_gpu_time_passes_as_its_stream_does_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clocks, "_make_event", FakeEvent)
    clock = clocks.CudaClock()
    start = clock.mark()
    FakeEvent.now_ms = 250.0
    assert clock.mark().since(start) == 0.25
