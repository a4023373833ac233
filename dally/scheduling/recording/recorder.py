"""Writes a recording: a scheduler that puts what it is told and what it decides on file, and that file."""

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import asdict
from math import inf
from pathlib import Path
from stat import S_ISREG
from typing import Any, BinaryIO

from dally import __version__
from dally.cluster.topology import Allocation
from dally.jobs.job import Job
from dally.jobs.knowledge import EXACTLY
from dally.jobs.progress import ProgressReport
from dally.plan import Plan, Wait
from dally.policies.base import Policy
from dally.profiles.files import ProfileSet, format_profile
from dally.profiles.gang_iteration import Split
from dally.scheduling.beliefs import Beliefs
from dally.scheduling.recording.plain import decision_data, job_data, past_data, plan_data
from dally.scheduling.scheduler import Scheduler
from dally.state import ClusterState, JobHistory, JobState

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
        if self._size is None:
            self._make_room()
        with open(self._path, "ab", buffering=0, opener=_without_waiting) as file:
            size = _size(file)
            if self._size is None and size:
                data = b"\n" + data  # the line before may be torn
            elif self._size not in (None, size):
                raise OSError("is not as it was left; does another controller write to it?")
            if size + len(data) > self._most_bytes:
                raise OSError(f"is full: {self._most_bytes:,} bytes are the most")
            if file.write(data) != len(data):
                raise OSError("only a part of the last lines could be written")
            self._size = size + len(data)

    def _make_room(self) -> None:
        if self._path.is_file() and self._path.stat().st_size > self._most_bytes / 2:
            self._path.replace(self._path.with_name(f"{self._path.name}.1"))

    def _end(self, reason: str) -> None:
        self._over, self._lines = True, []
        self._ended(reason)


def _without_waiting(path: str, flags: int) -> int:
    """Open a file; a pipe that nobody reads is an error then, and no reason to wait."""
    return os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC, 0o666)


def _size(file: BinaryIO) -> int:
    status = os.fstat(file.fileno())
    if not S_ISREG(status.st_mode):
        raise OSError("is not a plain file")
    return status.st_size


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

    def submit(self, job: Job, now: float, past: JobHistory | None = None) -> JobState:
        """A job arrived, or one with a past waits again."""
        life = super().submit(job, now, past)
        before = {} if past is None else {"past": past_data(past)}
        self._told("submit", t=now, job=job_data(job), **before)
        return life

    def withdraw(self, job_id: str, now: float) -> JobState:
        """A waiting job left."""
        life = super().withdraw(job_id, now)
        self._told("withdraw", t=now, job_id=job_id)
        return life

    def resume(
        self, job_id: str, allocation: Allocation, since_s: float, ready_s: float, now: float, speed: float
    ) -> JobState:
        """A job submitted just now runs already, since before anybody watched."""
        life = super().resume(job_id, allocation, since_s, ready_s, now, speed)
        stretch = {"since_s": since_s, "ready_s": ready_s, "speed": speed}
        self._told("resume", t=now, job_id=job_id, allocation=allocation, **stretch)
        return life

    def decide(self, now: float) -> Plan:
        """What to do at `now`; a plan like the one before takes a short line."""
        plan = super().decide(now)
        said = {"again": True} if plan == self._last else {"plan": plan_data(plan)}
        self._recording.add({"t": now, **said})
        self._last = plan
        return plan

    def start(self, job_id: str, allocation: Allocation, now: float, speed: float) -> JobState:
        """A waiting job was started; it first pays its restart if it ran before."""
        life = super().start(job_id, allocation, now, speed)
        self._told("start", t=now, job_id=job_id, allocation=allocation, speed=speed)
        return life

    def preempt(self, job_id: str, now: float, resized: bool = False) -> JobState:
        """A running job was checkpointed and lost its GPUs, or stopped to go on on others at once."""
        life = super().preempt(job_id, now, resized)
        self._told("preempt", t=now, job_id=job_id, **({"resized": True} if resized else {}))
        return life

    def fail(self, job_id: str, now: float, kept_work_s: float) -> JobState:
        """A running job lost its GPUs to a failure, and its work since the last checkpoint."""
        life = super().fail(job_id, now, kept_work_s)
        self._told("fail", t=now, job_id=job_id, kept_work_s=kept_work_s)
        return life

    def finish(self, job_id: str, now: float) -> JobState:
        """A running job ended."""
        life = super().finish(job_id, now)
        self._told("finish", t=now, job_id=job_id)
        return life

    def withhold(self, machine: int, gpus: int) -> None:
        """Jobs cannot have so many GPUs of a machine; what changes nothing is not recorded."""
        if gpus != self.state.withheld.get(machine, 0):
            super().withhold(machine, gpus)
            self._told("withhold", machine=machine, gpus=gpus)

    def protect(self, job_id: str) -> Job:
        """A waiting job is not to be preempted any more, once it runs."""
        job = super().protect(job_id)
        self._told("protect", job_id=job_id)
        return job

    def repace(self, job_id: str, now: float, speed: float) -> JobState:
        """A running job goes on faster or slower, because fewer or more others share its links."""
        life = super().repace(job_id, now, speed)
        self._told("repace", t=now, job_id=job_id, speed=speed)
        return life

    def report_progress(self, job_id: str, report: ProgressReport, now: float) -> JobState:
        """A running job reported how far it is."""
        life = super().report_progress(job_id, report, now)
        self._told("report_progress", t=now, job_id=job_id, report=asdict(report))
        return life

    def waits(self, decision: Wait) -> None:
        """A decision to wait was recorded."""
        super().waits(decision)
        self._told("waits", decision=decision_data(decision))

    def plan_applied(self, now: float) -> None:
        """The plan of `now` was carried out, as far as that could be."""
        super().plan_applied(now)
        self._told("settle", t=now)

    def _told(self, fact: str, **said: Any) -> None:
        self._recording.add({"fact": fact, **said})


def segment_data(
    state: ClusterState, policy: Policy, spec: str, believed: Mapping[str, Any]
) -> dict[str, Any]:
    """The first line of a segment: all that it takes to build such a scheduler again."""
    profiles = state.costs.profiles
    return {
        "schema": SCHEMA,
        "version": __version__,
        "policy": spec,
        "learnt": policy.snapshot(),
        "cluster": asdict(state.topology),
        "profiles": None if profiles is None else _profiles_data(profiles),
        **({} if state.costs.split is Split.EVEN else {"batch_split": state.costs.split}),
        **({} if state.costs.every_restart_s is None else {"restart_s": state.costs.every_restart_s}),
        "assumed_slowdown": state.costs.assumed_slowdown,
        **({} if state.knows == EXACTLY else {"knows": asdict(state.knows)}),
        **({"believed": believed} if believed else {}),
    }


def _profiles_data(profiles: ProfileSet) -> dict[str, Any]:
    return {
        "name": profiles.name,
        "profiles": [json.loads(format_profile(profile)) for profile in profiles.profiles],
    }
