"""Takes the error of a job's completion time apart: which part of it came from what.

The parts of a job add up to its real completion time minus the simulated one, whatever the parts are:

    real JCT - simulated JCT = waiting + waiting again + starting + restarts + lost steps
                               + step times + neighbours + placement + rest
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass

from dally.jobs.job import Job
from dally.runs.records import JobRecord
from testbed.fidelity.live_run import LiveInterval
from testbed.fidelity.pace import HeldSpan, Pace


@dataclass(frozen=True, slots=True)
class Parts:
    """Seconds by which a job really took longer than simulated, by their cause; negative: shorter.

    Attributes:
        waiting_s: From submission to the first start.
        requeued_s: After that, outside of all stretches of running: between them.
        starting_s: From the first start to the beginning of the first step, against the profile's start cost.
        restarts_s: The same of all later starts, with those that only one of the two worlds had.
        lost_steps_s: Steps done again because no checkpoint held them, at the predicted pace.
        step_times_s: Steps, against the prediction for where they ran and beside whom.
        neighbours_s: What sharing links was predicted to cost there, against what it cost in the simulation.
        placement_s: What the GPUs were predicted to cost alone, against those the simulator gave.
        rest_s: The named remainder: steps beyond their median, checkpoints written, the job's ending.
    """

    waiting_s: float
    requeued_s: float
    starting_s: float
    restarts_s: float
    lost_steps_s: float
    step_times_s: float
    neighbours_s: float
    placement_s: float
    rest_s: float

    @property
    def total_s(self) -> float:
        """Real minus simulated completion time."""
        return float(sum(asdict(self).values()))


@dataclass(frozen=True, slots=True)
class RealStretch:
    """A real stretch with what was predicted for it.

    Attributes:
        stretch: What happened.
        span: The same as the predictor sees it.
        pace: The predicted pace.
        alone_s: Predicted step on these GPUs with the links to itself, seconds.
        shared_s: Predicted step beside the jobs that really ran at that time, seconds.
    """

    stretch: LiveInterval
    span: HeldSpan
    pace: Pace
    alone_s: float
    shared_s: float

    @property
    def real_step_s(self) -> float:
        """Median time of a step; the predicted one where none was timed."""
        return self.shared_s if self.stretch.step_s is None else self.stretch.step_s

    @property
    def kept_steps(self) -> int:
        """Its steps that were not done again."""
        return self.stretch.steps - self.stretch.lost_steps

    @property
    def rest_s(self) -> float:
        """What is left of the stretch beside starting up and its steps at their median."""
        whole_s = self.span.end_s - self.span.start_s
        return whole_s - self.span.startup_s - self.stretch.steps * self.real_step_s


@dataclass(frozen=True, slots=True)
class RealLife:
    """What a job really went through."""

    record: JobRecord
    stretches: Sequence[RealStretch]


@dataclass(frozen=True, slots=True)
class SimulatedLife:
    """What a job went through in the simulation."""

    record: JobRecord
    stretches: Sequence[tuple[HeldSpan, Pace]]


def kept_steps(stretches: Sequence[LiveInterval]) -> int:
    """The steps that a job's stretches brought it forward."""
    return sum(stretch.steps - stretch.lost_steps for stretch in stretches)


def with_predictions(
    job: Job, stretches: Sequence[LiveInterval], timed: Sequence[tuple[HeldSpan, Pace]]
) -> list[RealStretch]:
    """Real stretches of a completed job with their predicted steps.

    A job's `duration_s` is its steps at the best placement, so a predicted step is `duration_s` over the
    steps, times the slowdown.

    Args:
        job: The job.
        stretches: Its stretches, with at least one step kept.
        timed: The same stretches, with their predicted paces.
    """
    best_s = job.duration_s / kept_steps(stretches)
    return [
        RealStretch(stretch, span, pace, alone_s=best_s * pace.alone, shared_s=best_s * pace.shared)
        for stretch, (span, pace) in zip(stretches, timed, strict=True)
    ]


def attribute(job: Job, real: RealLife, simulated: SimulatedLife) -> Parts:
    """The parts of a job's error; the module says what they add up to."""
    ran = real.stretches
    simulated_spans = [span for span, _ in simulated.stretches]
    wait_s, again_s = _waits(real.record, [item.span for item in ran])
    simulated_wait_s, simulated_again_s = _waits(simulated.record, simulated_spans)
    training_s, training_alone_s = _simulated_training(job, simulated)
    kept_alone_s = sum(item.kept_steps * item.alone_s for item in ran)
    kept_shared_s = sum(item.kept_steps * item.shared_s for item in ran)
    return Parts(
        waiting_s=wait_s - simulated_wait_s,
        requeued_s=again_s - simulated_again_s,
        starting_s=ran[0].span.startup_s - simulated_spans[0].startup_s,
        restarts_s=sum(item.span.startup_s for item in ran[1:])
        - sum(span.startup_s for span in simulated_spans[1:]),
        lost_steps_s=sum(item.stretch.lost_steps * item.shared_s for item in ran),
        step_times_s=sum(item.stretch.steps * (item.real_step_s - item.shared_s) for item in ran),
        neighbours_s=(kept_shared_s - kept_alone_s) - (training_s - training_alone_s),
        placement_s=kept_alone_s - training_alone_s,
        rest_s=sum(item.rest_s for item in ran),
    )


def predicted_run_s(real: RealLife, first_start_s: float, restart_s: float) -> float:
    """How long the job was predicted to hold GPUs, given where, when and beside whom it really ran.

    Args:
        real: What happened.
        first_start_s: Predicted cost of the first start, seconds.
        restart_s: Predicted cost of each later one, seconds.
    """
    starts_s = first_start_s + restart_s * (len(real.stretches) - 1)
    return starts_s + sum(item.stretch.steps * item.shared_s for item in real.stretches)


def _waits(record: JobRecord, spans: Sequence[HeldSpan]) -> tuple[float, float]:
    """Waiting before the first start, and all later time outside of the stretches, seconds."""
    first_s = spans[0].start_s - record.submit_s
    return first_s, record.jct_s - first_s - sum(span.end_s - span.start_s for span in spans)


def _simulated_training(job: Job, simulated: SimulatedLife) -> tuple[float, float]:
    """Seconds that the simulation trained, and would have trained on the same GPUs with no one beside."""
    lasted = [(span.end_s - span.training_s, pace) for span, pace in simulated.stretches]
    work_s = [seconds / pace.shared for seconds, pace in lasted]
    scale = job.duration_s / (sum(work_s) or 1.0)
    alone_s = sum(done_s * scale * pace.alone for done_s, (_, pace) in zip(work_s, lasted, strict=True))
    return sum(seconds for seconds, _ in lasted), alone_s
