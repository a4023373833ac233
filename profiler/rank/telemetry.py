"""Reads the counters of GPUs in a thread while something runs."""

import threading
import time
from collections.abc import Callable, Sequence
from statistics import mean

from dally.profiles.schema import Telemetry
from profiler.rank.nvml import CounterError, Gpu, Nvml

PERIOD_S = 0.15
"""Between two readings of utilisation and memory."""

PCIE_PERIOD_S = 1.0
"""Between two readings of PCIe traffic, which last 20 ms each way."""

_COUNTERS = ("gpu_utilisation", "memory_used_bytes", "pcie_bps", "nvlink_bps")


class GpuSampler:
    """Reads the counters of some GPUs from `start` to `stop`.

    Utilisation, memory and PCIe traffic are sampled; NVLink counts all traffic, so its difference is taken. A
    counter that cannot be read is not asked for again, and its reason is kept.
    """

    def __init__(self, open_library: Callable[[], Nvml], uuids: Sequence[str]) -> None:
        """Find the GPUs; where that fails, no counter is read, and each has the reason.

        Args:
            open_library: What opens NVML, or raises CounterError.
            uuids: Which GPUs; at least one.
        """
        self._reasons: dict[str, str] = {}
        self._utilisation: list[float] = []
        self._memory_bytes: list[int] = []
        self._pcie_bps: list[float] = []
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._read_on, daemon=True)
        self._gpus: list[Gpu] = []
        try:
            nvml = open_library()
            self._gpus = [nvml.gpu(uuid) for uuid in uuids]
        except CounterError as error:
            self._reasons = dict.fromkeys(_COUNTERS, str(error))

    def start(self) -> None:
        """Begin to read."""
        self._start_s = time.monotonic()
        self._start_bytes = self._mean("nvlink_bps", Gpu.nvlink_bytes)
        self._thread.start()

    def stop(self) -> Telemetry:
        """End, and tell what was read; utilisation and traffic are means over the GPUs."""
        self._ended.set()
        self._thread.join()
        end_bytes, nvlink_bps = self._mean("nvlink_bps", Gpu.nvlink_bytes), None
        if end_bytes is not None and self._start_bytes is not None:
            nvlink_bps = (end_bytes - self._start_bytes) * 8 / (time.monotonic() - self._start_s)
        return Telemetry(
            gpu_utilisation=mean(self._utilisation) if self._utilisation else None,
            memory_used_bytes=max(self._memory_bytes, default=None),
            pcie_bps=mean(self._pcie_bps) if self._pcie_bps else None,
            nvlink_bps=nvlink_bps,
            samples=max(len(self._utilisation), len(self._memory_bytes)),
            reasons=dict(self._reasons),
        )

    def _read_on(self) -> None:
        pcie_due_s = self._start_s
        while True:
            if (share := self._mean("gpu_utilisation", Gpu.utilisation)) is not None:
                self._utilisation.append(share)
            if (used := self._read("memory_used_bytes", Gpu.memory_used_bytes)) is not None:
                self._memory_bytes.append(int(max(used)))
            if time.monotonic() >= pcie_due_s:
                if (rate_bps := self._mean("pcie_bps", Gpu.pcie_bps)) is not None:
                    self._pcie_bps.append(rate_bps)
                pcie_due_s = time.monotonic() + PCIE_PERIOD_S
            if self._ended.wait(PERIOD_S):
                return

    def _mean(self, counter: str, read: Callable[[Gpu], float]) -> float | None:
        """The mean of a counter over the GPUs."""
        values = self._read(counter, read)
        return None if values is None else mean(values)

    def _read(self, counter: str, read: Callable[[Gpu], float]) -> list[float] | None:
        """A counter of each GPU; None where it cannot be read now, or could not be before."""
        if counter in self._reasons:
            return None
        try:
            return [read(gpu) for gpu in self._gpus]
        except CounterError as error:
            self._reasons[counter] = str(error)
            return None
