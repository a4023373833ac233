"""The folder of a live run, as far as a comparison with the simulator needs it."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from dally.errors import InputError
from dally.runs.records import CLUSTER, RUN, JobRecord, read_jobs, read_run
from testbed.running.collect import INTERVALS
from testbed.running.folder import PROFILES, WORKLOAD

KIND = "testbed"


@dataclass(frozen=True, slots=True)
class LiveInterval:
    """One interval of running of a job, as it really was. Times in seconds from the run's origin.

    Attributes:
        job: The job.
        number: Counts the job's intervals, from 0.
        start_s: When Slurm says that it runs.
        first_step_s: End of its first step; None if it did none.
        end_s: When it gave its GPUs back.
        gpus: GPUs by node; empty if nobody knows.
        steps: Steps done in it.
        step_s: Median time of a step; None if none was timed.
        lost_steps: Of its steps, those done again later because no checkpoint held them.
    """

    job: str
    number: int
    start_s: float
    first_step_s: float | None
    end_s: float
    gpus: Mapping[str, int]
    steps: int
    step_s: float | None
    lost_steps: int

    @property
    def kept_steps(self) -> int:
        """The steps that were not done again."""
        return self.steps - self.lost_steps


@dataclass(frozen=True, slots=True)
class LiveRun:
    """What a live run left.

    Attributes:
        folder: Its run folder.
        facts: Its run.json.
        records: Its jobs, by name.
        intervals: The intervals of each job that ran, in order.
    """

    folder: Path
    facts: Mapping[str, Any]
    records: Mapping[str, JobRecord]
    intervals: Mapping[str, Sequence[LiveInterval]]

    @property
    def policy(self) -> str:
        """The specification of the policy that it ran under."""
        return str(self.facts["policy"]["spec"])


def find_runs(folder: Path) -> list[Path]:
    """The live runs that a path names: itself, or those right below it, by name.

    Raises:
        InputError: There is none.
    """
    if (folder / RUN).exists():
        return [folder]
    below = sorted(path.parent for path in folder.glob(f"*/{RUN}")) if folder.is_dir() else []
    found = [path for path in below if read_run(path).get("kind") == KIND]
    if not found:
        raise InputError(f"{folder} is no live run and holds none; `dally testbed run` makes them")
    return found


def read_live_run(folder: Path) -> LiveRun:
    """Read a live run.

    Raises:
        InputError: It is not the folder of a live run, or a file in it is missing or wrong.
    """
    facts = read_run(folder)
    if facts.get("kind") != KIND:
        raise InputError(f"{folder} is a run of kind {facts.get('kind')!r}, must be {KIND!r}")
    for name in (WORKLOAD, CLUSTER, PROFILES):
        if not (folder / name).exists():
            raise InputError(f"{folder} has no {name}; without it the run cannot be simulated")
    if not isinstance(facts.get("policy"), dict) or not isinstance(facts["policy"].get("spec"), str):
        raise InputError(f"{folder / RUN}: policy is {facts.get('policy')!r}, must have a spec")
    end_s = facts.get("end_s")
    if not isinstance(end_s, int | float):
        raise InputError(f"{RUN}: end_s is {end_s!r}, must be a number of seconds")
    by_job: dict[str, list[LiveInterval]] = {}
    for interval in sorted(read_intervals(folder / INTERVALS, float(end_s)), key=lambda one: one.number):
        by_job.setdefault(interval.job, []).append(interval)
    return LiveRun(folder, facts, {record.job_id: record for record in read_jobs(folder)}, by_job)


def read_intervals(path: Path, end_s: float) -> list[LiveInterval]:
    """The intervals of a live run; one that did not end is cut off at the end of the run.

    Raises:
        InputError: The file cannot be read, or a line is wrong.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path.parent} is no whole live run: cannot read {path.name}") from error
    found = []
    for number, line in enumerate(lines, 1):
        try:
            said = json.loads(line)
            if said["end_s"] is None:
                said["end_s"] = end_s
            found.append(LiveInterval(**{field.name: said[field.name] for field in fields(LiveInterval)}))
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(
                f"{path}:{number}: not a stretch of running ({type(error).__name__}: {error})"
            ) from error
    return found
