"""Writes a recording: a scheduler that puts what it is told and what it decides on file, and that file."""

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import asdict
from functools import wraps
from inspect import signature
from math import inf
from pathlib import Path
from stat import S_ISREG
from typing import Any, Concatenate, ParamSpec, TypeVar

from dally import __version__
from dally.jobs.knowledge import EXACTLY
from dally.plan import Plan
from dally.policies.base import Policy
from dally.profiles.files import format_profile
from dally.profiles.gang_iteration import Split
from dally.scheduling.beliefs import Beliefs
from dally.scheduling.recording.plain import decision_data, job_data, past_data, plan_data
from dally.scheduling.scheduler import Scheduler
from dally.state import ClusterState

Told = ParamSpec("Told")
Given = TypeVar("Given")

FACTS = "facts.jsonl"
"""The name of a recording in a run folder."""

SCHEMA = 1
MOST_BYTES = 256 * 2**20
"""What a controller writes at most, with the file before it twice as much."""

_MOST_HELD = 2**20
"""Characters held back before they are written without being asked."""


class Recording:
    """Lines of JSON on their way to the end of a file.

    Whatever is wrong with the file ends the recording, never the run. The file is opened anew for each flush:
    one that is not as it was left has another writer, or was moved away, and this recording ends. A file that
    was more than half full when the recording began makes room: it is renamed to end in `.1`.

    Args:
        path: The file; made if missing.
        ended: Told why the recording ended, once.
        most_bytes: What the file may hold; the recording ends there.
    """

    def __init__(self, path: Path, ended: Callable[[str], None], most_bytes: float = inf) -> None:
        self._path, self._ended, self._most_bytes = path, ended, most_bytes
        self._encode = json.JSONEncoder(separators=(",", ":")).encode
        self._lines: list[str] = []
        self._held = 0
        self._size: int | None = None
        self._over = False

    def add(self, line: Mapping[str, Any]) -> None:
        """Add a line; it is in the file after the next flush."""
        if self._over:
            return
        try:
            text = self._encode(line)
        except (TypeError, ValueError, RecursionError) as error:
            self._end(f"what was said is no plain data: {error}")
            return
        self._lines.append(text)
        self._held += len(text)
        if self._held > _MOST_HELD:
            self.flush()

    def flush(self) -> None:
        """Write what is held; to the system, which need not have it on disk yet."""
        if self._over or not self._lines:
            return
        data = ("\n".join(self._lines) + "\n").encode()
        self._lines, self._held = [], 0
        try:
            self._write(data)
        except OSError as error:
            self._end(f"{self._path}: {error.strerror or error}")

    def _write(self, data: bytes) -> None:
        path, begins = self._path, self._size is None
        if begins and path.is_file() and path.stat().st_size > self._most_bytes / 2:
            path.replace(path.with_name(f"{path.name}.1"))
        with open(path, "ab", buffering=0, opener=_without_waiting) as file:
            status = os.fstat(file.fileno())
            if not S_ISREG(status.st_mode):
                raise OSError("is not a plain file")
            size = status.st_size
            if begins and size:
                data = b"\n" + data  # the line before may be torn
            elif self._size not in (None, size):
                raise OSError("is not as it was left; does another controller write to it?")
            if size + len(data) > self._most_bytes:
                raise OSError(f"is full: {self._most_bytes:,} bytes are the most")
            if file.write(data) != len(data):
                raise OSError("only a part of the last lines could be written")
            self._size = size + len(data)

    def _end(self, reason: str) -> None:
        self._over, self._lines = True, []
        self._ended(reason)


def _without_waiting(path: str, flags: int) -> int:
    """Open a file; a pipe that nobody reads is an error then, and no reason to wait."""
    return os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC, 0o666)


FACTS_TOLD: Mapping[str, str] = {
    "submit": "submit",
    "withdraw": "withdraw",
    "resume": "resume",
    "start": "start",
    "preempt": "preempt",
    "fail": "fail",
    "finish": "finish",
    "withhold": "withhold",
    "protect": "protect",
    "repace": "repace",
    "report_progress": "report_progress",
    "steps": "observe_steps",
    "set_priorities": "set_priorities",
    "waits": "wait_explained",
    "settle": "plan_applied",
}
"""The facts of a recording, each with the scheduler's method that is told it."""

_FACT_OF = {method: fact for fact, method in FACTS_TOLD.items()}
_AS_DATA: Mapping[str, Callable[[Any], object]] = {
    "job": job_data,
    "past": past_data,
    "report": asdict,
    "decision": decision_data,
}


def _recorded(method: Callable[Concatenate[Any, Told], Given]) -> Callable[Concatenate[Any, Told], Given]:
    """A method of the scheduler that puts what it was told on file, once that has happened."""
    fact, names = _FACT_OF[method.__name__], [*signature(method).parameters][1:]

    @wraps(method)
    def told(self: Any, /, *args: Told.args, **named: Told.kwargs) -> Given:
        given = method(self, *args, **named)
        said: dict[str, Any] = {**dict(zip(names, args, strict=False)), **named}
        time = {"t": said.pop("now")} if "now" in said else {}
        # What is not given has its default, None or False, and is left out if it is given as that.
        data = {
            name: _AS_DATA[name](value) if name in _AS_DATA else value
            for name, value in said.items()
            if value is not None and value is not False
        }
        self._recording.add({"fact": fact, **time, **data})
        return given

    return told


class RecordedScheduler(Scheduler):
    """A scheduler that records what it is told and what it decides: a new segment of the recording.

    Args:
        state: Nothing has happened in it yet.
        policy: Over this state; it may have been restored.
        spec: What the policy was built from.
        recording: Where the segment goes.
        beliefs: What was learnt before; None: nothing.
    """

    def __init__(
        self,
        state: ClusterState,
        policy: Policy,
        spec: str,
        recording: Recording,
        beliefs: Beliefs | None = None,
    ) -> None:
        super().__init__(state, policy, beliefs)
        self._recording = recording
        self._last: Plan | None = None
        recording.add(segment_data(state, policy, spec, self.beliefs.snapshot()))

    submit = _recorded(Scheduler.submit)
    withdraw = _recorded(Scheduler.withdraw)
    resume = _recorded(Scheduler.resume)
    start = _recorded(Scheduler.start)
    preempt = _recorded(Scheduler.preempt)
    fail = _recorded(Scheduler.fail)
    finish = _recorded(Scheduler.finish)
    protect = _recorded(Scheduler.protect)
    repace = _recorded(Scheduler.repace)
    report_progress = _recorded(Scheduler.report_progress)
    observe_steps = _recorded(Scheduler.observe_steps)
    set_priorities = _recorded(Scheduler.set_priorities)
    wait_explained = _recorded(Scheduler.wait_explained)
    plan_applied = _recorded(Scheduler.plan_applied)

    def withhold(self, machine: int, gpus: int, closed: bool = False) -> None:
        """Jobs cannot have so many GPUs of a machine; what changes nothing is not recorded."""
        if gpus != self.state.withheld.get(machine, 0) or closed != (machine in self.state.closed):
            _recorded(Scheduler.withhold)(self, machine, gpus, closed)

    def decide(self, now: float) -> Plan:
        """What to do at `now`; a plan like the one before takes a short line."""
        plan = super().decide(now)
        said = {"again": True} if plan == self._last else {"plan": plan_data(plan)}
        self._recording.add({"t": now, **said})
        self._last = plan
        return plan


def segment_data(
    state: ClusterState, policy: Policy, spec: str, believed: Mapping[str, Any]
) -> dict[str, Any]:
    """The first line of a segment: all that it takes to build such a scheduler again."""
    profiles, learnt = state.costs.profiles, state.costs.learnt
    knows, cluster = asdict(state.knows), asdict(state.topology)
    del cluster["partitions"]  # jobs name their machines themselves
    for name in ("learns_costs", "hides_profiles"):
        if not knows[name]:
            del knows[name]
    return {
        "schema": SCHEMA,
        "version": __version__,
        "policy": spec,
        "learnt": policy.snapshot(),
        "cluster": cluster,
        "profiles": profiles
        and {
            "name": profiles.name,
            "profiles": [json.loads(format_profile(each)) for each in profiles.profiles],
        },
        **({} if state.costs.split is Split.EVEN else {"batch_split": state.costs.split}),
        **({} if state.costs.every_restart_s is None else {"restart_s": state.costs.every_restart_s}),
        "assumed_slowdown": state.costs.assumed_slowdown,
        **({"priority_ratio": state.priority_ratio} if state.priority_ratio else {}),
        **({} if state.knows == EXACTLY else {"knows": knows}),
        **({} if learnt is None else {"learnt_costs": learnt.snapshot()}),
        **({"believed": believed} if believed else {}),
    }
