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
from testbed.fidelity.slowdowns import HeldSpan, TimedSpan


@dataclass(frozen=True, slots=True)
class ErrorParts:
    """Seconds by which a job really took longer than simulated, by their cause; negative: shorter.

    Attributes:
        waiting_s: From submission to the first start.
        requeued_s: After that, outside of all intervals of running: between them.
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
class ComparedInterval:
    """A real interval with what was predicted for it.

    Attributes:
        interval: What happened.
        span: The same as the predictor sees it.
        alone_s: Predicted step on these GPUs with the links to itself, seconds.
        shared_s: Predicted step beside the jobs that really ran at that time, seconds.
    """

    interval: LiveInterval
    span: HeldSpan
    alone_s: float
    shared_s: float

    @property
    def real_step_s(self) -> float:
        """Median time of a step; the predicted one where none was timed."""
        return self.shared_s if self.interval.step_s is None else self.interval.step_s

    @property
    def rest_s(self) -> float:
        """What is left of the interval beside starting up and its steps at their median."""
        whole_s = self.span.end_s - self.span.start_s
        return whole_s - self.span.startup_s - self.interval.steps * self.real_step_s


def attribute(
    job: Job,
    real: JobRecord,
    ran: Sequence[ComparedInterval],
    simulated: JobRecord,
    simulated_ran: Sequence[TimedSpan],
) -> ErrorParts:
    """The parts of a job's error; the module says what they add up to."""
    simulated_spans = [span for span, _ in simulated_ran]
    wait_s, again_s = _waits(real, [item.span for item in ran])
    simulated_wait_s, simulated_again_s = _waits(simulated, simulated_spans)
    # Seconds that the simulation trained, and would have trained on the same GPUs with no one beside.
    lasted = [(span.end_s - span.training_s, slowdown) for span, slowdown in simulated_ran]
    training_s = sum(seconds for seconds, _ in lasted)
    work_s = [seconds / slowdown.shared for seconds, slowdown in lasted]
    scale = job.duration_s / (sum(work_s) or 1.0)
    training_alone_s = sum(
        done_s * scale * slowdown.alone for done_s, (_, slowdown) in zip(work_s, lasted, strict=True)
    )
    kept_alone_s = sum(item.interval.kept_steps * item.alone_s for item in ran)
    kept_shared_s = sum(item.interval.kept_steps * item.shared_s for item in ran)
    return ErrorParts(
        waiting_s=wait_s - simulated_wait_s,
        requeued_s=again_s - simulated_again_s,
        starting_s=ran[0].span.startup_s - simulated_spans[0].startup_s,
        restarts_s=sum(item.span.startup_s for item in ran[1:])
        - sum(span.startup_s for span in simulated_spans[1:]),
        lost_steps_s=sum(item.interval.lost_steps * item.shared_s for item in ran),
        step_times_s=sum(item.interval.steps * (item.real_step_s - item.shared_s) for item in ran),
        neighbours_s=(kept_shared_s - kept_alone_s) - (training_s - training_alone_s),
        placement_s=kept_alone_s - training_alone_s,
        rest_s=sum(item.rest_s for item in ran),
    )


def _waits(record: JobRecord, spans: Sequence[HeldSpan]) -> tuple[float, float]:
    """Waiting before the first start, and all later time outside of the intervals, seconds."""
    first_s = spans[0].start_s - record.submit_s
    return first_s, record.jct_s - first_s - sum(span.end_s - span.start_s for span in spans)
