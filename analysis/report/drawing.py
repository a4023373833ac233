"""What the page's script draws: the figures' numbers and the list of jobs, packed."""

from collections.abc import Sequence

from analysis.report import figures
from analysis.report.bins import Bins, over
from analysis.report.heatmap import draw_heatmap
from analysis.report.packing import Pack
from analysis.report.seen import SeenRun
from analysis.report.stories import BLOCK
from analysis.report.verdict import Verdict
from dally.runs.records import JobRecord

MAP_TIMES, USAGE_TIMES, TIMER_TIMES = 300, 120, 60
"""Bins of the map, of usage over time, of the timers."""


def pack_drawing(seen: Sequence[SeenRun], jobs: Sequence[JobRecord], verdict: Verdict) -> str:
    """Everything that the script draws, but for the stories; arrays of a run begin with its place."""
    pack = Pack()
    pack.value("runs", [each.run.name for each in seen])
    pack.value("best", verdict.best)
    pack.value("rival", verdict.rival)
    pack.value("folders", [str(each.run.folder) for each in seen])
    pack.value("story_block", BLOCK)
    _pack_jobs(pack, jobs)
    for place, each in enumerate(seen):
        _pack_records(pack, place, each.records)
    _pack_distributions(pack, seen)
    _pack_times(pack, seen, min(record.submit_s for record in jobs))
    return pack.text()


def _pack_jobs(pack: Pack, jobs: Sequence[JobRecord]) -> None:
    pack.texts("job.id", [job.job_id for job in jobs])
    for name in ("user", "group", "model"):
        pack.chosen(f"job.{name}", [getattr(job, name) for job in jobs])
    pack.array("job.gpus", [job.gpus for job in jobs], "u4")
    pack.array("job.submit_s", [job.submit_s for job in jobs], "f4")


def _pack_records(pack: Pack, place: int, records: Sequence[JobRecord | None]) -> None:
    for name in ("ideal_s", "run_s", "queue_s", "comm_s"):
        pack.array(f"{place}.{name}", [getattr(each, name) if each else 0 for each in records], "f4")
    for name in ("preemptions", "failures"):
        pack.array(f"{place}.{name}", [getattr(each, name) if each else 0 for each in records], "u4")
    for name in ("status", "levels"):
        pack.chosen(f"{place}.{name}", [getattr(each, name) if each else "" for each in records])


def _pack_distributions(pack: Pack, seen: Sequence[SeenRun]) -> None:
    done = [[record for record in each.run.records if record.status == "COMPLETED"] for each in seen]
    pack.value("completion", [figures.distribution(record.jct_s for record in each) for each in done])
    pack.value("waiting", [figures.distribution(record.queue_s for record in each) for each in done])
    pack.value("preemption_classes", figures.preemption_classes())
    pack.value("preempted_jobs", [figures.preempted_jobs(each.run.records) for each in seen])


def _pack_times(pack: Pack, seen: Sequence[SeenRun], begin_s: float) -> None:
    """What has an axis of time: the same for all runs, from the first submission to the last end."""
    end_s = max(each.run.end_s for each in seen)
    levels = seen[0].history.levels
    usage_bins, timer_bins = over(begin_s, end_s, USAGE_TIMES), over(begin_s, end_s, TIMER_TIMES)
    pack.value("levels", levels)
    pack.value("usage_times_s", usage_bins.centres_s)
    pack.value("usage", [figures.usage(each.history, each.run.cluster["gpus"], usage_bins) for each in seen])
    pack.value("timer_times_s", timer_bins.centres_s)
    timers = [figures.timers_over_time(each.history.timers, len(levels), timer_bins) for each in seen]
    pack.value("timers", timers)
    _pack_maps(pack, seen, over(begin_s, end_s, MAP_TIMES))


def _pack_maps(pack: Pack, seen: Sequence[SeenRun], bins: Bins) -> None:
    pack.value("bins", {"begin_s": bins.begin_s, "width_s": bins.width_s, "count": bins.count})
    maps = []
    for place, each in enumerate(seen):
        heatmap = draw_heatmap(each.history, each.run.topology, bins)
        rows = heatmap.rows
        maps.append({"unit": rows.unit, "names": rows.names, "groups": rows.groups, "racks": rows.racks})
        pack.array(f"{place}.map.level", heatmap.level, "u1")
        pack.array(f"{place}.map.percent", heatmap.percent, "u1")
        pack.array(f"{place}.map.job", heatmap.job, "i4")
    pack.value("maps", maps)
