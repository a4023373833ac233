"""Samples during a run: what each link carried, how busy the head node is, and its GPUs' counters."""

import json
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from dally.hosts.network import NetworkError
from slurm_plugin.local_cluster.cluster import Cluster, ClusterError
from testbed.running import gpu_counters
from testbed.running.json_lines import append_line

TRAFFIC, MACHINE, GPU = "traffic.jsonl", "machine.jsonl", "gpu.jsonl"
EVERY_S = 3.0


class RunSampler:
    """Takes samples of one run."""

    def __init__(
        self, cluster: Cluster, folder: Path, origin_s: float, clock: Callable[[], float] = time.time
    ) -> None:
        self._cluster, self._folder, self._origin_s, self._clock = cluster, folder, origin_s, clock
        self._cpu: tuple[int, int] | None = None
        self._has_gpus = True

    def take(self) -> None:
        """Take one sample of everything; what does not answer is left out this time."""
        for take in (self._take_machine, self._take_traffic, self._take_gpus):
            with suppress(ClusterError, NetworkError):
                take()

    def _append(self, file: str, **sample: object) -> None:
        append_line(self._folder / file, t=round(self._clock() - self._origin_s, 3), **sample)

    def _take_machine(self) -> None:
        text = self._cluster.ask("cat", "/proc/stat", "/proc/meminfo")
        busy, total = cpu_ticks(text)
        before, self._cpu = self._cpu, (busy, total)
        if before is not None and total > before[1]:
            share = (busy - before[0]) / (total - before[1])
            self._append(MACHINE, cpu_busy=round(share, 4), memory_used_bytes=memory_used(text))

    def _take_traffic(self) -> None:
        links = {name: [one.sent_bytes, one.received_bytes] for name, one in self._cluster.traffic().items()}
        if links:
            self._append(TRAFFIC, links=links)

    def _take_gpus(self) -> None:
        if self._has_gpus:
            said = json.loads(self._cluster.ask(self._cluster.python, "-P", "-m", gpu_counters.__name__))
            self._has_gpus = said["gpus"] is not None
            self._append(GPU, **said)


def cpu_ticks(stat: str) -> tuple[int, int]:
    """Ticks in which CPUs were busy, with interrupts and the hypervisor's share, and all (proc_stat(5)).

    Those that went to niced programs are not busy: such programs give way.
    """
    user, nice, system, idle, iowait, irq, softirq, steal = (
        int(ticks) for ticks in stat.split("\n", 1)[0].split()[1:9]
    )
    busy = user + system + irq + softirq + steal
    return busy, busy + nice + idle + iowait


def memory_used(meminfo: str) -> int:
    """Bytes of memory that are not available to new programs (proc_meminfo(5))."""
    values = {
        words[0]: int(words[1])
        for line in meminfo.splitlines()
        if (words := line.split()) and words[0] in ("MemTotal:", "MemAvailable:")
    }
    return (values["MemTotal:"] - values["MemAvailable:"]) * 1024
