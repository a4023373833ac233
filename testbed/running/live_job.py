"""One job of a live run, and what the run folder says of it."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dally.cluster.topology import Allocation, Topology
from dally.jobs.job import JobKind
from dally.profiles.costs import CostModel
from dally.runs.records import JobRecord
from testbed.running.intervals import HeldInterval, ScriptEvent
from testbed.running.job_plan import JobPlan
from testbed.running.observer import JobObservation

_CANCELLED = "CANCELLED"


@dataclass(frozen=True, slots=True)
class LiveJob:
    """One job, from its submission to its end; times in seconds since 1970.

    Attributes:
        plan: What it trained.
        intervals: In which it ran, in order.
        stopped: For each interval, whether it ended because its GPUs were taken, and not by the job's end or
            a failure.
        status: COMPLETED or FAILED; RUNNING or WAITING if it had not ended.
        end_s: Its end; None if it had not ended.
        compute_s: For each interval, what a step computes there, as predicted.
    """

    plan: JobPlan
    intervals: Sequence[HeldInterval]
    stopped: Sequence[bool]
    status: str
    end_s: float | None
    compute_s: Sequence[float]


def build_live_job(
    plan: JobPlan,
    observations: Sequence[JobObservation],
    intervals: Sequence[HeldInterval],
    script_events: Sequence[ScriptEvent],
    stops_s: Sequence[float],
    costs: CostModel,
) -> LiveJob:
    """One job of a run; `stops_s` are the moments at which the controller took its GPUs."""
    last = observations[-1] if observations else None
    if last is not None and last.ended and last.name != _CANCELLED:
        codes = [event.code for event in script_events if event.code is not None]
        done = last.name == "COMPLETED" or (last.name == "GONE" and codes[-1:] == [0])
        status = "COMPLETED" if done else "FAILED"
    else:
        was_cancelled = last is not None and last.name == _CANCELLED and last.start_s is not None
        runs = intervals and (intervals[-1].end_s is None or was_cancelled)
        status = "RUNNING" if runs else "WAITING"
    next_s = [interval.start_s for interval in intervals[1:]] + [float("inf")]
    stopped = [
        any(one.start_s <= stop_s < until_s for stop_s in stops_s)
        for one, until_s in zip(intervals, next_s, strict=False)
    ]
    end_s = None
    if status in ("COMPLETED", "FAILED"):
        end_s = observations[-1].t
        if intervals:
            stopped[-1] = False
            end_s = intervals[-1].start_s if intervals[-1].end_s is None else intervals[-1].end_s
    speeds = costs.worker_speeds(plan.job)
    compute_s = []
    for interval in intervals:
        allocation = allocation_of(interval.gpus, costs.topology)
        types = costs.topology.by_type(allocation) if allocation else ()
        # All ranks wait for those on the slowest GPUs.
        compute_s.append(plan.compute_s / min((speeds.get(name, 1.0) for name in types), default=1.0))
    return LiveJob(plan, intervals, stopped, status, end_s, compute_s)


def record(live: LiveJob, topology: Topology, origin_s: float, until_s: float) -> JobRecord:
    """The line of jobs.csv, for a run between two moments, seconds since 1970."""
    job, intervals = live.plan.job, live.intervals
    lasting_s = [(until_s if part.end_s is None else part.end_s) - part.start_s for part in intervals]
    run_s = sum(lasting_s)
    gpu_s = [sum(part.gpus.values()) * part_s for part, part_s in zip(intervals, lasting_s, strict=True)]
    over_s = (until_s if live.end_s is None else live.end_s) - origin_s
    levels = Counter(
        topology.levels[topology.level_of(allocation)]
        for part in intervals
        if (allocation := allocation_of(part.gpus, topology)) is not None
    )
    broken = sum(not stopped for stopped in live.stopped) - (
        live.end_s is not None or live.status == "RUNNING"
    )
    return JobRecord(
        job_id=job.job_id,
        user=job.user,
        group=job.group,
        model=job.model,
        gpus=job.gpus,
        submit_s=job.submit_s,
        start_s=max(job.submit_s, intervals[0].start_s - origin_s) if intervals else None,
        end_s=None if live.end_s is None else live.end_s - origin_s,
        ideal_s=job.duration_s,
        run_s=run_s,
        queue_s=max(0.0, over_s - job.submit_s - run_s),
        comm_s=sum(part.comm_s(compute_s) for part, compute_s in zip(intervals, live.compute_s, strict=True)),
        restart_s=sum(part.restart_s(until_s) for part in intervals[1:]),
        lost_s=sum(part.lost_steps for part in intervals) * live.plan.iteration_s,
        preemptions=sum(live.stopped),
        failures=max(0, broken),
        levels=";".join(f"{level}:{count}" for level, count in sorted(levels.items())),
        status=live.status,
        gpu_s=None if job.kind is JobKind.RIGID else sum(gpu_s),
        plan=str(job.plan or ""),
    )


def interval_facts(live: LiveJob, origin_s: float) -> list[dict[str, object]]:
    """The lines of intervals.jsonl."""

    def t(moment_s: float | None) -> float | None:
        return None if moment_s is None else round(moment_s - origin_s, 3)

    return [
        {
            "job": live.plan.job.job_id,
            "number": number,
            "start_s": t(interval.start_s),
            "first_step_s": t(interval.first_step_s),
            "end_s": t(interval.end_s),
            "gpus": dict(interval.gpus),
            "steps": sum(step.count for step in interval.steps),
            "step_s": interval.step_s,
            "compute_s": live.compute_s[number],
            "lost_steps": interval.lost_steps,
        }
        for number, interval in enumerate(live.intervals)
    ]


def allocation_of(gpus: Mapping[str, int], topology: Topology) -> Allocation | None:
    """GPUs by node as an allocation of the cluster; None if it does not have such nodes."""
    if not gpus or not gpus.keys() <= topology.machine_index.keys():
        return None
    return tuple(sorted((topology.machine_index[name], count) for name, count in gpus.items()))


def start_event(live: LiveJob, number: int, costs: CostModel) -> dict[str, object]:
    """What events.jsonl says of the start of an interval, but for the reason."""
    interval, topology = live.intervals[number], costs.topology
    allocation = allocation_of(interval.gpus, topology)
    if allocation is None:
        return {"level": topology.levels[-1], "gpus": dict(interval.gpus), "slowdown": 1.0}
    cost = costs.cost(live.plan.job, allocation)
    return {
        "level": topology.levels[topology.level_of(allocation)],
        "gpus": topology.named(allocation),
        "slowdown": round(cost.slowdown, 4),
    }
