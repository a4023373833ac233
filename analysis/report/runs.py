"""The runs that a report compares: found, read, checked to be whole, and to be of the same jobs."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from dally.atomic_file import read_plain
from dally.cluster import load_cluster
from dally.cluster.topology import Topology
from dally.errors import InputError
from dally.jobs.knowledge import Knowledge, Known
from dally.runs.records import CLUSTER, EVENTS, JOBS, RUN, JobRecord, read_events, read_jobs, read_run
from dally.runs.summary import Summary, summarise
from dally.words import plural

_LARGEST = 1e18
COMPARISON = "comparison.json"
SAME_MOMENT_S = 1.0
"""Submissions of one job in two runs may lie so far apart."""

_PLACED = ("job", "level", "gpus", "slowdown", "reason")
_SAYS: Mapping[str, Sequence[str]] = {
    "submit": ("job", "gpus", "model"),
    "wait": ("job", "level", "until", "reason"),
    "start": _PLACED,
    "migrate": _PLACED,
    "resize": _PLACED,
    "pace": ("job", "slowdown", "reason"),
    "preempt": ("job", "by", "reason"),
    "fail": ("job", "lost_s"),
    "end": ("job", "status"),
    "stop": ("job", "signal", "reason"),
    "start_failed": ("job", "reason", "again_in_s"),
    "order_refused": ("job", "order", "said"),
    "released": ("job", "reason"),
    "conflict": ("job", "gpus"),
    "machine_down": ("machine",),
    "machine_up": ("machine",),
}


@dataclass(frozen=True)
class WholeRun:
    """One run that is whole.

    Attributes:
        folder: Its run folder.
        name: What the report calls it: its policy, with the folder if another run has the same.
        facts: Its run.json.
        records: Its jobs, by submission.
        topology: Its cluster; None if it cannot be read.
    """

    folder: Path
    name: str
    facts: Mapping[str, Any]
    records: Sequence[JobRecord]
    topology: Topology | None

    @property
    def cluster(self) -> Mapping[str, Any]:
        """What run.json says of the cluster: name, gpus, machines, levels."""
        cluster: Mapping[str, Any] = self.facts["cluster"]
        return cluster

    @property
    def end_s(self) -> float:
        """When the run was over, seconds from its origin."""
        return float(self.facts["end_s"])

    @property
    def knew(self) -> str:
        """The knowledge of running times, as `dally.jobs.knowledge` has it; limits in a real run."""
        real = self.facts.get("kind") == "testbed"
        known = self.facts.get("knowledge", Knowledge.LIMITS if real else Knowledge.EXACT)
        return str(
            Known(
                Knowledge(known),
                error=float(self.facts.get("estimate_error", 0)),
                profile_error=float(self.facts.get("profile_error", 0)),
                learns_costs=bool(self.facts.get("learn_costs")),
                hides_profiles=bool(self.facts.get("hide_profiles")),
            )
        )

    @cached_property
    def summary(self) -> Summary:
        """The run's headline numbers."""
        return summarise(self.records, self.cluster["gpus"], self.end_s)

    def events(self) -> Iterator[dict[str, Any]]:
        """Its events, in order.

        Raises:
            InputError: events.jsonl is cut off, or a line is no event.
        """
        ends = 0
        for number, event in enumerate(read_events(self.folder), 1):
            if wrong := _wrong(event, self.cluster["levels"]):
                raise InputError(f"{self.folder / EVENTS}:{number}: {wrong}")
            ends += event["event"] == "end"
            yield event
        ended = sum(record.end_s is not None for record in self.records)
        if ends != ended:
            raise InputError(
                f"{self.folder / EVENTS} ends {plural(ends, 'job')} and {JOBS} has {ended} that ended; "
                "one of them is truncated"
            )


def _wrong(event: Mapping[str, Any], levels: Sequence[str]) -> str:
    """What is wrong with a line of events.jsonl; empty if nothing is."""
    if lacks := {"t", *_SAYS.get(event["event"], ())} - event.keys():
        return f"{event['event']} without {', '.join(sorted(lacks))}"
    if event.get("level", levels[0]) not in levels:
        return f"level {event['level']!r} is none of the cluster's: {', '.join(levels)}"
    return ""


def load_runs(paths: Sequence[Path]) -> list[WholeRun]:
    """Read the runs that some paths name, each a run folder or a folder of such.

    Raises:
        InputError: A path holds no run, a run is not whole, or they are not of the same jobs.
    """
    folders = [folder for path in paths for folder in find_runs(path)]
    runs = _named([_read(folder) for folder in dict.fromkeys(folders)])
    _check_same_jobs(runs)
    return runs


def find_runs(path: Path) -> list[Path]:
    """The run folder that a path is, or those right below it, in the order of its comparison.

    Raises:
        InputError: There is none.
    """
    if (path / RUN).exists():
        return [path]
    found = sorted(below.parent for below in path.glob(f"*/{RUN}")) if path.is_dir() else []
    if not found:
        raise InputError(
            f"{path} is no run folder and holds none; `dally simulate` and `dally testbed run` make them"
        )
    try:
        runs = json.loads(read_plain(path / COMPARISON))
        order = {run["folder"]: place for place, run in enumerate(runs.values())}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        order = {}  # of no comparison, or not ours: by name
    return sorted(found, key=lambda folder: order.get(folder.name, len(order)))


def _read(folder: Path) -> WholeRun:
    facts = read_run(folder)
    for name in (JOBS, EVENTS):
        path = folder / name
        if not path.is_file():
            raise InputError(f"{folder} is not a run folder: cannot read {name}")
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - 1))
            if file.read() != b"\n":
                raise InputError(f"{path}: the last line is cut off, the file is truncated")
    records = read_jobs(folder)
    try:
        spec, said = str(facts["policy"]["spec"]), facts["summary"]["jobs"]
        cluster, end_s, _ = facts["cluster"], facts["end_s"], facts["complete"]
        gpus, levels = cluster["gpus"], cluster["levels"]
    except (KeyError, TypeError) as error:
        raise InputError(f"{folder / RUN}: lacks {error}") from error
    named = isinstance(levels, list) and levels and all(isinstance(level, str) for level in levels)
    numbers = all(isinstance(value, int | float) and abs(value) < _LARGEST for value in (end_s, gpus))
    if not (numbers and named):
        raise InputError(f"{folder / RUN}: end_s and cluster.gpus must be numbers, cluster.levels names")
    if not records:
        raise InputError(f"{folder / JOBS} has no jobs, so there is nothing to report")
    if len(records) != said:
        raise InputError(
            f"{folder / JOBS} has {plural(len(records), 'job')} and {RUN} says {said}; the file is truncated"
        )
    topology: Topology | None = None
    try:
        found = load_cluster(folder / CLUSTER)
        if (found.gpus, list(found.levels)) == (gpus, levels):  # else the file is another cluster's
            topology = found
    except InputError:
        pass  # older folders have none
    return WholeRun(folder, spec, facts, records, topology)


def _named(runs: Sequence[WholeRun]) -> list[WholeRun]:
    """The runs, those of the same policy told apart by the names of their folders, or else their paths."""
    often = Counter(run.name for run in runs)
    short = [f"{run.name} ({run.folder.name})" for run in runs]
    long = [f"{run.name} ({run.folder})" for run in runs]
    apart = short if len({*short}) == len(runs) else long
    return [
        run if often[run.name] == 1 else replace(run, name=name)
        for run, name in zip(runs, apart, strict=True)
    ]


def _check_same_jobs(runs: Sequence[WholeRun]) -> None:
    """Refuse runs whose jobs differ; only a run that is not complete may lack some."""
    first = {record.job_id: record for record in runs[0].records}
    for run in runs[1:]:
        others, why = {record.job_id: record for record in run.records}, ""
        for job_id in dict.fromkeys([*first, *others]):
            one, other = first.get(job_id), others.get(job_id)
            if one is None or other is None:
                lacking = runs[0] if one is None else run
                why = f"is not in {lacking.folder}" if lacking.facts["complete"] else ""
            elif one.gpus != other.gpus:
                why = f"asks for {one.gpus} and {other.gpus} GPUs"
            elif abs(one.submit_s - other.submit_s) > SAME_MOMENT_S:
                why = f"is submitted at {one.submit_s:,.0f} s and {other.submit_s:,.0f} s"
            if why:
                raise InputError(
                    f"{runs[0].folder} and {run.folder} are runs of different traces: job {job_id} {why}"
                )
