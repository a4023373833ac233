"""How much of a machine's CPUs others take while it is measured: foreign processes and the hypervisor."""

import os
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from dally.errors import DallyError
from dally.profiles.schema import Quality
from dally.words import share
from profiler.rank.exchange import RankExchange

BUSY_FRACTION = 0.25
"""Share of the CPUs from which a machine counts as busy and is not measured."""

_FLAGGED_FRACTION = 0.1
_FLAGGED_STEAL = 0.05
_CHECK_S = 0.5
_TICKS = os.sysconf("SC_CLK_TCK")


class BusyHostError(DallyError):
    """Others keep a machine too busy to measure on it."""


@dataclass(frozen=True, slots=True)
class Spent:
    """What one rank saw between two moments: its own CPU seconds and those of its whole machine.

    Attributes:
        machine: Id of the machine; ranks with the same share its CPUs.
        host: Its name, for messages.
        own_s: What this rank worked.
        busy_s: What the machine worked, all cores together.
        steal_s: What the hypervisor took.
        total_s: All of it.
    """

    machine: str
    host: str
    own_s: float
    busy_s: float
    steal_s: float
    total_s: float


@dataclass(frozen=True, slots=True)
class Load:
    """Shares of a machine's CPUs that others and the hypervisor took."""

    host: str
    foreign: float
    steal: float


class LoadMeter:
    """One rank's CPU seconds and its machine's, from now on.

    Args:
        machine: Id of the machine; ranks with the same share its CPUs.
        host: Its name, for messages.
        children: Ids of processes whose work is this rank's.
    """

    def __init__(self, machine: str, host: str, children: Sequence[int]) -> None:
        self._machine, self._host, self._children = machine, host, children
        self._before_s = self._read()

    def spent(self) -> Spent:
        """What was spent since this meter was made."""
        since_s = (now_s - before_s for now_s, before_s in zip(self._read(), self._before_s, strict=True))
        return Spent(self._machine, self._host, *since_s)

    def _read(self) -> tuple[float, float, float, float]:
        """The seconds of `Spent` up to now."""
        own_s = time.process_time() + sum(_process_s(pid) for pid in self._children)
        return own_s, *parse_stat(Path("/proc/stat").read_text())


def parse_stat(text: str) -> tuple[float, float, float]:
    """The first line of /proc/stat (proc_stat(5)): seconds worked, taken by the hypervisor, and all.

    Interrupts count as neither busy nor own: whose packets the kernel serves there is not known.
    """
    user, nice, system, idle, iowait, irq, softirq, steal = (
        int(ticks) / _TICKS for ticks in text.split("\n", 1)[0].split()[1:9]
    )
    busy_s = user + nice + system
    return busy_s, steal, busy_s + idle + iowait + irq + softirq + steal


def loads_of(ranks: Sequence[Spent]) -> list[Load]:
    """The load of each machine; what ranks of a run spend is not foreign."""
    machines: dict[str, list[Spent]] = defaultdict(list)
    for spent in ranks:
        machines[spent.machine].append(spent)
    loads = []
    for own in machines.values():
        first, total_s = own[0], own[0].total_s or 1.0
        foreign_s = max(0.0, first.busy_s - sum(spent.own_s for spent in own))
        loads.append(Load(first.host, foreign_s / total_s, first.steal_s / total_s))
    return loads


def refuse_busy_hosts(meter: LoadMeter, exchange: RankExchange) -> None:
    """Watch the machines for a moment before anything is measured.

    Args:
        meter: Made just now.
        exchange: With the other ranks.

    Raises:
        BusyHostError: Others take more than `BUSY_FRACTION` of the CPUs of one.
    """
    time.sleep(_CHECK_S)
    for load in loads_of(exchange.gather(meter.spent())):
        if load.foreign > BUSY_FRACTION:
            raise BusyHostError(
                f"{load.host} is busy: others use {share(load.foreign)} of its CPUs, at most "
                f"{share(BUSY_FRACTION)} is valid; wait, or measure all the same with --allow-busy"
            )


def judge(loads: Sequence[Load], flags: Sequence[str]) -> Quality:
    """How far to trust what was measured under these loads; `flags` are those already known."""
    words = list(flags)
    for load in loads:
        if load.foreign > _FLAGGED_FRACTION:
            words.append(f"others used {share(load.foreign)} of the CPUs of {load.host}")
        if load.steal > _FLAGGED_STEAL:
            words.append(f"the hypervisor took {share(load.steal)} of the CPUs of {load.host}")
    return Quality(max(load.foreign for load in loads), max(load.steal for load in loads), tuple(words))


def _process_s(pid: int) -> float:
    """CPU seconds of a process so far; 0 once it is gone (proc_pid_stat(5): utime and stime)."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return 0.0
    after_name = text.rpartition(")")[2].split()
    return (int(after_name[11]) + int(after_name[12])) / _TICKS
