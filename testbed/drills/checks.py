"""Judges what happened in a drill: from what jobs wrote down, the controller answered, and was recorded."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Any

from dally.errors import DallyError
from dally.scheduling.recording.replay import replay
from dally.words import plural
from testbed.drills.fault_context import Fault
from testbed.drills.health import HealthSample, back_after_s
from testbed.drills.job_executions import JobExecution, steps_out_of_order


@dataclass(frozen=True, slots=True)
class DrillCheck:
    """One thing that must hold.

    Attributes:
        name: What must hold.
        passed: It does.
        said: What was seen.
    """

    name: str
    passed: bool
    said: str


def none_lost(executions: Sequence[JobExecution]) -> DrillCheck:
    """Every job ended COMPLETED, and did every step."""
    lost = []
    for execution in executions:
        missing = set(range(1, execution.steps + 1)) - {step.number for step in execution.done}
        if execution.state != "COMPLETED":
            lost.append(f"{execution.job} is {execution.state or 'unknown to Slurm'}")
        elif missing:
            lost.append(f"{execution.job} never did step {min(missing)} and {len(missing) - 1} more")
    return DrillCheck(
        "no job lost", not lost, "; ".join(lost) or f"all {len(executions)} completed, with every step"
    )


def none_twice(executions: Sequence[JobExecution]) -> DrillCheck:
    """No two intervals of one job overlap."""
    twice = []
    for execution in executions:
        for number, run in enumerate(execution.runs):
            later = [other for other in execution.runs[number + 1 :] if other.start_s < run.end_s]
            for other in later:
                common_s = min(run.end_s, other.end_s) - other.start_s
                twice.append(f"{execution.job} ran twice for {common_s:.1f} s")
        if odd := steps_out_of_order(execution):
            twice.append(f"{execution.job} did step {odd[0]} and {len(odd) - 1} more out of order")
    intervals = sum(len(execution.runs) for execution in executions)
    return DrillCheck(
        "none run twice at once", not twice, "; ".join(twice) or f"{intervals} stretches, one by one"
    )


def no_gpu_shared(executions: Sequence[JobExecution], gpus: Mapping[str, int]) -> DrillCheck:
    """No node ever held more GPUs of jobs than it has.

    Args:
        executions: All jobs.
        gpus: Of each node.
    """
    runs = [run for execution in executions for run in execution.runs]
    shared = []
    for begun in runs:
        there = [run for run in runs if run.start_s <= begun.start_s < run.end_s or run is begun]
        for node in begun.gpus:
            used = sum(run.gpus.get(node, 0) for run in there)
            if used > gpus.get(node, 0):
                names = ", ".join(sorted({run.job for run in there if node in run.gpus}))
                shared.append(f"{used} GPUs of {node} for {names}")
    return DrillCheck("no GPU given twice", not shared, "; ".join(shared) or f"{plural(len(gpus), 'node')}")


def controller_back(
    faults: Sequence[Fault], samples: Sequence[HealthSample], within_s: float, until_s: float = inf
) -> DrillCheck:
    """After each fault that was over, the controller did whole cycles again, by itself and soon.

    Args:
        faults: What was broken.
        samples: What the controller answered.
        within_s: How soon.
        until_s: The last job's end; where no fault was ever over, it must be well until then.
    """
    name, over = "controller back by itself", [fault for fault in faults if fault.end_s is not None]
    back = [back_after_s(samples, fault.end_s or 0.0) for fault in over]
    if not any(sample.ok for sample in samples):
        return DrillCheck(name, False, "it was never well")
    if not over:
        last = [sample for sample in samples if sample.t <= until_s][-1:]
        well = bool(last) and last[0].ok
        return DrillCheck(name, well, "it was well to the end" if well else "it was not well at the end")
    if None in back:
        return DrillCheck(name, False, f"not after: {over[back.index(None)].said}")
    longest_s = max(seconds for seconds in back if seconds is not None)
    return DrillCheck(
        name, longest_s <= within_s, f"{longest_s:.1f} s after it was over; allowed {within_s:g} s"
    )


def replays_same(recording: Path) -> DrillCheck:
    """The policy decides the same again on the recorded facts."""
    name = "recording replays the same"
    try:
        found = replay(recording)
    except (DallyError, OSError) as error:
        return DrillCheck(name, False, str(error))
    asked = f"{plural(found.decisions, 'decision')} in {plural(found.segments, 'segment')}"
    said = f"{asked}, {found.differing} of them other ones"
    return DrillCheck(name, not found.differing and found.decisions > 0, said)


def fault_struck(events: Iterable[Mapping[str, Any]], shows: Mapping[str, int]) -> DrillCheck:
    """What the fault must have caused is in the record.

    Args:
        events: Of the run.
        shows: How often an event must be there at least, by its name, or by name and job.
    """
    seen = count_events(events)
    missing = [
        f"{name} {plural(seen[name], 'time')}, not {least}"
        for name, least in shows.items()
        if seen[name] < least
    ]
    said = ", ".join(f"{name} {plural(seen[name], 'time')}" for name in shows)
    return DrillCheck("the fault struck", not missing, "; ".join(missing) or said)


def count_events(events: Iterable[Mapping[str, Any]]) -> Counter[str]:
    """How often each event is in a record, by its name, and by name and job."""
    names: Counter[str] = Counter()
    for event in events:
        names[event["event"]] += 1
        if "job" in event:
            names[f"{event['event']} {event['job']}"] += 1
    return names
