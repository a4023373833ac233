"""What the page of advice shows, put together in the report's style."""

from collections.abc import Iterable
from importlib import resources

from analysis.advise import sentences, tables
from analysis.advise.advice import Advice, PolicyComparison
from analysis.advise.calibration import Calibration
from analysis.report.figures import TimeBins, distribution
from analysis.report.packing import Pack
from analysis.report.page import SHARED_SCRIPTS, assemble, asset
from dally.jobs.priority import DEFAULT_RATIO

QUEUE_TIMES = 150
"""Bins of the queue over time."""

REAL = ("really", "simulated")


def pack_data(advice: Advice) -> str:
    """Everything that the script draws: what Dally changes, and the waits as they were and as simulated."""
    pack = Pack()
    compared = None
    if found := advice.concluded:
        pair = found.pairs[0]
        compared = {
            "runs": ["today", "Dally"],
            "completion": [distribution(each.jct_s) for each in (pair.today, pair.dally)],
            "waiting": [distribution(each.wait_s) for each in (pair.today, pair.dally)],
            "changes": [
                {
                    "name": name,
                    "change": 100 * each.change,
                    "least": 100 * each.least,
                    "most": 100 * each.most,
                }
                for name, each in sentences.changes(found)
            ],
        }
    pack.value("compared", compared)
    pack.value("calibration", _calibration(advice.calibration) if advice.calibration else None)
    return pack.text()


def _calibration(found: Calibration) -> dict[str, object]:
    """Waits and the queue over time, as they were and as simulated; in the form of the report's figures."""
    waits_s = (found.real_wait_s, found.wait_s)
    end_s = max(float((found.submit_s + wait_s).max()) for wait_s in waits_s)
    bins = TimeBins.between(float(found.submit_s.min()), end_s, QUEUE_TIMES)

    def queue(starts_s: Iterable[float]) -> dict[str, list[float]]:
        spans = list(zip(found.submit_s.tolist(), starts_s, strict=True))
        return {"waiting": [round(float(value), 3) for value in bins.mean_count(spans)]}

    return {
        "runs": REAL,
        "waiting": [distribution(wait_s) for wait_s in waits_s],
        "usage": [queue((found.submit_s + wait_s).tolist()) for wait_s in waits_s],
        "usage_times_s": bins.centres_s,
        "bins": {"begin_s": bins.begin_s, "width_s": bins.width_s, "count": bins.count},
    }


_PAGE = resources.files("analysis.advise") / "page"


def render(advice: Advice) -> str:
    """The advice as HTML that fetches nothing."""
    template, script = ((_PAGE / name).read_text("utf-8") for name in ("advice.html", "advice.js"))
    found, workload = advice.calibration, advice.site.history.workload
    return assemble(
        template,
        [*map(asset, SHARED_SCRIPTS), script],
        setting=sentences.setting_line(advice),
        calibration=list(sentences.calibration_lines(advice)),
        calibrated=found is not None,
        title=sentences.title(advice),
        lines=sentences.finding_lines(advice),
        tried=sentences.tried_lines(found) if found else [],
        waits=tables.calibration_table(found) if found else None,
        compared=_compared(advice, advice.concluded) if advice.concluded else None,
        assumptions=list(sentences.assumption_lines(advice)),
        limits=list(sentences.limit_lines(advice)),
        origin=f"{workload.source} (SHA-256 {workload.sha256[:12]}), from {workload.origin}",
        data=pack_data(advice),
    )


def _compared(advice: Advice, found: PolicyComparison) -> dict[str, object]:
    """What the page shows of Dally against today's scheduler."""
    by_kind = {
        "By size": found.effects.sizes,
        "By group": found.effects.groups,
        "By user": found.effects.users,
        "Groups and users who would lose": found.effects.losers,
    }
    return {
        "headline": tables.headline_table(advice.today, found),
        "effects": [(name, tables.effect_table(effects)) for name, effects in by_kind.items() if effects],
        "settings": tables.settings_table(found),
        "asks": [(setting.policy, setting.asks) for setting, _ in found.settings if setting.asks],
        "start": list(sentences.settings_lines(advice, found)),
        "default_ratio": f"{DEFAULT_RATIO:g}",
        "ratios": tables.ratio_table(found) if found.ratios else None,
        "segments": tables.segments_table(advice.site, advice.today, found) if found.rules else None,
        "rules": list(sentences.segment_lines(advice, found)),
    }
