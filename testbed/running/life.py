"""The life of one job of a live run, and what the run folder says of it."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from dally.cluster.topology import Allocation, Topology
from dally.jobs.job import JobKind
from dally.profiles.costs import CostModel
from dally.runs.records import JobRecord
from testbed.running.sight import Sight
from testbed.running.stretches import HeldInterval, ScriptEvent
from testbed.running.work import Work

_CANCELLED = "CANCELLED"
_UNKNOWN = "GONE"


@dataclass(frozen=True, slots=True)
class Life:
    """One job, from its submission to its end; times in seconds since 1970.

    Attributes:
        work: What it trained.
        stretches: In which it ran, in order.
        stopped: For each stretch, whether it ended because its GPUs were taken, and not by the job's end or
            a failure.
        status: COMPLETED or FAILED; RUNNING or WAITING if it had not ended.
        end_s: Its end; None if it had not ended.
        compute_s: For each stretch, what a step computes there, as predicted.
    """

    work: Work
    stretches: Sequence[HeldInterval]
    stopped: Sequence[bool]
    status: str
    end_s: float | None
    compute_s: Sequence[float]


def live(
    work: Work,
    sights: Sequence[Sight],
    stretches: Sequence[HeldInterval],
    entries: Sequence[ScriptEvent],
    taken: Callable[[float, float], bool],
    costs: CostModel,
) -> Life:
    """The life of a job.

    Args:
        work: What it trained.
        sights: What was seen of it in Slurm, in order.
        stretches: In which it ran.
        entries: Its diary.
        taken: Whether its GPUs were taken between two moments, as the controller says.
        costs: Tells how fast GPU types are.
    """
    status = _status(sights, stretches, entries)
    ended = status in ("COMPLETED", "FAILED")
    ends = [stretch.start_s if stretch.end_s is None else stretch.end_s for stretch in stretches]
    next_s = [stretch.start_s for stretch in stretches[1:]] + [float("inf")]
    stopped = [taken(stretch.start_s, until_s) for stretch, until_s in zip(stretches, next_s, strict=False)]
    if ended and stopped:
        stopped[-1] = False
    end_s = None
    if ended:
        end_s = ends[-1] if ends else sights[-1].t
    compute_s = [_compute_s(work, stretch, costs) for stretch in stretches]
    return Life(work, stretches, stopped, status, end_s, compute_s)


def _compute_s(work: Work, stretch: HeldInterval, costs: CostModel) -> float:
    """What a step computes where a stretch ran: as long as on the slowest GPUs there."""
    allocation = allocation_of(stretch.gpus, costs.topology)
    if allocation is None:
        return work.compute_s
    speeds = costs.worker_speeds(work.job)
    return work.compute_s / min(speeds.get(name, 1.0) for name in costs.topology.by_type(allocation))


def _status(
    sights: Sequence[Sight], stretches: Sequence[HeldInterval], entries: Sequence[ScriptEvent]
) -> str:
    last = sights[-1] if sights else None
    if last is not None and last.ended and last.name != _CANCELLED:
        codes = [entry.code for entry in entries if entry.code is not None]
        done = last.name == "COMPLETED" or (last.name == _UNKNOWN and codes[-1:] == [0])
        return "COMPLETED" if done else "FAILED"
    return "RUNNING" if stretches and (stretches[-1].end_s is None or _was_cancelled(last)) else "WAITING"


def _was_cancelled(last: Sight | None) -> bool:
    return last is not None and last.name == _CANCELLED and last.start_s is not None


def record(life: Life, topology: Topology, origin_s: float, until_s: float) -> JobRecord:
    """The line of jobs.csv.

    Args:
        life: The job's.
        topology: The cluster.
        origin_s: When the run's time began, seconds since 1970.
        until_s: When the run was over, seconds since 1970.
    """
    job, stretches = life.work.job, life.stretches
    lasting_s = [(until_s if part.end_s is None else part.end_s) - part.start_s for part in stretches]
    run_s = sum(lasting_s)
    gpu_s = [sum(part.gpus.values()) * part_s for part, part_s in zip(stretches, lasting_s, strict=True)]
    over_s = (until_s if life.end_s is None else life.end_s) - origin_s
    levels = Counter(
        topology.levels[level] for part in stretches if (level := level_of(part, topology)) is not None
    )
    broken = sum(not stopped for stopped in life.stopped) - (
        life.end_s is not None or life.status == "RUNNING"
    )
    return JobRecord(
        job_id=job.job_id,
        user=job.user,
        group=job.group,
        model=job.model,
        gpus=job.gpus,
        submit_s=job.submit_s,
        start_s=max(job.submit_s, stretches[0].start_s - origin_s) if stretches else None,
        end_s=None if life.end_s is None else life.end_s - origin_s,
        ideal_s=job.duration_s,
        run_s=run_s,
        queue_s=max(0.0, over_s - job.submit_s - run_s),
        comm_s=sum(part.comm_s(compute_s) for part, compute_s in zip(stretches, life.compute_s, strict=True)),
        restart_s=sum(part.restart_s(until_s) for part in stretches[1:]),
        lost_s=sum(part.lost_steps for part in stretches) * life.work.iteration_s,
        preemptions=sum(life.stopped),
        failures=max(0, broken),
        levels=";".join(f"{level}:{count}" for level, count in sorted(levels.items())),
        status=life.status,
        gpu_s=None if job.kind is JobKind.RIGID else sum(gpu_s),
    )


def stretch_facts(life: Life, origin_s: float) -> list[dict[str, object]]:
    """The lines of stretches.jsonl."""

    def t(moment_s: float | None) -> float | None:
        return None if moment_s is None else round(moment_s - origin_s, 3)

    return [
        {
            "job": life.work.job.job_id,
            "number": number,
            "start_s": t(stretch.start_s),
            "first_step_s": t(stretch.first_step_s),
            "end_s": t(stretch.end_s),
            "gpus": dict(stretch.gpus),
            "steps": sum(step.count for step in stretch.steps),
            "step_s": stretch.step_s,
            "compute_s": life.compute_s[number],
            "lost_steps": stretch.lost_steps,
        }
        for number, stretch in enumerate(life.stretches)
    ]


def allocation_of(gpus: Mapping[str, int], topology: Topology) -> Allocation | None:
    """GPUs by node as an allocation of the cluster; None if it does not have such nodes."""
    if not gpus or not gpus.keys() <= topology.machine_index.keys():
        return None
    return tuple(sorted((topology.machine_index[name], count) for name, count in gpus.items()))


def level_of(stretch: HeldInterval, topology: Topology) -> int | None:
    """The level of a stretch's placement; None if it is not known."""
    allocation = allocation_of(stretch.gpus, topology)
    return None if allocation is None else topology.level_of(allocation)


def start_event(life: Life, number: int, costs: CostModel) -> dict[str, object]:
    """What events.jsonl says of the start of a stretch, but for the reason."""
    stretch, topology = life.stretches[number], costs.topology
    allocation = allocation_of(stretch.gpus, topology)
    if allocation is None:
        return {"level": topology.levels[-1], "gpus": dict(stretch.gpus), "slowdown": 1.0}
    cost = costs.cost(life.work.job, allocation)
    return {
        "level": topology.levels[topology.level_of(allocation)],
        "gpus": topology.named(allocation),
        "slowdown": round(cost.slowdown, 4),
    }
