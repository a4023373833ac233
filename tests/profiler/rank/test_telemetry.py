"""What Sampler makes of NVML's answers. They are made up: whether a real NVML answers so is not tested."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from profiler.rank.nvml import Nvml
from profiler.rank.telemetry import GpuSampler

GIB = 1 << 30


class FakeError(Exception):
    """Like NVMLError: made of a return code."""


def refuse(*_: object) -> Any:
    raise FakeError("Not Supported")


def fake_library(**replaced: Callable[..., Any]) -> SimpleNamespace:
    """The functions of pynvml, for GPUs whose handles are their numbers."""
    carried = iter(range(0, 1000, 10))
    functions: dict[str, Any] = {
        "nvmlInit": lambda: None,
        "nvmlDeviceGetHandleByUUID": lambda uuid: int(uuid.removeprefix("GPU-")),
        "nvmlDeviceGetUtilizationRates": lambda gpu: SimpleNamespace(gpu=40 + 20 * gpu),
        "nvmlDeviceGetMemoryInfo": lambda gpu: SimpleNamespace(used=(1 + gpu) * GIB),
        "nvmlDeviceGetPcieThroughput": lambda gpu, way: 1000 if way == 0 else 500,
        "nvmlDeviceGetFieldValues": lambda gpu, fields: [
            SimpleNamespace(nvmlReturn=0, value=SimpleNamespace(ullVal=next(carried))) for _ in fields
        ],
    }
    return SimpleNamespace(
        NVMLError=FakeError,
        NVML_PCIE_UTIL_TX_BYTES=0,
        NVML_PCIE_UTIL_RX_BYTES=1,
        NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX=138,
        NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX=139,
        **(functions | replaced),
    )


def sample(library: SimpleNamespace, *uuids: str) -> Any:
    sampler = GpuSampler(lambda: Nvml(library), uuids)
    sampler.start()
    return sampler.stop()


def test_utilisation_and_traffic_are_means_over_gpus_and_memory_is_the_most() -> None:
    telemetry = sample(fake_library(), "GPU-0", "GPU-1")
    assert telemetry.gpu_utilisation == 0.5
    assert telemetry.memory_used_bytes == 2 * GIB
    assert telemetry.pcie_bps == 1500 * 8e3
    assert telemetry.samples >= 1
    assert telemetry.reasons == {}


def test_nvlink_is_the_difference_of_what_was_carried() -> None:
    """The counters of one GPU grow from 0 + 10 to 20 + 30 KiB meanwhile."""
    sampler = GpuSampler(lambda: Nvml(fake_library()), ("GPU-0",))
    sampler.start()
    telemetry = sampler.stop()
    assert telemetry.nvlink_bps is not None
    assert telemetry.nvlink_bps > 0


def test_a_counter_that_is_missing_has_a_reason_and_the_others_are_read() -> None:
    telemetry = sample(fake_library(nvmlDeviceGetPcieThroughput=refuse), "GPU-0")
    assert telemetry.pcie_bps is None
    assert telemetry.reasons == {"pcie_bps": "Not Supported"}
    assert telemetry.gpu_utilisation == 0.4


def test_an_nvlink_counter_that_fails_on_its_own_has_a_reason() -> None:
    def failed(gpu: int, fields: list[tuple[int, int]]) -> list[SimpleNamespace]:
        return [SimpleNamespace(nvmlReturn=3, value=SimpleNamespace(ullVal=0)) for _ in fields]

    telemetry = sample(fake_library(nvmlDeviceGetFieldValues=failed), "GPU-0")
    assert telemetry.nvlink_bps is None
    assert list(telemetry.reasons) == ["nvlink_bps"]


def test_a_gpu_that_nvml_does_not_know_leaves_all_counters_with_its_reason() -> None:
    telemetry = sample(fake_library(nvmlDeviceGetHandleByUUID=refuse), "MIG-7")
    assert (telemetry.gpu_utilisation, telemetry.memory_used_bytes, telemetry.samples) == (None, None, 0)
    assert set(telemetry.reasons) == {"gpu_utilisation", "memory_used_bytes", "pcie_bps", "nvlink_bps"}


def test_without_a_driver_every_counter_is_null_with_the_reason() -> None:
    telemetry = sample(fake_library(nvmlInit=refuse), "GPU-0")
    assert (telemetry.gpu_utilisation, telemetry.memory_used_bytes, telemetry.samples) == (None, None, 0)
    assert (telemetry.pcie_bps, telemetry.nvlink_bps) == (None, None)
    counters = ("gpu_utilisation", "memory_used_bytes", "pcie_bps", "nvlink_bps")
    assert telemetry.reasons == dict.fromkeys(counters, "Not Supported")
