"""A run's events, read once: which job held which GPUs when, which waited when, what each wait came to."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Any

from analysis.report.runs import WholeRun
from analysis.report.timelines import JobTimelines
from dally.runs.records import JobRecord

STARTS = ("start", "migrate", "resize")
STOPS = ("preempt", "fail")
DOWN = -1
"""Stands for a job, and for a level, where a machine was down."""


@dataclass(frozen=True, slots=True)
class HeldGpus:
    """GPUs of one machine that one job held.

    Attributes:
        begin_s: From when, seconds.
        end_s: Until when, seconds.
        machine: The machine's name.
        slots: Which of its GPUs, numbered from 0. Run folders tell how many: the lowest free ones are taken.
        level: Place in `RunHistory.levels` of the level that holds the whole gang; DOWN if it was down.
        job: Number of the job; DOWN if the machine was down.
    """

    begin_s: float
    end_s: float
    machine: str
    slots: tuple[int, ...]
    level: int
    job: int


@dataclass(slots=True)
class PlacementTimer:
    """A wait in which a job declined farther placements, and what it came to.

    Attributes:
        job: Number of the job.
        gpus: Size of its gang.
        level: Place of the level that it insisted on, or closer.
        began_s: When the decision was told, seconds.
        delay_s: How long the timer ran, from the begin of the whole wait, seconds.
        reason: Why, in the policy's words.
        placed: Place of the level at which it started; None if it never did.
        waited_s: From the begin of the whole wait to that start, seconds.
    """

    job: int
    gpus: int
    level: int
    began_s: float
    delay_s: float
    reason: str
    placed: int | None = None
    waited_s: float = 0.0


@dataclass(slots=True)
class _MachineSlots:
    """The GPUs of one machine: the free ones below `known`, and as many more as are asked for."""

    known: int = 0
    free: list[int] = field(default_factory=list)

    def take(self, count: int) -> tuple[int, ...]:
        while len(self.free) < count:
            heappush(self.free, self.known)
            self.known += 1
        return tuple(heappop(self.free) for _ in range(count))

    def give(self, slots: tuple[int, ...]) -> None:
        for slot in slots:
            heappush(self.free, slot)


class RunHistory:
    """Which job held and waited when, worked out event by event.

    Attributes:
        levels: Names of the levels, from the machine up.
        held: Which job held which GPUs when.
        waits: (begin, end) of each wait of any job, seconds.
        timers: The waits with a timer, by the time at which they were told.
        moves: How often a job was moved to other GPUs without waiting again.
    """

    def __init__(
        self, levels: Sequence[str], numbers: Mapping[str, int], machines: Mapping[str, int] | None = None
    ) -> None:
        """Begin with nothing.

        Args:
            levels: Names of the levels, from the machine up.
            numbers: Number of each job by its name.
            machines: GPUs of each machine by its name; None if unknown: those that are ever held.
        """
        self.levels = levels
        self.held: list[HeldGpus] = []
        self.waits: list[tuple[float, float]] = []
        self.timers: list[PlacementTimer] = []
        self.moves = 0
        self._numbers = numbers
        self._place = {level: place for place, level in enumerate(levels)}
        self._gpus: dict[int, int] = {}
        self._slots: defaultdict[str, _MachineSlots] = defaultdict(_MachineSlots)
        for name, gpus in (machines or {}).items():
            self._slots[name] = _MachineSlots(gpus, list(range(gpus)))
        self._running: dict[int, tuple[float, int, dict[str, tuple[int, ...]]]] = {}
        self._waiting: dict[int, float] = {}
        self._open: defaultdict[int, list[PlacementTimer]] = defaultdict(list)
        self._down: dict[str, float] = {}

    def add(self, event: Mapping[str, Any]) -> None:
        """Take in the next event."""
        kind, t = event["event"], float(event["t"])
        if kind == "machine_down":
            self._down[event["machine"]] = t
        elif kind == "machine_up":
            self._repair(event["machine"], t)
        elif (job := self._numbers.get(event.get("job", ""))) is not None:
            self._add_of_job(kind, job, t, event)

    def close(self, end_s: float) -> None:
        """The run is over: what still runs, waits or is down does so until then."""
        for job in list(self._running):
            self._stop(job, end_s)
        self.waits.extend((begin_s, end_s) for begin_s in self._waiting.values() if begin_s < end_s)
        for machine in list(self._down):
            self._repair(machine, end_s)

    def machines(self) -> dict[str, int]:
        """GPUs of each machine by its name: those it has, or as many as were ever held at once."""
        return {name: slots.known for name, slots in self._slots.items()}

    def _add_of_job(self, kind: str, job: int, t: float, event: Mapping[str, Any]) -> None:
        if kind == "submit":
            self._gpus[job], self._waiting[job] = event["gpus"], t
        elif kind in STARTS:
            self._start(job, t, event)
        elif kind in STOPS:
            self._stop(job, t)
            self._waiting[job] = t
        elif kind == "end":
            self._stop(job, t)
            self._end_wait(job, t)
        elif kind == "wait" and event["until"] is not None:
            delay_s, level = event["until"] - self._waiting.get(job, t), self._place[event["level"]]
            if delay_s > 0 and level < len(self.levels) - 1:  # a wait at the top declines no placement
                timer = PlacementTimer(job, self._gpus.get(job, 0), level, t, delay_s, event["reason"])
                self.timers.append(timer)
                self._open[job].append(timer)

    def _start(self, job: int, t: float, event: Mapping[str, Any]) -> None:
        self.moves += job in self._running and event["event"] == "migrate"
        self._stop(job, t)
        level = self._place[event["level"]]
        waited_s = self._end_wait(job, t)
        for timer in self._open.pop(job, ()):
            timer.placed, timer.waited_s = level, waited_s
        taken = {machine: self._slots[machine].take(count) for machine, count in event["gpus"].items()}
        self._running[job] = t, level, taken

    def _end_wait(self, job: int, t: float) -> float:
        """A job waits no more; how long it did, seconds."""
        begin_s = self._waiting.pop(job, t)
        if begin_s < t:
            self.waits.append((begin_s, t))
        return t - begin_s

    def _stop(self, job: int, t: float) -> None:
        if job not in self._running:
            return
        begin_s, level, taken = self._running.pop(job)
        for machine, slots in taken.items():
            self._slots[machine].give(slots)
            if begin_s < t:
                self.held.append(HeldGpus(begin_s, t, machine, slots, level, job))

    def _repair(self, machine: str, t: float) -> None:
        begin_s = self._down.pop(machine, t)
        slots = self._slots[machine]
        if begin_s < t:
            self.held.append(HeldGpus(begin_s, t, machine, tuple(range(slots.known)), DOWN, DOWN))


@dataclass(frozen=True, slots=True)
class ReadRun:
    """A run and what its events came to.

    Attributes:
        run: The run.
        history: Which job held GPUs and waited when.
        records: Its records by the jobs' numbers; None for a job that an incomplete run never had.
        timelines: The jobs' events in words, by the jobs' numbers.
    """

    run: WholeRun
    history: RunHistory
    records: Sequence[JobRecord | None]
    timelines: Sequence[str]


def number_jobs(runs: Sequence[WholeRun]) -> list[JobRecord]:
    """All jobs by submission, as the first run that has them tells; their places are their numbers."""
    jobs = {record.job_id: record for run in reversed(runs) for record in run.records}
    return sorted(jobs.values(), key=lambda record: record.submit_s)


def read_histories(runs: Sequence[WholeRun], jobs: Sequence[JobRecord]) -> list[ReadRun]:
    """Read the events of runs, each run's once.

    Raises:
        InputError: They are cut off or wrong.
    """
    numbers = {record.job_id: number for number, record in enumerate(jobs)}
    levels = list(dict.fromkeys(level for run in runs for level in run.cluster["levels"]))
    found = []
    for run in runs:
        machines = {each.name: each.gpus for each in run.topology.machines} if run.topology else None
        history, timelines = RunHistory(levels, numbers, machines), JobTimelines(numbers)
        for event in run.events():
            history.add(event)
            timelines.add(event)
        history.close(run.end_s)
        records = {record.job_id: record for record in run.records}
        found.append(ReadRun(run, history, [records.get(job) for job in numbers], timelines.texts()))
    return found
