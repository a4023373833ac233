"""What the script of the page of advice draws, packed."""

from collections.abc import Iterable

from analysis.advise.advice import Advice, PolicyComparison
from analysis.advise.calibration import Calibration
from analysis.advise.verdicts import changes
from analysis.report.bins import over
from analysis.report.figures import distribution
from analysis.report.packing import Pack

QUEUE_TIMES = 150
"""Bins of the queue over time."""

REAL = ("really", "simulated")


def pack_drawing(advice: Advice) -> str:
    """Everything that the script draws."""
    pack = Pack()
    pack.value("compared", _compared(advice.concluded) if advice.concluded else None)
    pack.value("calibration", _calibration(advice.calibration) if advice.calibration else None)
    return pack.text()


def _compared(found: PolicyComparison) -> dict[str, object]:
    """Completion and waiting times under today's scheduler and Dally, and whose change by how much."""
    pair = found.pairs[0]
    return {
        "runs": ["today", "Dally"],
        "completion": [distribution(each.jct_s) for each in (pair.today, pair.dally)],
        "waiting": [distribution(each.wait_s) for each in (pair.today, pair.dally)],
        "changes": [
            {"name": name, "change": 100 * each.change, "least": 100 * each.least, "most": 100 * each.most}
            for name, each in changes(found)
        ],
    }


def _calibration(found: Calibration) -> dict[str, object]:
    """Waits and the queue over time, as they were and as simulated; in the form of the report's figures."""
    waits_s = (found.real_wait_s, found.wait_s)
    end_s = max(float((found.submit_s + wait_s).max()) for wait_s in waits_s)
    bins = over(float(found.submit_s.min()), end_s, QUEUE_TIMES)

    def queue(starts_s: Iterable[float]) -> dict[str, list[float]]:
        spans = list(zip(found.submit_s.tolist(), starts_s, strict=True))
        return {"waiting": [round(float(value), 3) for value in bins.mean(spans)]}

    return {
        "runs": REAL,
        "waiting": [distribution(wait_s) for wait_s in waits_s],
        "usage": [queue((found.submit_s + wait_s).tolist()) for wait_s in waits_s],
        "usage_times_s": bins.centres_s,
        "bins": {"begin_s": bins.begin_s, "width_s": bins.width_s, "count": bins.count},
    }
