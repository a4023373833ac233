"""The counters of a machine's GPUs, from NVIDIA's library NVML, in SI units."""

import importlib
from typing import Any

from dally.errors import DallyError

_ALL_LINKS = 0xFFFFFFFF
"""As scope of an NVLink counter: the sum of all links (nvml.h)."""


class CounterError(DallyError):
    """A counter is missing, or may not be read."""


class Gpu:
    """One GPU; every method raises CounterError where it lacks the counter."""

    def __init__(self, library: Any, handle: Any) -> None:
        self._library = library
        self._handle = handle

    def utilisation(self) -> float:
        """Share of the last moment, up to a second, in which a kernel ran, 0 to 1."""
        rates = _ask(self._library, "nvmlDeviceGetUtilizationRates", self._handle)
        return float(rates.gpu) / 100

    def memory_used_bytes(self) -> int:
        """Memory in use, by all processes."""
        return int(_ask(self._library, "nvmlDeviceGetMemoryInfo", self._handle).used)

    def pcie_bps(self) -> float:
        """Traffic over PCIe, both ways together, of 20 ms each: this call lasts as long."""
        library = self._library
        ways = (library.NVML_PCIE_UTIL_TX_BYTES, library.NVML_PCIE_UTIL_RX_BYTES)
        kilobytes = [_ask(library, "nvmlDeviceGetPcieThroughput", self._handle, way) for way in ways]
        return float(sum(kilobytes)) * 8e3  # they are per second

    def nvlink_bytes(self) -> int:
        """Data that all links have carried so far, both ways together."""
        library = self._library
        fields = [
            (library.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX, _ALL_LINKS),
            (library.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX, _ALL_LINKS),
        ]
        values = _ask(library, "nvmlDeviceGetFieldValues", self._handle, fields)
        for value in values:
            if value.nvmlReturn:  # each counter fails on its own
                raise CounterError(str(library.NVMLError(value.nvmlReturn)))
        return sum(int(value.value.ullVal) for value in values) * 1024


class Nvml:
    """The library, ready to be asked."""

    def __init__(self, library: Any) -> None:
        """Take the library into use.

        Args:
            library: The module `pynvml`, which has no types.

        Raises:
            CounterError: There is no GPU or no driver.
        """
        self._library = library
        _ask(library, "nvmlInit")

    def driver(self) -> str:
        """Version of the GPU driver; raises CounterError."""
        return str(_ask(self._library, "nvmlSystemGetDriverVersion"))

    def count(self) -> int:
        """GPUs of this machine; raises CounterError."""
        return int(_ask(self._library, "nvmlDeviceGetCount"))

    def gpu(self, uuid: str) -> Gpu:
        """The GPU of this UUID; raises CounterError."""
        return Gpu(self._library, _ask(self._library, "nvmlDeviceGetHandleByUUID", uuid))

    def gpu_at(self, index: int) -> Gpu:
        """The GPU of this number, below `count`; raises CounterError."""
        library = self._library
        return Gpu(library, _ask(library, "nvmlDeviceGetHandleByIndex", index))


def open_nvml() -> Nvml:
    """NVML; raises CounterError where there is no GPU, no driver or no `nvidia-ml-py`."""
    try:
        library = importlib.import_module("pynvml")
    except ImportError as error:
        raise CounterError("nvidia-ml-py is not installed") from error
    return Nvml(library)


def _ask(library: Any, function: str, *arguments: object) -> Any:
    """What a function of the library gives; raises CounterError."""
    try:
        return getattr(library, function)(*arguments)
    except library.NVMLError as error:
        raise CounterError(str(error)) from error
