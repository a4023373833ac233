"""A comparison in sentences: the headline, where a job's error comes from, what was decided differently."""

from collections.abc import Sequence
from dataclasses import asdict
from itertools import groupby
from statistics import fmean

from dally.words import plural, share
from testbed.fidelity.chance import SIMULATIONS
from testbed.fidelity.comparison import JOB_TARGET, MAKESPAN_TARGET, Comparison, JobComparison

_LEAST_SHARE, _LEAST_S = 0.1, 0.1
"""A part is named only if it is at least this share of all the job's parts, and this many seconds."""

_MAIN = 0.1

CAUSES = {
    "waiting_s": ("waiting", "from submission to the first start"),
    "requeued_s": ("waiting again", "for later starts, after a preemption"),
    "starting_s": ("starting", "from the first start to the first step, against the profile's start cost"),
    "restarts_s": ("restarts", "the same of later starts"),
    "lost_steps_s": ("lost steps", "done again, no checkpoint held them"),
    "step_times_s": ("step times", "against the prediction for these GPUs, beside those jobs"),
    "neighbours_s": ("neighbours", "sharing links, as predicted for the real times and for the simulated"),
    "placement_s": ("placement", "the GPUs it got, as predicted for the real ones and for the simulated"),
    "rest_s": ("rest", "steps beyond their median, checkpoints, the job's ending"),
}
"""The parts of an error: heading and meaning."""

_LONGER_SHORTER = {
    "waiting_s": ("waited {} longer for its first start", "waited {} less for its first start"),
    "requeued_s": ("waited {} longer for its later starts", "waited {} less for its later starts"),
    "starting_s": ("took {} longer to its first step", "took {} less to its first step"),
    "restarts_s": ("spent {} more on restarts", "spent {} less on restarts"),
    "lost_steps_s": ("did {} of steps again", "did {} of steps again"),
    "step_times_s": ("its steps took {} longer than predicted", "its steps took {} less than predicted"),
    "neighbours_s": ("lost {} more to jobs on the same links", "lost {} less to jobs on the same links"),
    "placement_s": ("its GPUs lay {} worse", "its GPUs lay {} better"),
    "rest_s": ("spent {} on slow steps, checkpoints and ending", "steps beside the median were {} faster"),
}


def headline(comparison: Comparison) -> str:
    """How wrong the simulator was, against what is asked of it."""
    worst, jobs = comparison.jobs[0], len(comparison.jobs)
    return (
        f"{comparison.run.policy}: {jobs} of {plural(jobs + len(comparison.left_out), 'job')} compared. "
        f"Completion time of a job: {share(comparison.job_error, 1)} off in the mean "
        f"({_against(comparison.job_error, JOB_TARGET)}), {share(abs(worst.error), 1)} at most "
        f"({worst.real.job_id}). Makespan: {100 * comparison.makespan_error:+.1f} % "
        f"({_against(abs(comparison.makespan_error), MAKESPAN_TARGET)})."
    )


def chance_alone(comparison: Comparison) -> str:
    """How much of the error is to be expected from any simulator."""
    found = comparison.chance
    return (
        f"Chance alone: {SIMULATIONS} simulations whose running times vary by {share(found.run_error, 1)}, "
        f"as real ones did, differ from each other by {share(found.job_error, 1)} in the completion time "
        f"of a job and by {share(found.makespan_error, 1)} in the makespan."
    )


def model_alone(comparison: Comparison) -> str:
    """How wrong the predictor was where no decision of the simulator is in it."""
    worst = max(comparison.jobs, key=lambda job: abs(job.run_error))
    return (
        "Given the real placements and times, the running time of a job was predicted "
        f"{share(comparison.run_error, 1)} off in the mean, {share(abs(worst.run_error), 1)} at most "
        f"({worst.real.job_id}); what is left of the error above comes from when and where jobs ran."
    )


def cause(job: JobComparison) -> str:
    """What made a job's real life longer or shorter than its simulated one, the most first."""
    parts = asdict(job.parts)
    least_s = max(_LEAST_S, _LEAST_SHARE * sum(map(abs, parts.values())))
    named = [
        name for name in sorted(parts, key=lambda name: -abs(parts[name])) if abs(parts[name]) >= least_s
    ]
    said = [_LONGER_SHORTER[name][parts[name] < 0].format(f"{abs(parts[name]):.1f} s") for name in named]
    return "; ".join([*said, *_decided(job)]) or "as simulated"


def main_causes(comparison: Comparison) -> str:
    """What the differences mostly come from, by the mean size of the parts."""
    sizes = {
        heading: fmean(abs(float(getattr(job.parts, name))) for job in comparison.jobs)
        for name, (heading, _) in CAUSES.items()
    }
    whole_s = sum(sizes.values())
    told = [name for name in sorted(sizes, key=lambda name: -sizes[name]) if sizes[name] >= _MAIN * whole_s]
    if whole_s < _LEAST_S:
        return "Real and simulated lives of the jobs hardly differ."
    shares = ", ".join(f"{name} ({share(sizes[name] / whole_s)})" for name in told)
    return f"The differences come from {shares}, by the mean size of each part."


def decisions(comparison: Comparison) -> str:
    """Which jobs the simulator placed at other levels or preempted another number of times."""
    placed = [job for job in comparison.jobs if [*job.levels] != [*job.simulated_levels]]
    taken = [job for job in comparison.jobs if job.real.preemptions != job.simulated.preemptions]
    return (
        f"Decisions: of {plural(len(comparison.jobs), 'job')}, {len(placed)} ran at other "
        "levels than simulated and "
        f"{len(taken)} had another number of preemptions."
    )


def levels(names: Sequence[str]) -> str:
    """Levels in order, repeated ones counted: `rack, machine x2`."""
    runs = [(name, len([*group])) for name, group in groupby(names)]
    return ", ".join(f"{name} x{count}" if count > 1 else name for name, count in runs)


def _decided(job: JobComparison) -> list[str]:
    said = [f"was hit by failures {plural(job.real.failures, 'time')}"] if job.real.failures else []
    if job.real.preemptions != job.simulated.preemptions:
        said.append(f"was preempted {plural(job.real.preemptions, 'time')}, not {job.simulated.preemptions}")
    elif [*job.levels] != [*job.simulated_levels]:
        said.append(f"ran at {levels(job.levels)}, not {levels(job.simulated_levels)}")
    return said


def _against(error: float, target: float) -> str:
    return f"asked: {share(target)} or less, {'met' if error <= target else 'not met'}"
