"""Makes the run folder of a live run: fetches what the head node has, and writes the schema's files."""

import json
from contextlib import suppress
from dataclasses import asdict, replace
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
from slurm_plugin.client.node_text import read_settings
from slurm_plugin.local_cluster.cluster import Cluster, ClusterError
from testbed.running.events import read_controller_events, run_events
from testbed.running.folder import (
    CONTROLLER,
    JOBS_FOLDER,
    OBSERVED,
    RunInputs,
    RunState,
    job_path,
    read_inputs,
    read_state,
    read_text,
)
from testbed.running.head_files import get_files
from testbed.running.intervals import find_intervals, read_script_log
from testbed.running.json_lines import read_lines
from testbed.running.live_job import build_live_job, interval_facts, record
from testbed.running.observer import read_observations
from testbed.running.script import SCRIPT_LOG, STEPS

INTERVALS = "stretches.jsonl"
ACCOUNTING = "slurm-jobs.txt"
_SACCT = "JobID,JobName%60,State,ExitCode,Submit,Start,End,ElapsedRaw,NNodes,NodeList%60,AllocTRES%60"


def fetch(cluster: Cluster, folder: Path, state: RunState) -> None:
    """Copy what a run has left on the head node: logs, scripts, the controller's events, Slurm's accounting.

    Raises:
        ClusterError: The head node does not answer.
    """
    for name, text in get_files(cluster, Path(state.base)).items():
        path = folder / name
        if name.startswith(f"{JOBS_FOLDER}/") or "/" not in name:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(path, text)
    with suppress(ClusterError):
        if lines := _accounting(cluster, state.run):
            write_atomically(folder / ACCOUNTING, "".join(f"{line}\n" for line in lines))


def _accounting(cluster: Cluster, run: str) -> list[str]:
    """Slurm's own record of a run's jobs: from its database, else its completion file, else its memory."""
    with suppress(ClusterError):
        rows = cluster.ask("sacct", "--duplicates", "--parsable2", f"--format={_SACCT}").splitlines()
        if own := [row for row in rows[1:] if f"|{run}-" in row]:
            return [rows[0], *own]
    with suppress(ClusterError):
        file = read_settings(cluster.ask("scontrol", "show", "config")).get("JobCompLoc", "")
        lines = cluster.ask("cat", file).splitlines() if file.startswith("/") else []
        if own := [line for line in lines if f" Name={run}-" in line]:
            return own
    shown = cluster.ask("scontrol", "--oneliner", "--details", "show", "job")
    return [line for line in shown.splitlines() if f"JobName={run}-" in line]


def write_run_folder(folder: Path) -> Run:
    """Write jobs.csv, events.jsonl, stretches.jsonl and run.json out of what lies in the folder.

    Raises:
        InputError: No run has begun there, or its files are wrong.
    """
    state, inputs = read_state(folder), read_inputs(folder)
    if state is None or state.origin_s is None:
        raise InputError(f"{folder} holds no run that has begun")
    origin_s, spec = state.origin_s, parse_policy(state.policy)
    observations = read_observations(folder / OBSERVED)
    ids = {observed.slurm: observed.job for observed in observations if observed.slurm}
    events = read_controller_events(read_lines(folder / CONTROLLER), ids, origin_s)
    averaging = spec.policy.averaging(spec.knobs)
    costs = CostModel(inputs.topology, inputs.profiles, averaging=averaging)
    live_jobs = []
    for plan in inputs.plans:
        job_id = plan.job.job_id
        own = [observed for observed in observations if observed.job == job_id]
        script_log, step_log = (read_text(job_path(folder, job_id) / file) for file in (SCRIPT_LOG, STEPS))
        stops_s = [
            event["t"] + origin_s
            for event in events
            if event["event"] == "stop" and event.get("job") == job_id
        ]
        intervals = find_intervals(own, script_log, step_log)
        live_jobs.append(build_live_job(plan, own, intervals, read_script_log(script_log), stops_s, costs))
    ends_s = [live.end_s for live in live_jobs if live.end_s is not None]
    if len(ends_s) == len(live_jobs) and not state.note:
        end_s, note = max(ends_s), ""
    else:
        end_s = state.end_s or max([origin_s, *ends_s, *(observed.t for observed in observations)])
        note = state.note or "it was cut off"
    records = [record(live, inputs.topology, origin_s, end_s) for live in live_jobs]
    text = StringIO()
    log = EventLog(text)
    for event in run_events(live_jobs, events, costs, origin_s):
        log.write(event.pop("t"), event.pop("event"), **event)
    write_atomically(folder / EVENTS, text.getvalue())
    lines = [line for live in live_jobs for line in interval_facts(live, origin_s)]
    write_atomically(folder / INTERVALS, "".join(json.dumps(line) + "\n" for line in lines))
    write_jobs(folder / JOBS, records)
    return _write_run(folder, replace(state, end_s=end_s, note=note), inputs, records, costs)


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
            "predictions": predictions.data(),
            "summary": asdict(summary),
        },
    )
    return Run(policy.spec, folder.name, summary, predictions, not state.note, state.note)
