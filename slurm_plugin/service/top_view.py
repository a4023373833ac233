"""What `dally top` shows: how the controller is, the GPUs, timers and reasons, and as many jobs as fit."""

import re
import time
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from textwrap import wrap
from typing import Any

from rich.text import Text

from dally.words import clean, plural
from slurm_plugin.controller.managed_job import JobPhase
from slurm_plugin.service.cli import clock, lasting
from slurm_plugin.service.queue_command import table
from slurm_plugin.service.status_command import miscounted, timer_lines

_BAD, _ODD, _HEAD, _OLD = "bold red", "yellow", "bold", "dim"
_WEIGHTS = {
    JobPhase.STOPPING: 2,
    JobPhase.STARTING: 2,
    JobPhase.PENDING: 6,
    JobPhase.INELIGIBLE: 2,
    JobPhase.RUNNING: 3,
    JobPhase.RELEASED: 1,
}
"""Groups of jobs as they are shown, and how much room one gets where all want more."""

_STYLES = {
    JobPhase.STOPPING: _ODD,
    JobPhase.STARTING: _ODD,
    JobPhase.RUNNING: "green",
    JobPhase.RELEASED: _OLD,
}
_BAR = {"used": ("#", "green"), "unavailable": ("x", _ODD), "free": (".", "")}
_LEAST_BAR, _LONGEST_BAR = 10, 60
_RECENT_S = 86_400.0
_ROOMY = 40
"""Lines of a screen on which nothing need be left out above the jobs."""

_NUMBER = re.compile(r"\d+(?:\.\d+)?")


@dataclass(frozen=True, slots=True)
class ControllerView:
    """What the controller last said.

    Attributes:
        status: Its page /status; empty if it has not answered yet.
        jobs: Those of its page /queue.
        seen_s: When it said so, on this machine's monotonic clock.
        trouble: Why the last question got no answer; empty if it did.
    """

    status: Mapping[str, Any]
    jobs: Sequence[Mapping[str, Any]] = ()
    seen_s: float = 0.0
    trouble: str = ""


def screen(view: ControllerView, now_s: float, width: int, height: int | None = None) -> Text:
    """A view as lines that fit.

    Args:
        view: What is shown.
        now_s: Now, on this machine's monotonic clock.
        width: Characters in a line.
        height: Lines; None for as many as it takes.
    """
    lines = list(_head(view, now_s, width, height is None or height >= _ROOMY))
    status = view.status
    if "policy" in status:
        age_s = now_s - view.seen_s + status["age_s"]
        rows = None if height is None else height - len(lines) - 1
        lines += _job_lines(view.jobs, status["now_s"] + age_s, width, rows)
    for line in lines[:height]:
        line.plain = clean(line.plain)
        if line.cell_len > width:  # a sign that there is more
            line.truncate(width - 1)
            line.append("+")
    return Text("\n").join(lines[:height])


def _head(view: ControllerView, now_s: float, width: int, roomy: bool) -> Iterator[Text]:
    """The lines above the jobs: what is wrong comes first."""
    status = view.status
    if view.trouble:
        for line in wrap(clean(view.trouble), width):
            yield Text(line, _BAD)
        old = f" What follows was said {lasting(now_s - view.seen_s)} ago." if status else ""
        yield Text(f"Trying again.{old}", _BAD)
    if not status:
        return
    well, now = status["healthy"], time.strftime("%H:%M:%S")
    health = "well" if well else f"NOT WELL: {clean(status['reason'])}"
    left = f"dally {status['version']}, {status['mode']} mode, {health}"
    room = max(0, width - len(now))
    yield Text(f"{left[: max(0, room - 1)].ljust(room)}{now}", _HEAD if well else _BAD)
    recent = [problem for problem in status["problems"] if time.time() - problem["t"] < _RECENT_S]
    for problem in reversed(recent[-5 if roomy else -2 :]):
        yield Text(f"problem {clock(problem['t'])} {problem['event']}: {clean(problem['reason'])}", _ODD)
    if "policy" not in status:
        return
    age_s = status["age_s"] + now_s - view.seen_s
    yield Text(f"cycle   {lasting(age_s)} ago, took {status['cycle_s']:.2f} s; {status['policy']}")
    yield _gpus(status, width)
    if wrong := miscounted(status):
        yield Text(wrong, _ODD)
    *below, _ = status["most_free"].items()
    free = (f"{gpus} in one {level}" for level, gpus in below)
    yield Text(f"free    at most {', '.join(free)}")
    jobs = [f"{count} {state}" for state, count in status["jobs"].items() if count]
    yield Text(f"jobs    {', '.join(jobs) or 'none'}")
    timers = list(timer_lines(status["timers"]))
    if not roomy and timers:
        timers = ["; ".join(timers)]
    for number, text in enumerate(timers):
        yield Text(f"{'' if number else 'timers':<8}{text}")
    yield from _reasons(view.jobs, roomy)


def _gpus(status: Mapping[str, Any], width: int) -> Text:
    gpus = status["gpus"]
    said = (
        f"GPUs    {gpus['used']} of {gpus['total']} used, {gpus['free']} free, "
        f"{gpus['unavailable']} unavailable, {plural(status['nodes'], 'node')} "
    )
    room = min(_LONGEST_BAR, width - len(said) - 2)
    if room < _LEAST_BAR or not gpus["total"]:
        return Text(said.rstrip())
    cuts = [0]
    for name in _BAR:
        cuts.append(cuts[-1] + gpus[name])
    ends = [min(room, room * cut // gpus["total"]) for cut in cuts]
    parts = zip(_BAR.values(), ends, ends[1:], strict=False)
    return Text.assemble(
        said, "[", *((sign * (end - start), style) for (sign, style), start, end in parts), "]"
    )


def _reasons(jobs: Sequence[Mapping[str, Any]], roomy: bool) -> Iterator[Text]:
    """Why jobs wait, the most frequent reason first; such as differ in their numbers alone count together."""
    said = [job["reason"].partition(";")[0] for job in jobs if job["state"] == JobPhase.PENDING]
    found: dict[str, Counter[str]] = {}
    for why, count in Counter(filter(None, said)).items():
        found.setdefault(_NUMBER.sub("\0", why), Counter())[why] = count
    ranked = sorted(found.values(), key=lambda texts: -texts.total())
    for number, texts in enumerate(ranked[: 5 if roomy else 2]):
        yield Text(f"{'' if number else 'reasons':<8}{texts.total():,} x {clean(_merged(texts))}")


def _merged(texts: Collection[str]) -> str:
    """Texts that differ in their numbers alone as one, with the least and the greatest of each number."""
    numbers = zip(*(map(float, _NUMBER.findall(text)) for text in texts), strict=True)
    ranges = (f"{min(some):g}" + f" to {max(some):g}" * (min(some) < max(some)) for some in numbers)
    return _NUMBER.sub(lambda _: next(ranges), next(iter(texts)))


def _job_lines(
    jobs: Sequence[Mapping[str, Any]], now_s: float, width: int, rows: int | None
) -> Iterator[Text]:
    """A table of the jobs, those first that are about to change, and how many there is no room for."""
    groups: dict[str, list[Mapping[str, Any]]] = {state: [] for state in _WEIGHTS}
    for job in jobs:
        groups.setdefault(job["state"], []).append(job)
    sizes = {state: len(group) for state, group in groups.items() if group}
    room = sizes if rows is None else shared_rows(sizes, rows)
    shown = {  # a group that does not fit gives one of its rows to the line that counts the others
        state: groups[state][: given if given == sizes[state] else given - 1] for state, given in room.items()
    }
    head, *lines = table([job for some in shown.values() for job in some], now_s, width, ages=True)
    yield Text(head, _HEAD)
    rest = iter(lines)
    for state, some in shown.items():
        for _ in some:
            yield Text(next(rest), _STYLES.get(JobPhase(state), ""))
        if left := sizes[state] - len(some):
            yield Text(f"... {left:,} {'more ' if some else ''}{state}", _OLD)


def shared_rows(sizes: Mapping[str, int], rows: int) -> dict[str, int]:
    """Rows for each group: all that it wants, or its part by weight of what others leave.

    Args:
        sizes: How many rows each group wants, at least one each.
        rows: How many there are.
    """
    given = dict.fromkeys(sizes, 0)
    for _ in range(min(rows, sum(sizes.values()))):
        wanting = [group for group, size in sizes.items() if given[group] < size]
        first = min(wanting, key=lambda group: (given[group] > 0, given[group] / _WEIGHTS[JobPhase(group)]))
        given[first] += 1
    return {group: count for group, count in given.items() if count}
