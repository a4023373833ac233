"""Everything a report shows: each run's events folded once, then the numbers of figures and tables."""

from collections.abc import Sequence
from dataclasses import dataclass

from analysis.report.drawing import pack_drawing
from analysis.report.models import ModelPlacements, gpu_time_by_model, levels_by_model
from analysis.report.runs import WholeRun
from analysis.report.seen import number_jobs, see
from analysis.report.stories import pack_stories
from analysis.report.tables import ReportTable, headline_table, preemption_table, timer_table
from analysis.report.verdict import Verdict, judge, origin, setting, warnings


@dataclass(frozen=True, slots=True)
class ReportView:
    """What the page's template and script are given.

    Attributes:
        verdict: Who was best.
        setting: What was run.
        warnings: What a reader must know.
        headline: The runs in numbers.
        levels: Names of the levels.
        placements: For each model and run the share of GPU time at each level.
        timers: What the timers came to; no rows if nobody set any.
        preemptions: What preemption did.
        origin: Where the jobs came from.
        folders: The run folders.
        data: What the script draws, packed.
        stories: For each run, the packed stories of its jobs.
        left_out: How many jobs have no story, for want of room.
    """

    verdict: Verdict
    setting: str
    warnings: Sequence[str]
    headline: ReportTable
    levels: Sequence[str]
    placements: Sequence[ModelPlacements]
    timers: ReportTable
    preemptions: ReportTable
    origin: str
    folders: Sequence[str]
    data: str
    stories: Sequence[Sequence[str]]
    left_out: int


def look_at(runs: Sequence[WholeRun]) -> ReportView:
    """Fold the runs' events and work out all that the report shows.

    Raises:
        InputError: A run's events are cut off or wrong.
    """
    jobs = number_jobs(runs)
    seen = see(runs, jobs)
    histories = {each.run.name: each.history for each in seen}
    levels = seen[0].history.levels
    by_model = {each.run.name: gpu_time_by_model(each.history, each.records) for each in seen}
    waited_s = [
        sum(record.queue_s for record in records if record is not None)
        for records in zip(*(each.records for each in seen), strict=True)
    ]
    stories, left_out = pack_stories([each.stories for each in seen], waited_s)
    verdict = judge(runs)
    return ReportView(
        verdict=verdict,
        setting=setting(runs),
        warnings=list(warnings(runs)),
        headline=headline_table(runs),
        levels=levels,
        placements=levels_by_model(by_model, len(levels)),
        timers=timer_table(histories),
        preemptions=preemption_table(runs, histories),
        origin=origin(runs),
        folders=[str(run.folder) for run in runs],
        data=pack_drawing(seen, jobs, verdict),
        stories=stories,
        left_out=left_out,
    )
