"""The intervals in which a job held GPUs: from what Slurm showed, and what its script and steps logged."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median

from dally.errors import InputError
from dally.hostlist import expand
from slurm_plugin.client.slurm import State
from testbed.running.json_lines import parse_lines
from testbed.running.observer import JobObservation

_SECOND_S = 1.0
"""Slurm tells times in whole seconds."""


@dataclass(frozen=True, slots=True)
class Step:
    """One iteration, from the step log; of a forked job one slot, with the steps of all its copies.

    Attributes:
        number: Steps done with it.
        end_s: Its end, seconds since 1970.
        seconds: How long it took.
        slot: The steps of a slot; None for one iteration.
    """

    number: int
    end_s: float
    seconds: float
    slot: int | None = None

    @property
    def count(self) -> int:
        """Steps done in it."""
        return 1 if self.slot is None else self.slot


@dataclass(frozen=True, slots=True)
class ScriptEvent:
    """A line of a script log: the script started, or ended.

    Attributes:
        t: When, seconds since 1970.
        restart: How often Slurm had restarted the job when the script started.
        gpus: By node, for a start.
        code: Exit code, for an end.
    """

    t: float
    restart: str
    gpus: Mapping[str, int] | None = None
    code: int | None = None


@dataclass(frozen=True, slots=True)
class HeldInterval:
    """A time in which a job held GPUs; times in seconds since 1970.

    Attributes:
        start_s: It began to run.
        end_s: It ran no more; None if it still does.
        gpus: By node.
        steps: Done in it, in order.
        lost_steps: Of these, how many were done again later.
    """

    start_s: float
    end_s: float | None
    gpus: Mapping[str, int]
    steps: tuple[Step, ...] = ()
    lost_steps: int = 0

    @property
    def first_step_s(self) -> float | None:
        """End of its first step."""
        return self.steps[0].end_s if self.steps else None

    @property
    def step_s(self) -> float | None:
        """Median seconds of a step; without the first, which also prepares, if there are others."""
        seconds = [step.seconds / step.count for step in self.steps[1:] or self.steps]
        return median(seconds) if seconds else None

    def comm_s(self, compute_s: float) -> float:
        """Seconds beyond what its steps would have taken without communication; copies train without any."""
        return sum(max(0.0, step.seconds - compute_s) for step in self.steps if step.slot is None)

    def restart_s(self, until_s: float) -> float:
        """Seconds from its start to that of its first step; to its end if there was none."""
        if not self.steps:
            return (until_s if self.end_s is None else self.end_s) - self.start_s
        return max(0.0, self.steps[0].end_s - self.steps[0].seconds - self.start_s)


def find_intervals(
    observations: Sequence[JobObservation], script_log: str, step_log: str
) -> list[HeldInterval]:
    """All intervals of one job, in order."""
    events = read_script_log(script_log)
    found = _observed(observations)
    unseen = []  # runs between two polls, which only the script knows
    for number, event in enumerate(events):
        if event.gpus is not None and not any(_covers(interval, event.t) for interval in found):
            end_s = events[number + 1].t if number + 1 < len(events) else event.t
            unseen.append(HeldInterval(event.t, end_s, event.gpus))
    found = sorted([*found, *unseen], key=lambda interval: interval.start_s)
    refined = [_refined(interval, events) for interval in found]
    # From the last interval to the first, as a step was lost if a later interval did it again.
    steps, result = read_steps(step_log), []
    next_s = again_from = float("inf")
    for interval in reversed(refined):
        own = tuple(step for step in steps if interval.start_s <= step.end_s < next_s)
        lost = sum(step.count for step in own if step.number >= again_from)
        result.append(replace(interval, steps=own, lost_steps=lost))
        again_from = min([again_from, *(step.number for step in own)])
        next_s = interval.start_s
    return result[::-1]


def read_script_log(text: str) -> list[ScriptEvent]:
    """The events that a job's script logged; lines that were cut off are left out."""
    events = []
    for line in text.splitlines():
        words = line.split()
        try:
            if words[0] == "start":
                gpus = _tasks_of_nodes(words[2], words[3])
                events.append(ScriptEvent(float(words[1]), words[-1], gpus=gpus))
            elif words[0] == "end":
                events.append(ScriptEvent(float(words[1]), words[-1], code=int(words[2])))
        except (IndexError, ValueError, InputError):
            continue
    return events


def read_steps(text: str) -> list[Step]:
    """The steps of a log, in the order in which they were done."""
    return [
        Step(
            line["step"],
            line["time"],
            line["seconds"],
            sum(line["copies"].values()) if "copies" in line else None,
        )
        for line in parse_lines(text)
        if {"step", "time", "seconds"} <= line.keys()
    ]


def _observed(observations: Iterable[JobObservation]) -> list[HeldInterval]:
    """What Slurm showed, an interval for each of its start times."""
    found: list[HeldInterval] = []
    for observed in observations:
        if observed.state == State.COMPLETING:
            continue  # still there, but of a requeued job the start is the requeue's
        last = found[-1] if found else None
        same = last is not None and observed.start_s == last.start_s
        if last is not None and last.end_s is None and not (observed.holds and same):
            began_s = observed.t if observed.start_s is None or same else observed.start_s
            found[-1] = replace(last, end_s=max(last.start_s, min(observed.t, began_s)))
        # Slurm says of a job that was cancelled in the queue that it started then; it never ran.
        ran = observed.ended and observed.name != "CANCELLED"
        if observed.start_s is not None and not same and (observed.holds or ran):
            end_s = None if observed.holds else observed.t
            found.append(HeldInterval(observed.start_s, end_s, dict(observed.gpus or {})))
        elif observed.holds and last is not None and not last.gpus:
            found[-1] = replace(found[-1], gpus=dict(observed.gpus or {}))
    return found


def _covers(interval: HeldInterval, t: float) -> bool:
    return interval.start_s <= t and (interval.end_s is None or t <= interval.end_s + _SECOND_S)


def _refined(interval: HeldInterval, events: Sequence[ScriptEvent]) -> HeldInterval:
    """An interval with the script's finer times, where they agree with Slurm's whole seconds."""
    own = [event for event in events if _covers(interval, event.t)]
    starts = [event for event in own if event.gpus is not None]
    ends_s = [event.t for event in own if event.code is not None and event.t <= (interval.end_s or event.t)]
    start_s, end_s = interval.start_s, interval.end_s
    if starts:
        start_s = min(starts[0].t, start_s + _SECOND_S / 2)
    if end_s is not None and ends_s:
        end_s = max(start_s, ends_s[-1])
    gpus = interval.gpus or (starts[0].gpus if starts else None) or {}
    return replace(interval, start_s=start_s, end_s=end_s, gpus=gpus)


def _tasks_of_nodes(nodes: str, tasks: str) -> dict[str, int]:
    """Tasks by node, out of what Slurm tells a script: `n[1-3]` and `2(x2),1`."""
    counts: list[int] = []
    for part in tasks.split(","):
        count, _, times = part.rstrip(")").partition("(x")
        counts += [int(count)] * int(times or 1)
    return dict(zip(expand(nodes), counts, strict=True))
