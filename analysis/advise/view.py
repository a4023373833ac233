"""Everything that the page of advice shows: sentences, tables, and what its script draws."""

from collections.abc import Sequence
from dataclasses import dataclass

from analysis.advise import tables, words
from analysis.advise.advice import Advice, PolicyComparison
from analysis.advise.drawing import pack_drawing
from analysis.advise.effects import Effects
from analysis.advise.verdicts import settings_lines
from analysis.report.tables import ReportTable


@dataclass(frozen=True, slots=True)
class Compared:
    """What is shown of Dally against today's scheduler.

    Attributes:
        headline: Both in numbers.
        effects: Headings and tables of whom it concerns.
        settings: Settings tried.
        asks: What each of them asks for.
        start: With which settings to start.
    """

    headline: ReportTable
    effects: Sequence[tuple[str, ReportTable]]
    settings: ReportTable
    asks: Sequence[tuple[str, str]]
    start: Sequence[str]


@dataclass(frozen=True, slots=True)
class AdviceView:
    """What the page's template and script are given.

    Attributes:
        setting: Whose history on which cluster.
        calibration: How far the simulation is from what really happened; the headline first.
        calibrated: Whether that is known.
        title: What would have changed, or that nothing is concluded.
        lines: What lies behind it.
        tried: What else was tried as today's scheduler.
        waits: Real and simulated waits, by size; None if not calibrated.
        compared: Dally against it; None if nothing is concluded.
        assumptions: What was assumed of the jobs' models.
        limits: What the simulation leaves out.
        origin: Where the jobs came from.
        data: What the script draws, packed.
    """

    setting: str
    calibration: Sequence[str]
    calibrated: bool
    title: str
    lines: Sequence[str]
    tried: Sequence[str]
    waits: ReportTable | None
    compared: Compared | None
    assumptions: Sequence[str]
    limits: Sequence[str]
    origin: str
    data: str


def look_at(advice: Advice) -> AdviceView:
    """What a page shows of advice."""
    found, workload = advice.calibration, advice.site.history.workload
    return AdviceView(
        setting=words.setting_line(advice),
        calibration=list(words.calibration_lines(advice)),
        calibrated=found is not None,
        title=words.title(advice),
        lines=words.finding_lines(advice),
        tried=words.tried_lines(found) if found else [],
        waits=tables.calibration_table(found) if found else None,
        compared=_compared(advice, advice.concluded) if advice.concluded else None,
        assumptions=list(words.assumption_lines(advice)),
        limits=list(words.limit_lines(advice)),
        origin=f"{workload.source} (SHA-256 {workload.sha256[:12]}), from {workload.origin}",
        data=pack_drawing(advice),
    )


def _compared(advice: Advice, found: PolicyComparison) -> Compared:
    return Compared(
        headline=tables.headline_table(advice.today, found),
        effects=_effects(found.effects),
        settings=tables.settings_table(found),
        asks=[(setting.policy, setting.asks) for setting, _ in found.settings if setting.asks],
        start=list(settings_lines(advice, found)),
    )


def _effects(found: Effects) -> list[tuple[str, ReportTable]]:
    parts = (
        ("By size", found.sizes),
        ("By group", found.groups),
        ("By user", found.users),
        ("Groups and users who would lose", found.losers),
    )
    return [(name, tables.effect_table(effects)) for name, effects in parts if effects]
