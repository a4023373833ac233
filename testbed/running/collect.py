"""Makes the run folder of a live run: what the head node has is fetched, then all is told in the schema."""

import json
from contextlib import suppress
from dataclasses import asdict
from functools import partial
from io import StringIO
from pathlib import Path

from dally import __version__
from dally.atomic_file import write_atomically
from dally.errors import InputError
from dally.policies.registry import parse_policy
from dally.profiles.costs import CostModel
from dally.runs.records import EVENTS, JOBS, RUN, EventLog, JobRecord, write_jobs, write_run
from dally.runs.summary import summarise
from simulator.scenario import Run
from slurm_plugin.local_cluster.cluster import Cluster, ClusterError
from testbed.running.accounting import ACCOUNTING, read_accounting
from testbed.running.events import Minutes, read_minutes, tell_events
from testbed.running.folder import (
    CONTROLLER,
    JOBS_FOLDER,
    OBSERVED,
    RunInputs,
    RunState,
    closed,
    job_folder,
    read_inputs,
    read_state,
)
from testbed.running.head import get_files
from testbed.running.life import Life, live, record, stretch_facts
from testbed.running.lines import read_lines
from testbed.running.script import DIARY, STEPS
from testbed.running.sight import Sight, read_sights
from testbed.running.stretches import find_stretches, read_diary
from testbed.running.work import Work

STRETCHES = "stretches.jsonl"
_CUT_OFF = "it was cut off"


def fetch(cluster: Cluster, folder: Path, state: RunState) -> None:
    """Copy what a run has left on the head node: logs, scripts, what the controller told, Slurm's accounting.

    Raises:
        ClusterError: The head node does not answer.
    """
    for name, text in get_files(cluster, Path(state.base)).items():
        path = folder / name
        if name.startswith(f"{JOBS_FOLDER}/") or "/" not in name:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(path, text)
    with suppress(ClusterError):
        if accounts := read_accounting(cluster, state.run):
            write_atomically(folder / ACCOUNTING, accounts)


def write_run_folder(folder: Path) -> Run:
    """Write jobs.csv, events.jsonl, stretches.jsonl and run.json out of what lies in the folder.

    Raises:
        InputError: No run has begun there, or its files are wrong.
    """
    state, inputs = read_state(folder), read_inputs(folder)
    if state is None or state.origin_s is None:
        raise InputError(f"{folder} holds no run that has begun")
    sights = read_sights(folder / OBSERVED)
    minutes = _minutes(folder, sights, state.origin_s)
    origin_s = state.origin_s
    spec = parse_policy(state.policy)
    averaging = spec.policy.averaging(spec.knobs)
    costs = CostModel(inputs.topology, inputs.profiles, averaging=averaging)
    lives = [_life(folder, work, sights, minutes, origin_s, costs) for work in inputs.works]
    end_s, note = _end(state, lives, sights)
    records = [record(life, inputs.topology, origin_s, end_s) for life in lives]
    _write_events(folder, lives, minutes, costs, origin_s)
    lines = [line for life in lives for line in stretch_facts(life, origin_s)]
    write_atomically(folder / STRETCHES, "".join(json.dumps(line) + "\n" for line in lines))
    write_jobs(folder / JOBS, records)
    return _write_run(folder, closed(state, end_s, note), inputs, records, costs)


def _minutes(folder: Path, sights: list[Sight], origin_s: float) -> Minutes:
    ids = {sight.slurm: sight.job for sight in sights if sight.slurm}
    return read_minutes(read_lines(folder / CONTROLLER), ids, origin_s)


def _life(
    folder: Path, work: Work, sights: list[Sight], minutes: Minutes, origin_s: float, costs: CostModel
) -> Life:
    job_id = work.job.job_id
    own = [sight for sight in sights if sight.job == job_id]
    place = folder / JOBS_FOLDER / job_folder(job_id)
    diary = _text(place / DIARY)
    return live(
        work,
        own,
        find_stretches(own, diary, _text(place / STEPS)),
        read_diary(diary),
        partial(_taken, minutes, job_id, origin_s),
        costs,
    )


def _taken(minutes: Minutes, job_id: str, origin_s: float, from_s: float, to_s: float) -> bool:
    """Whether the controller took a job's GPUs between two moments, seconds since 1970."""
    return minutes.of(job_id, ("stop",), from_s - origin_s, to_s - origin_s) is not None


def _end(state: RunState, lives: list[Life], sights: list[Sight]) -> tuple[float, str]:
    """When the run was over, seconds since 1970, and why it is not complete; empty if it is."""
    ends = [life.end_s for life in lives if life.end_s is not None]
    if len(ends) == len(lives) and not state.note:
        return max(ends), ""
    last_s = max([state.origin_s or 0.0, *ends, *(sight.t for sight in sights)])
    return state.end_s or last_s, state.note or _CUT_OFF


def _write_events(
    folder: Path, lives: list[Life], minutes: Minutes, costs: CostModel, origin_s: float
) -> None:
    text = StringIO()
    log = EventLog(text)
    for event in tell_events(lives, minutes, costs, origin_s):
        log.write(event.pop("t"), event.pop("event"), **event)
    write_atomically(folder / EVENTS, text.getvalue())


def _write_run(
    folder: Path, state: RunState, inputs: RunInputs, records: list[JobRecord], costs: CostModel
) -> Run:
    policy, topology = parse_policy(state.policy), inputs.topology
    assert state.origin_s is not None
    assert state.end_s is not None
    end_s = state.end_s - state.origin_s
    summary, predictions = summarise(records, topology.gpus, end_s), costs.report()
    write_run(
        folder / RUN,
        {
            "kind": "testbed",
            "version": __version__,
            "policy": {"name": policy.policy.name, "spec": policy.spec, "knobs": asdict(policy.knobs)},
            "cluster": {
                "name": topology.name,
                "gpus": topology.gpus,
                "machines": len(topology.machines),
                "levels": list(topology.levels),
            },
            **state.facts,
            "run": state.run,
            "origin_s": state.origin_s,
            "emulate_tflops": state.emulate_tflops,
            "backend": state.backend,
            "complete": not state.note,
            "note": state.note,
            "end_s": round(end_s, 3),
            "predictions": asdict(predictions),
            "summary": asdict(summary),
        },
    )
    return Run(policy.spec, folder.name, summary, predictions, not state.note, state.note)


def _text(path: Path) -> str:
    return path.read_text("utf-8", "replace") if path.exists() else ""
