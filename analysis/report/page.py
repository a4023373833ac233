"""Everything that a report shows, and its page: template, style, scripts and data in one file."""

import re
from collections.abc import Iterable, Sequence
from importlib import resources

from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup
from plotly.offline import get_plotlyjs

from analysis.report.figures import (
    TimeBins,
    distribution,
    preempted_jobs,
    preemption_classes,
    timers_over_time,
    usage,
)
from analysis.report.heatmap import draw_heatmap
from analysis.report.history import ReadRun, number_jobs, read_histories
from analysis.report.packing import Pack, deflated
from analysis.report.runs import WholeRun
from analysis.report.tables import (
    MOST_PLANS,
    gpu_time_by_model,
    headline_table,
    levels_by_model,
    plan_table,
    preemption_table,
    timer_table,
)
from analysis.report.timelines import BLOCK, pack_timelines
from analysis.report.verdict import Verdict, origin, setting, warnings
from dally import __version__
from dally.runs.records import JobRecord

MAP_TIMES, USAGE_TIMES, TIMER_TIMES = 300, 120, 60
"""Bins of the map, of usage over time, of the timers."""


def pack_data(runs: Sequence[ReadRun], jobs: Sequence[JobRecord], verdict: Verdict) -> str:
    """Everything that the script draws, but for the timelines; arrays of a run begin with its place."""
    pack = Pack()
    pack.value("runs", [each.run.name for each in runs])
    pack.value("best", verdict.best)
    pack.value("rival", verdict.rival)
    pack.value("folders", [str(each.run.folder) for each in runs])
    pack.value("timeline_block", BLOCK)
    pack.texts("job.id", [job.job_id for job in jobs])
    for name in ("user", "group", "model", "plan"):
        pack.chosen(f"job.{name}", [getattr(job, name) for job in jobs])
    pack.array("job.gpus", [job.gpus for job in jobs], "u4")
    pack.array("job.submit_s", [job.submit_s for job in jobs], "f4")
    for place, each in enumerate(runs):
        for name in ("ideal_s", "run_s", "queue_s", "comm_s"):
            pack.array(f"{place}.{name}", [getattr(job, name) if job else 0 for job in each.records], "f4")
        for name in ("preemptions", "failures"):
            pack.array(f"{place}.{name}", [getattr(job, name) if job else 0 for job in each.records], "u4")
        for name in ("status", "levels"):
            pack.chosen(f"{place}.{name}", [getattr(job, name) if job else "" for job in each.records])
    done = [[record for record in each.run.records if record.status == "COMPLETED"] for each in runs]
    pack.value("completion", [distribution(record.jct_s for record in each) for each in done])
    pack.value("waiting", [distribution(record.queue_s for record in each) for each in done])
    pack.value("preemption_classes", preemption_classes())
    pack.value("preempted_jobs", [preempted_jobs(each.run.records) for each in runs])
    _pack_over_time(pack, runs, min(record.submit_s for record in jobs))
    return pack.text()


def _pack_over_time(pack: Pack, runs: Sequence[ReadRun], begin_s: float) -> None:
    """Pack the figures over time; their axis is the same for all runs, from first submission to last end."""
    end_s = max(each.run.end_s for each in runs)
    levels = runs[0].history.levels
    pack.value("levels", levels)
    bins = TimeBins.between(begin_s, end_s, USAGE_TIMES)
    pack.value("usage_times_s", bins.centres_s)
    pack.value("usage", [usage(each.history, each.run.cluster["gpus"], bins) for each in runs])
    bins = TimeBins.between(begin_s, end_s, TIMER_TIMES)
    pack.value("timer_times_s", bins.centres_s)
    pack.value("timers", [timers_over_time(each.history.timers, len(levels), bins) for each in runs])
    bins = TimeBins.between(begin_s, end_s, MAP_TIMES)
    pack.value("bins", {"begin_s": bins.begin_s, "width_s": bins.width_s, "count": bins.count})
    maps = []
    for place, each in enumerate(runs):
        heatmap = draw_heatmap(each.history, each.run.topology, bins)
        rows = heatmap.rows
        maps.append({"unit": rows.unit, "names": rows.names, "groups": rows.groups, "racks": rows.racks})
        pack.array(f"{place}.map.level", heatmap.level, "u1")
        pack.array(f"{place}.map.percent", heatmap.percent, "u1")
        pack.array(f"{place}.map.job", heatmap.job, "i4")
    pack.value("maps", maps)


_PAGE = resources.files("analysis.report") / "page"
NO_BREAK = "\N{NO-BREAK SPACE}"
SHARED_SCRIPTS = ("unpack.js", "opening.js", "words.js", "figures.js")
_SCRIPTS = (*SHARED_SCRIPTS, "heatmap.js", "jobs.js", "timeline.js", "main.js")


def render(runs: Sequence[WholeRun], verdict: Verdict) -> str:
    """The report as HTML that fetches nothing.

    Raises:
        InputError: A run's events are cut off or wrong.
    """
    jobs = number_jobs(runs)
    read = read_histories(runs, jobs)
    histories = {each.run.name: each.history for each in read}
    levels = read[0].history.levels
    by_model = {each.run.name: gpu_time_by_model(each.history, each.records) for each in read}
    waited_s = [
        sum(record.queue_s for record in records if record is not None)
        for records in zip(*(each.records for each in read), strict=True)
    ]
    timelines, left_out = pack_timelines([each.timelines for each in read], waited_s)
    return assemble(
        asset("report.html"),
        map(asset, _SCRIPTS),
        verdict=verdict,
        setting=setting(runs),
        warnings=list(warnings(runs)),
        headline=headline_table(runs),
        levels=levels,
        placements=levels_by_model(by_model, len(levels)),
        plans=plan_table(runs),
        plans_shown=MOST_PLANS,
        timers=timer_table(histories),
        preemptions=preemption_table(runs, histories),
        origin=origin(runs),
        folders=[str(run.folder) for run in runs],
        data=pack_data(read, jobs, verdict),
        timelines=timelines,
        jobs_without_timeline=left_out,
    )


def assemble(template: str, scripts: Iterable[str], **values: object) -> str:
    """A page that fetches nothing, with the report's style.

    Args:
        template: Its HTML; it may import `table.html`.
        scripts: What it runs, in order.
        values: What the template is given, beside version, style, script and plotly.
    """
    environment = Environment(
        autoescape=True,
        loader=FunctionLoader(asset),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    # No line may end between a number and its unit.
    environment.filters["unbroken"] = lambda text: re.sub(r"(?<=\d) (?=(?:x|s|min|h|d)\b|%)", NO_BREAK, text)
    return environment.from_string(template).render(
        version=__version__,
        style=Markup(asset("page.css")),  # noqa: S704  ours
        script=Markup("\n".join(scripts)),  # noqa: S704  ours
        plotly=deflated(get_plotlyjs().encode()),
        **values,
    )


def asset(name: str) -> str:
    """The text of one of the page's files."""
    return (_PAGE / name).read_text("utf-8")
