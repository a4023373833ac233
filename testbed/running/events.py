"""events.jsonl of a live run: what Slurm did, with the controller's reasons, in the order of time."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dally.profiles.costs import CostModel
from testbed.running.life import Life, start_event

_OF_JOBS = ("wait", "stop", "start_failed", "order_refused", "requeue_failed", "released", "conflict")
_OF_ITSELF = (
    "controller_starts",
    "controller_ends",
    "slurm_unavailable",
    "journal_error",
    "journal_lost",
    "recovered",
    "policy_memory_lost",
)
"""Events of the controller that are told as they are."""

_BY_SLURM = "Slurm started it"
_CLOCK_S = 1.0
"""By how much the controller may see a start before the time that Slurm gives it."""


@dataclass(frozen=True, slots=True)
class Minutes:
    """What the controller told of a run, in the run's own terms: the workload's job ids, its own time.

    Attributes:
        events: In order; `t` in seconds from the run's origin.
    """

    events: tuple[Mapping[str, Any], ...]

    def of(self, job_id: str, kinds: Sequence[str], from_s: float, to_s: float) -> Mapping[str, Any] | None:
        """The first event of a job, of one of these kinds, in a span of time."""
        return next(
            (
                event
                for event in self.events
                if event.get("job") == job_id and event["event"] in kinds and from_s <= event["t"] < to_s
            ),
            None,
        )


def read_minutes(lines: Sequence[Mapping[str, Any]], ids: Mapping[str, str], origin_s: float) -> Minutes:
    """The controller's events.

    Args:
        lines: As it told them.
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
    return Minutes(tuple(sorted(found, key=lambda event: event["t"])))


def tell_events(
    lives: Sequence[Life], minutes: Minutes, costs: CostModel, origin_s: float
) -> list[dict[str, Any]]:
    """All events of a run, by time.

    Args:
        lives: Of all jobs.
        minutes: What the controller told; empty if there was none.
        costs: Says what placements cost.
        origin_s: When the run's time began, seconds since 1970.
    """
    own = [dict(event) for event in minutes.events if event["event"] in _OF_JOBS + _OF_ITSELF]
    told = [event for life in lives for event in _of_life(life, minutes, costs, origin_s)]
    return sorted([*told, *own], key=lambda event: float(event["t"]))


def _of_life(life: Life, minutes: Minutes, costs: CostModel, origin_s: float) -> Iterator[dict[str, Any]]:
    job = life.work.job
    yield {"t": job.submit_s, "event": "submit", "job": job.job_id, "gpus": job.gpus, "model": job.model}
    after = [stretch.start_s - origin_s for stretch in life.stretches[1:]] + [float("inf")]
    for number, stretch in enumerate(life.stretches):
        start_s = stretch.start_s - origin_s
        said = minutes.of(job.job_id, ("start", "migrate", "resize"), start_s - _CLOCK_S, after[number])
        kind, reason = (said["event"], said["reason"]) if said else ("start", _BY_SLURM)
        placed = start_event(life, number, costs)
        yield {"t": round(start_s, 3), "event": kind, "job": job.job_id, **placed, "reason": reason}
        last = number + 1 == len(life.stretches)
        if stretch.end_s is not None and not (last and life.end_s is not None):
            yield _break(life, number, minutes, origin_s, after[number])
    if life.end_s is not None:
        t = round(life.end_s - origin_s, 3)
        yield {"t": t, "event": "end", "job": job.job_id, "status": life.status}


def _break(life: Life, number: int, minutes: Minutes, origin_s: float, until_s: float) -> dict[str, Any]:
    """A stretch came to its end, and the job did not."""
    job_id, stretch = life.work.job.job_id, life.stretches[number]
    assert stretch.end_s is not None
    said = {"t": round(stretch.end_s - origin_s, 3), "job": job_id}
    if not life.stopped[number]:
        return {**said, "event": "fail", "lost_s": stretch.lost_steps * life.work.iteration_s}
    start_s = stretch.start_s - origin_s
    why = minutes.of(job_id, ("preempt",), start_s, until_s) or minutes.of(
        job_id, ("stop",), start_s, until_s
    )
    by = list(why.get("by", ())) if why else []
    return {**said, "event": "preempt", "by": by, "reason": why["reason"] if why else ""}
