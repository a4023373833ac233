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
from testbed.running.events import ControllerEvents, read_controller_events, run_events
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
from testbed.running.head_files import get_files
from testbed.running.intervals import find_intervals, read_script_log
from testbed.running.job_plan import JobPlan
from testbed.running.json_lines import read_lines
from testbed.running.live_job import LiveJob, build_live_job, interval_facts, record
from testbed.running.observer import JobObservation, read_observations
from testbed.running.script import SCRIPT_LOG, STEPS

INTERVALS = "stretches.jsonl"
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
    """Write jobs.csv, events.jsonl, intervals.jsonl and run.json out of what lies in the folder.

    Raises:
        InputError: No run has begun there, or its files are wrong.
    """
    state, inputs = read_state(folder), read_inputs(folder)
    if state is None or state.origin_s is None:
        raise InputError(f"{folder} holds no run that has begun")
    observations = read_observations(folder / OBSERVED)
    events = _controller_events(folder, observations, state.origin_s)
    origin_s = state.origin_s
    spec = parse_policy(state.policy)
    averaging = spec.policy.averaging(spec.knobs)
    costs = CostModel(inputs.topology, inputs.profiles, averaging=averaging)
    live_jobs = [_live_job(folder, plan, observations, events, origin_s, costs) for plan in inputs.plans]
    end_s, note = _end(state, live_jobs, observations)
    records = [record(live, inputs.topology, origin_s, end_s) for live in live_jobs]
    _write_events(folder, live_jobs, events, costs, origin_s)
    lines = [line for live in live_jobs for line in interval_facts(live, origin_s)]
    write_atomically(folder / INTERVALS, "".join(json.dumps(line) + "\n" for line in lines))
    write_jobs(folder / JOBS, records)
    return _write_run(folder, closed(state, end_s, note), inputs, records, costs)


def _controller_events(folder: Path, observations: list[JobObservation], origin_s: float) -> ControllerEvents:
    ids = {observed.slurm: observed.job for observed in observations if observed.slurm}
    return read_controller_events(read_lines(folder / CONTROLLER), ids, origin_s)


def _live_job(
    folder: Path,
    plan: JobPlan,
    observations: list[JobObservation],
    events: ControllerEvents,
    origin_s: float,
    costs: CostModel,
) -> LiveJob:
    job_id = plan.job.job_id
    own = [observed for observed in observations if observed.job == job_id]
    place = folder / JOBS_FOLDER / job_folder(job_id)
    script_log = _text(place / SCRIPT_LOG)
    return build_live_job(
        plan,
        own,
        find_intervals(own, script_log, _text(place / STEPS)),
        read_script_log(script_log),
        partial(_taken, events, job_id, origin_s),
        costs,
    )


def _taken(events: ControllerEvents, job_id: str, origin_s: float, from_s: float, to_s: float) -> bool:
    """Whether the controller took a job's GPUs between two moments, seconds since 1970."""
    return events.of(job_id, ("stop",), from_s - origin_s, to_s - origin_s) is not None


def _end(state: RunState, live_jobs: list[LiveJob], observations: list[JobObservation]) -> tuple[float, str]:
    """When the run was over, seconds since 1970, and why it is not complete; empty if it is."""
    ends = [live.end_s for live in live_jobs if live.end_s is not None]
    if len(ends) == len(live_jobs) and not state.note:
        return max(ends), ""
    last_s = max([state.origin_s or 0.0, *ends, *(observed.t for observed in observations)])
    return state.end_s or last_s, state.note or _CUT_OFF


def _write_events(
    folder: Path, live_jobs: list[LiveJob], events: ControllerEvents, costs: CostModel, origin_s: float
) -> None:
    text = StringIO()
    log = EventLog(text)
    for event in run_events(live_jobs, events, costs, origin_s):
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
