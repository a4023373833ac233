"""Small run folders, written by hand."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from dally.runs.records import EVENTS, JOBS, RUN, EventLog, JobRecord, write_jobs, write_run
from dally.runs.summary import summarise

Event = dict[str, Any]


def record(job_id: str, *, submit_s: float, queue_s: float, run_s: float, **more: Any) -> JobRecord:
    """A completed job of one GPU that waited, then ran at its best placement."""
    values: dict[str, Any] = {
        "user": "",
        "group": "",
        "model": "",
        "gpus": 1,
        "ideal_s": run_s,
        "comm_s": 0.0,
        "restart_s": 0.0,
        "lost_s": 0.0,
        "preemptions": 0,
        "failures": 0,
        "levels": "machine:1",
        "status": "COMPLETED",
        "start_s": submit_s + queue_s,
        "end_s": submit_s + queue_s + run_s,
    }
    return JobRecord(job_id=job_id, submit_s=submit_s, queue_s=queue_s, run_s=run_s, **{**values, **more})


def started(t: float, job: str, gpus: dict[str, int], level: str = "machine", kind: str = "start") -> Event:
    """A start, migration or resize."""
    return {
        "t": t,
        "event": kind,
        "job": job,
        "level": level,
        "gpus": gpus,
        "slowdown": 1.0,
        "reason": f"{level} has free GPUs",
    }


def waits(t: float, job: str, level: str, until: float | None, reason: str = "no room") -> Event:
    """A decision to wait."""
    return {"t": t, "event": "wait", "job": job, "level": level, "until": until, "reason": reason}


def life(job: JobRecord, machine: str = "m0") -> list[Event]:
    """A job that started once and ended."""
    assert job.start_s is not None
    assert job.end_s is not None
    return [
        {"t": job.submit_s, "event": "submit", "job": job.job_id, "gpus": job.gpus, "model": job.model},
        started(job.start_s, job.job_id, {machine: job.gpus}),
        {"t": job.end_s, "event": "end", "job": job.job_id, "status": job.status},
    ]


def write_folder(
    folder: Path, records: Sequence[JobRecord], events: Sequence[Event], policy: str = "fifo", **facts: Any
) -> Path:
    """Write a run folder of a cluster of 8 GPUs whose file nobody has."""
    folder.mkdir(parents=True)
    end_s = max(event["t"] for event in events)
    with (folder / EVENTS).open("w", encoding="utf-8") as file:
        log = EventLog(file)
        for event in sorted(events, key=lambda event: float(event["t"])):
            log.write(
                event["t"], event["event"], **{k: v for k, v in event.items() if k not in ("t", "event")}
            )
    write_jobs(folder / JOBS, list(records))
    said = {
        "kind": "simulation",
        "version": "0",
        "policy": {"name": policy, "spec": policy, "knobs": {}},
        "cluster": {"name": "tiny", "gpus": 8, "machines": 2, "levels": ["machine", "rack", "network"]},
        "seed": 0,
        "trace": {"source": "jobs.csv", "sha256": "0"},
        "profiles": None,
        "complete": True,
        "note": "",
        "end_s": end_s,
        "predictions": {"models_without_profile": []},
        "summary": asdict(summarise(records, 8, end_s)),
    }
    write_run(folder / RUN, {**said, **facts})
    return folder


def simple_run(folder: Path, policy: str, waits_s: Sequence[float], **facts: Any) -> Path:
    """Jobs submitted a minute apart, that waited so long and ran for 100 s."""
    records = [
        record(f"job-{n}", submit_s=60.0 * n, queue_s=wait_s, run_s=100.0) for n, wait_s in enumerate(waits_s)
    ]
    return write_folder(folder, records, [event for job in records for event in life(job)], policy, **facts)


def cut(path: Path, bytes_off: int) -> None:
    """Cut off the end of a file."""
    content = path.read_bytes()
    path.write_bytes(content[:-bytes_off])


def change_run(folder: Path, **facts: Any) -> None:
    """Say something else in run.json."""
    said = json.loads((folder / RUN).read_text())
    (folder / RUN).write_text(json.dumps({**said, **facts}))
