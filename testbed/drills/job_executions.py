"""What really happened to the jobs of a run, as they wrote it down themselves on the nodes where they ran."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from testbed.running.folder import OBSERVED, RunInputs, job_path, read_text
from testbed.running.intervals import Step, read_script_log, read_steps
from testbed.running.observer import read_observations
from testbed.running.script import SCRIPT_LOG, STEPS


@dataclass(frozen=True, slots=True)
class ScriptRun:
    """A time in which a job's script ran; in seconds since 1970.

    Attributes:
        job: The job.
        start_s: Its begin.
        end_s: Its end; of a script that was killed, the last that was heard of it.
        gpus: By node.
        code: Exit code; None if it was killed.
    """

    job: str
    start_s: float
    end_s: float
    gpus: Mapping[str, int]
    code: int | None


@dataclass(frozen=True, slots=True)
class JobExecution:
    """One job.

    Attributes:
        job: Its id.
        steps: How many it was to do.
        state: The last that Slurm said of it, in its words; empty if it never saw it.
        runs: In the order of their begins.
        done: Its steps, in the order in which they were written down.
    """

    job: str
    steps: int
    state: str
    runs: Sequence[ScriptRun]
    done: Sequence[Step]


def read_executions(folder: Path, inputs: RunInputs) -> list[JobExecution]:
    """The executions of all jobs of a run folder."""
    states = {observed.job: observed.name for observed in read_observations(folder / OBSERVED)}
    found = []
    for plan in inputs.plans:
        job_id = plan.job.job_id
        script_log, step_log = (read_text(job_path(folder, job_id) / file) for file in (SCRIPT_LOG, STEPS))
        found.append(build_execution(job_id, plan.steps, states.get(job_id, ""), script_log, step_log))
    return found


def build_execution(job: str, steps: int, state: str, script_log: str, step_log: str) -> JobExecution:
    """One job's execution, from what its script and its steps wrote down and Slurm said of it last.

    Each start of the script belongs with the first end after it that is before the next start with the same
    count of restarts.
    """
    done = read_steps(step_log)
    entries = read_script_log(script_log)
    runs = []
    for place, entry in enumerate(entries):
        if entry.gpus is None:
            continue
        later = entries[place + 1 :]
        own = next((one for one in later if one.restart == entry.restart), entry)
        after_s = next((one.t for one in later if one.gpus is not None), float("inf"))
        heard_s = [step.end_s for step in done if entry.t <= step.end_s < after_s]
        end_s = own.t if own.code is not None else max([entry.t, *heard_s])
        runs.append(ScriptRun(job, entry.t, end_s, entry.gpus, own.code))
    return JobExecution(job, steps, state, runs, done)


def steps_out_of_order(execution: JobExecution) -> list[int]:
    """Steps that cannot have followed on the one before them, so that the job ran twice at that time.

    A run of the script goes on from its checkpoint one step after the other; only its first may be any step
    that is not beyond what was done before.
    """
    odd = []
    begins = [run.start_s for run in execution.runs]
    for before, step in pairwise(execution.done):
        new = any(before.end_s < begin_s <= step.end_s for begin_s in begins)
        if step.number != before.number + 1 and not (new and step.number <= before.number + 1):
            odd.append(step.number)
    return odd
