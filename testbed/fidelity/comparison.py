"""Holds a simulation against the live run that it foretells, job by job and as a whole."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import fsum

from dally.cluster.topology import Allocation
from dally.errors import InputError
from dally.jobs.job import Job
from dally.profiles.costs import CostModel
from dally.runs.records import JobRecord
from dally.runs.summary import Summary, summarise
from testbed.fidelity.attribution import ComparedInterval, ErrorParts, attribute
from testbed.fidelity.chance import Chance, chance
from testbed.fidelity.live_run import LiveInterval, LiveRun
from testbed.fidelity.simulated_run import SimulatedRun, load_again, policy_again, simulate_again
from testbed.fidelity.slowdowns import HeldSpan, TimedSpan, predict_slowdowns, spans_by_job
from testbed.running.live_job import allocation_of

JOB_TARGET, MAKESPAN_TARGET = 0.10, 0.05
"""What is asked of the simulator: mean absolute error of completion times, error of the makespan."""


@dataclass(frozen=True, slots=True)
class JobComparison:
    """One job in both worlds.

    Attributes:
        real: What became of it.
        simulated: What the simulator said.
        parts: Where the difference comes from.
        intervals: Its real intervals with their predictions.
        levels: Levels of the tree at which it really ran, in order.
        simulated_levels: Those of the simulation.
        first_start_s: Predicted cost of its first start, seconds.
        restart_s: Predicted cost of each later one, seconds.
    """

    real: JobRecord
    simulated: JobRecord
    parts: ErrorParts
    intervals: Sequence[ComparedInterval]
    levels: Sequence[str]
    simulated_levels: Sequence[str]
    first_start_s: float
    restart_s: float

    @property
    def error(self) -> float:
        """Simulated over real completion time, less 1."""
        return self.simulated.jct_s / self.real.jct_s - 1

    @property
    def run_error(self) -> float:
        """Predicted over real time of holding GPUs, less 1; no decision of the simulator is in it."""
        return self.predicted_run_s / self.run_s - 1

    @property
    def predicted_run_s(self) -> float:
        """Predicted time of holding GPUs, given where, when and beside which jobs it really ran, seconds."""
        starts_s = self.first_start_s + self.restart_s * (len(self.intervals) - 1)
        return starts_s + sum(item.interval.steps * item.shared_s for item in self.intervals)

    @property
    def run_s(self) -> float:
        """Real time of holding GPUs."""
        return fsum(item.span.end_s - item.span.start_s for item in self.intervals)

    def expected_startup_s(self, interval: ComparedInterval) -> float:
        """Predicted seconds from an interval's start to its first step."""
        return self.restart_s if interval.interval.number else self.first_start_s

    @property
    def wait_s(self) -> tuple[float, float]:
        """From submission to first start, real and simulated."""
        assert self.real.start_s is not None
        assert self.simulated.start_s is not None
        return self.real.start_s - self.real.submit_s, self.simulated.start_s - self.simulated.submit_s


@dataclass(frozen=True, slots=True)
class Comparison:
    """A live run and its simulation.

    Attributes:
        run: The live run.
        contention: Whether the simulation let jobs slow each other.
        jobs: The jobs that completed in both, worst error first.
        left_out: All others, and why.
        gpus: GPUs of the cluster.
        real: Summary of the compared jobs.
        simulated: The same of the simulation.
        chance: How far simulations are apart whose running times vary as real ones did.
        real_spans: All real intervals.
        simulated_spans: All simulated ones.
    """

    run: LiveRun
    contention: bool
    jobs: Sequence[JobComparison]
    left_out: Mapping[str, str]
    gpus: int
    real: Summary
    simulated: Summary
    chance: Chance
    real_spans: Sequence[HeldSpan]
    simulated_spans: Sequence[HeldSpan]

    @property
    def job_error(self) -> float:
        """Mean over the jobs of the absolute error of the completion time: the headline."""
        return fsum(abs(job.error) for job in self.jobs) / len(self.jobs)

    @property
    def run_error(self) -> float:
        """Mean over the jobs of the absolute error of the running time, given the real placements."""
        return _run_error(self.jobs)

    @property
    def makespan_error(self) -> float:
        """Simulated over real makespan, less 1."""
        return self.simulated.makespan_s / self.real.makespan_s - 1


def compare(run: LiveRun, contention: bool) -> Comparison:
    """Simulate a live run again, with or without contention, and hold the two against each other.

    Raises:
        InputError: The run's inputs are wrong, or no job completed in both worlds.
    """
    scenario = load_again(run, contention)
    simulated = simulate_again(run, scenario)
    costs = simulated.costs
    left_out = {
        job_id: reason
        for job_id in dict.fromkeys([*simulated.jobs, *run.records])
        if (reason := _why_not(job_id, run, simulated))
    }
    real_spans = [
        _span(simulated.jobs[job_id], interval, allocation)
        for job_id, intervals in run.intervals.items()
        if job_id in simulated.jobs
        for interval in intervals
        if (allocation := allocation_of(interval.gpus, costs.topology))
    ]
    real_jobs = spans_by_job(real_spans, predict_slowdowns(real_spans, costs, contention))
    simulated_jobs = spans_by_job(simulated.spans, predict_slowdowns(simulated.spans, costs, contention))
    jobs = [
        _job(simulated, run, job, real_jobs[job_id], simulated_jobs[job_id])
        for job_id, job in simulated.jobs.items()
        if job_id not in left_out
    ]
    if not jobs:
        first = "; ".join(f"{job_id} {reason}" for job_id, reason in [*left_out.items()][:2])
        raise InputError(f"{run.folder}: no job completed in both worlds ({first})")
    gpus = costs.topology.gpus
    return Comparison(
        run=run,
        contention=contention,
        jobs=sorted(jobs, key=lambda job: -abs(job.error)),
        left_out=left_out,
        gpus=gpus,
        real=_summary([job.real for job in jobs], gpus),
        simulated=_summary([job.simulated for job in jobs], gpus),
        chance=chance(scenario, policy_again(run), _run_error(jobs)),
        real_spans=real_spans,
        simulated_spans=simulated.spans,
    )


def _run_error(jobs: Sequence[JobComparison]) -> float:
    return fsum(abs(job.run_error) for job in jobs) / len(jobs)


def _why_not(job_id: str, run: LiveRun, simulated: SimulatedRun) -> str:
    """Why a job cannot be compared; empty if it can."""
    record = run.records.get(job_id)
    topology = simulated.costs.topology
    if job_id not in simulated.jobs:
        return "is not in the workload"
    if record is None:
        return "is in the workload, but not in the run's jobs.csv"
    if record.status != "COMPLETED" or record.end_s is None or record.start_s is None:
        return f"really ended as {record.status}"
    if record.jct_s <= 0:
        return f"ended {-record.jct_s:g} s before its submission"
    if sum(interval.kept_steps for interval in run.intervals.get(job_id, ())) <= 0:
        return "completed, but no step of it was recorded"
    if any(not allocation_of(interval.gpus, topology) for interval in run.intervals[job_id]):
        return "ran on GPUs that the run does not tell, or that are not in its cluster"
    if simulated.records[job_id].status != "COMPLETED":
        return f"ended as {simulated.records[job_id].status} in the simulation"
    return ""


def _span(job: Job, interval: LiveInterval, allocation: Allocation) -> HeldSpan:
    """A real interval as the predictor sees it: it trains from the beginning of its first step."""
    begin_s = interval.end_s
    if interval.first_step_s is not None:
        begin_s = max(interval.start_s, interval.first_step_s - (interval.step_s or 0.0))
    return HeldSpan(job, allocation, interval.start_s, begin_s, interval.end_s, begin_s)


def _job(
    simulated: SimulatedRun,
    run: LiveRun,
    job: Job,
    real_timed: Sequence[TimedSpan],
    simulated_timed: Sequence[TimedSpan],
) -> JobComparison:
    job_id, costs = job.job_id, simulated.costs
    # A job's `duration_s` is its steps at the best placement, so this is the predicted step there.
    best_s = job.duration_s / sum(interval.kept_steps for interval in run.intervals[job_id])
    intervals = [
        ComparedInterval(interval, span, best_s * slowdown.alone, best_s * slowdown.shared)
        for interval, (span, slowdown) in zip(run.intervals[job_id], real_timed, strict=True)
    ]
    real, other = run.records[job_id], simulated.records[job_id]
    return JobComparison(
        real=real,
        simulated=other,
        parts=attribute(job, real, intervals, other, simulated_timed),
        intervals=intervals,
        levels=_levels(costs, real_timed),
        simulated_levels=_levels(costs, simulated_timed),
        first_start_s=costs.launch_s(job),
        restart_s=costs.restart_s(job),
    )


def _levels(costs: CostModel, timed: Sequence[TimedSpan]) -> list[str]:
    topology = costs.topology
    return [topology.levels[topology.level_of(span.allocation)] for span, _ in timed]


def _summary(records: Sequence[JobRecord], gpus: int) -> Summary:
    return summarise(records, gpus, max(record.end_s or 0.0 for record in records))
