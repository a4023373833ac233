"""events.jsonl of a live run: what Slurm did, with the controller's reasons, in the order of time."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from dally.profiles.costs import CostModel
from testbed.running.live_job import LiveJob, start_event

_COPIED = (
    *("wait", "stop", "start_failed", "order_refused", "requeue_failed", "released", "conflict"),
    *("controller_starts", "controller_ends", "slurm_unavailable", "journal_error", "journal_lost"),
    *("recovered", "policy_memory_lost"),
)
"""Events of the controller that are copied unchanged."""

_CLOCK_S = 1.0
"""By how much the controller may see a start before the time that Slurm gives it."""


Events = Sequence[Mapping[str, Any]]
"""What the controller logged of a run, in order: the workload's job ids, seconds from the run's origin."""


def first_event(
    events: Events, job_id: str, kinds: Sequence[str], from_s: float, to_s: float
) -> Mapping[str, Any] | None:
    """The first event of a job, of one of these kinds, in a span of time."""
    for event in events:
        if event.get("job") == job_id and event["event"] in kinds and from_s <= event["t"] < to_s:
            return event
    return None


def read_controller_events(
    lines: Sequence[Mapping[str, Any]], ids: Mapping[str, str], origin_s: float
) -> Events:
    """The controller's events.

    Args:
        lines: The lines of its log.
        ids: Ids in the workload by number in Slurm; events of other jobs are left out.
        origin_s: When the run's time began, seconds since 1970.
    """
    found = []
    for line in lines:
        job = line.get("job")
        if "t" not in line or "event" not in line or (job is not None and job not in ids):
            continue
        event = {**line, "t": round(line["t"] - origin_s, 3)}
        if job is not None:
            event["job"] = ids[job]
        if "by" in line:
            event["by"] = [ids[other] for other in line["by"] if other in ids]
        if line.get("until") is not None:
            event["until"] = round(line["until"] - origin_s, 3)
        found.append(event)
    return sorted(found, key=lambda event: event["t"])


def run_events(
    live_jobs: Sequence[LiveJob], events: Events, costs: CostModel, origin_s: float
) -> list[dict[str, Any]]:
    """All events of a run, by time; without a controller, those of Slurm alone."""
    found = [dict(event) for event in events if event["event"] in _COPIED]
    for live in live_jobs:
        found += _of_job(live, events, costs, origin_s)
    return sorted(found, key=lambda event: float(event["t"]))


def _of_job(live: LiveJob, events: Events, costs: CostModel, origin_s: float) -> Iterator[dict[str, Any]]:
    job = live.plan.job
    yield {"t": job.submit_s, "event": "submit", "job": job.job_id, "gpus": job.gpus, "model": job.model}
    after = [interval.start_s - origin_s for interval in live.intervals[1:]] + [float("inf")]
    for number, (interval, until_s) in enumerate(zip(live.intervals, after, strict=False)):
        start_s = interval.start_s - origin_s
        said = first_event(events, job.job_id, ("start", "migrate", "resize"), start_s - _CLOCK_S, until_s)
        kind, reason = (said["event"], said["reason"]) if said else ("start", "Slurm started it")
        placed = start_event(live, number, costs)
        yield {"t": round(start_s, 3), "event": kind, "job": job.job_id, **placed, "reason": reason}
        last = number + 1 == len(live.intervals)
        if interval.end_s is None or (last and live.end_s is not None):
            continue
        ended = {"t": round(interval.end_s - origin_s, 3), "job": job.job_id}
        if not live.stopped[number]:
            yield {**ended, "event": "fail", "lost_s": interval.lost_steps * live.plan.iteration_s}
            continue
        why = first_event(events, job.job_id, ("preempt",), start_s, until_s) or first_event(
            events, job.job_id, ("stop",), start_s, until_s
        )
        by, reason = (list(why.get("by", ())), why["reason"]) if why else ([], "")
        yield {**ended, "event": "preempt", "by": by, "reason": reason}
    if live.end_s is not None:
        t = round(live.end_s - origin_s, 3)
        yield {"t": t, "event": "end", "job": job.job_id, "status": live.status}
