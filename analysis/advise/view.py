"""Everything that the page of advice shows: sentences, tables, and what its script draws."""

from collections.abc import Sequence
from dataclasses import dataclass

from analysis.advise import tables, words
from analysis.advise.advice import Advice
from analysis.advise.drawing import pack_drawing
from analysis.report.tables import Table


@dataclass(frozen=True, slots=True)
class View:
    """What the page's template and script are given.

    Attributes:
        setting: Whose history on which cluster.
        calibration: How far the simulation is from what really happened; the headline first.
        calibrated: Whether that is known.
        title: What would have changed.
        lines: What lies behind it.
        losers: Who would lose.
        tried: What else was tried as today's scheduler.
        waits: Real and simulated waits, by size; None if not calibrated.
        headline: Today and Dally in numbers.
        effects: Headings and tables of whom it concerns.
        settings: Settings tried.
        asks: What each of them asks for.
        start: With which settings to start.
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
    losers: str
    tried: Sequence[str]
    waits: Table | None
    headline: Table
    effects: Sequence[tuple[str, Table]]
    settings: Table
    asks: Sequence[tuple[str, str]]
    start: Sequence[str]
    assumptions: Sequence[str]
    limits: Sequence[str]
    origin: str
    data: str


def look_at(advice: Advice) -> View:
    """What a page shows of advice."""
    found, workload = advice.calibration, advice.site.history.workload
    return View(
        setting=words.setting_line(advice),
        calibration=list(words.calibration_lines(advice)),
        calibrated=found is not None,
        title=words.title(advice),
        lines=list(words.verdict_lines(advice)),
        losers=words.losers_line(advice),
        tried=words.tried_lines(found) if found else [],
        waits=tables.calibration_table(found) if found else None,
        headline=tables.headline_table(advice),
        effects=_effects(advice),
        settings=tables.settings_table(advice),
        asks=[(setting.policy, setting.asks) for setting, _ in advice.settings if setting.asks],
        start=list(words.settings_lines(advice)),
        assumptions=list(words.assumption_lines(advice)),
        limits=list(words.limit_lines(advice)),
        origin=f"{workload.source} (SHA-256 {workload.sha256[:12]}), from {workload.origin}",
        data=pack_drawing(advice),
    )


def _effects(advice: Advice) -> list[tuple[str, Table]]:
    found = advice.effects
    parts = (
        ("By size", found.sizes),
        ("By group", found.groups),
        ("By user", found.users),
        ("Groups and users who would lose", found.losers),
    )
    return [(name, tables.effect_table(effects)) for name, effects in parts if effects]
