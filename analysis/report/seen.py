"""Runs whose events are folded: what happened, the jobs by number, the stories."""

from collections.abc import Sequence
from dataclasses import dataclass

from analysis.report.history import RunHistory
from analysis.report.runs import WholeRun
from analysis.report.stories import Stories
from dally.runs.records import JobRecord


@dataclass(frozen=True, slots=True)
class SeenRun:
    """A run and what its events came to.

    Attributes:
        run: The run.
        history: Who held and waited when.
        records: Its records by the jobs' numbers; None for a job that an incomplete run never saw.
        stories: The stories by the jobs' numbers.
    """

    run: WholeRun
    history: RunHistory
    records: Sequence[JobRecord | None]
    stories: Sequence[str]


def number_jobs(runs: Sequence[WholeRun]) -> list[JobRecord]:
    """All jobs by submission, as the first run that has them tells; their places are their numbers."""
    jobs = {record.job_id: record for run in reversed(runs) for record in run.records}
    return sorted(jobs.values(), key=lambda record: record.submit_s)


def see(runs: Sequence[WholeRun], jobs: Sequence[JobRecord]) -> list[SeenRun]:
    """Fold the events of runs.

    Raises:
        InputError: They are cut off or wrong.
    """
    numbers = {record.job_id: number for number, record in enumerate(jobs)}
    levels = list(dict.fromkeys(level for run in runs for level in run.cluster["levels"]))
    return [_fold(run, numbers, levels) for run in runs]


def _fold(run: WholeRun, numbers: dict[str, int], levels: list[str]) -> SeenRun:
    machines = {machine.name: machine.gpus for machine in run.topology.machines} if run.topology else None
    history, stories = RunHistory(levels, numbers, machines), Stories(numbers)
    for event in run.events():
        history.see(event)
        stories.see(event)
    history.close(run.end_s)
    records = {record.job_id: record for record in run.records}
    return SeenRun(run, history, [records.get(job_id) for job_id in numbers], stories.texts())
