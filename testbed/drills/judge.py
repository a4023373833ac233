"""Judges what happened in a drill: from what jobs wrote down, the controller answered, and was recorded."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Any

from dally.errors import DallyError
from dally.scheduling.recording.replay import replay
from testbed.drills.pulse import Beat, back_after_s
from testbed.drills.scene import Fault
from testbed.drills.stories import Span, Story, steps_at_once


@dataclass(frozen=True, slots=True)
class Requirement:
    """One thing that must hold.

    Attributes:
        name: What must hold.
        passed: It does.
        said: What was seen.
    """

    name: str
    passed: bool
    said: str


def none_lost(stories: Sequence[Story]) -> Requirement:
    """Every job ended COMPLETED, and did every step."""
    lost = []
    for story in stories:
        missing = set(range(1, story.steps + 1)) - {step.number for step in story.done}
        if story.state != "COMPLETED":
            lost.append(f"{story.job} is {story.state or 'unknown to Slurm'}")
        elif missing:
            lost.append(f"{story.job} never did step {min(missing)} and {len(missing) - 1} more")
    return Requirement(
        "no job lost", not lost, "; ".join(lost) or f"all {len(stories)} completed, with every step"
    )


def none_twice(stories: Sequence[Story]) -> Requirement:
    """No two stretches of one job overlap."""
    twice = []
    for story in stories:
        for number, span in enumerate(story.spans):
            later = [other for other in story.spans[number + 1 :] if other.start_s < span.end_s]
            twice += [f"{story.job} ran twice for {_common_s(span, other):.1f} s" for other in later]
        if odd := steps_at_once(story):
            twice.append(f"{story.job} did step {odd[0]} and {len(odd) - 1} more out of order")
    stretches = sum(len(story.spans) for story in stories)
    return Requirement(
        "none run twice at once", not twice, "; ".join(twice) or f"{stretches} stretches, one by one"
    )


def no_gpu_shared(stories: Sequence[Story], gpus: Mapping[str, int]) -> Requirement:
    """No node ever held more GPUs of jobs than it has.

    Args:
        stories: All jobs.
        gpus: Of each node.
    """
    spans = [span for story in stories for span in story.spans]
    shared = []
    for begun in spans:
        there = [span for span in spans if span.start_s <= begun.start_s < span.end_s or span is begun]
        for node in begun.gpus:
            used = sum(span.gpus.get(node, 0) for span in there)
            if used > gpus.get(node, 0):
                names = ", ".join(sorted({span.job for span in there if node in span.gpus}))
                shared.append(f"{used} GPUs of {node} for {names}")
    return Requirement("no GPU given twice", not shared, "; ".join(shared) or f"{len(gpus)} nodes")


def controller_back(
    faults: Sequence[Fault], beats: Sequence[Beat], within_s: float, until_s: float = inf
) -> Requirement:
    """After each fault that was over, the controller did whole cycles again, by itself and soon.

    Args:
        faults: What was broken.
        beats: What the controller answered.
        within_s: How soon.
        until_s: The last job's end; where no fault was ever over, it must be well until then.
    """
    name, over = "controller back by itself", [fault for fault in faults if fault.mended_s is not None]
    back = [back_after_s(beats, fault.mended_s or 0.0) for fault in over]
    if not any(beat.ok for beat in beats):
        return Requirement(name, False, "it was never well")
    if not over:
        last = [beat for beat in beats if beat.t <= until_s][-1:]
        well = bool(last) and last[0].ok
        return Requirement(name, well, "it was well to the end" if well else "it was not well at the end")
    if None in back:
        return Requirement(name, False, f"not after: {over[back.index(None)].said}")
    longest_s = max(seconds for seconds in back if seconds is not None)
    return Requirement(
        name, longest_s <= within_s, f"{longest_s:.1f} s after it was over; allowed {within_s:g} s"
    )


def replays_same(recording: Path) -> Requirement:
    """The policy decides the same again on the recorded facts."""
    name = "recording replays the same"
    try:
        found = replay(recording)
    except (DallyError, OSError) as error:
        return Requirement(name, False, str(error))
    said = f"{found.decisions} decisions in {found.segments} segments, {found.differing} differ"
    return Requirement(name, not found.differing and found.decisions > 0, said)


def fault_struck(events: Iterable[Mapping[str, Any]], shows: Mapping[str, int]) -> Requirement:
    """What the fault must have caused is in the record.

    Args:
        events: Of the run.
        shows: How often an event must be there at least, by its name, or by name and job.
    """
    seen = count_events(events)
    missing = [
        f"{name} {seen[name]} times, not {least}" for name, least in shows.items() if seen[name] < least
    ]
    said = ", ".join(f"{name} {seen[name]} times" for name in shows)
    return Requirement("the fault struck", not missing, "; ".join(missing) or said)


def count_events(events: Iterable[Mapping[str, Any]]) -> Counter[str]:
    """How often each event is in a record, by its name, and by name and job."""
    names: Counter[str] = Counter()
    for event in events:
        names[event["event"]] += 1
        if "job" in event:
            names[f"{event['event']} {event['job']}"] += 1
    return names


def _common_s(span: Span, later: Span) -> float:
    return min(span.end_s, later.end_s) - later.start_s
