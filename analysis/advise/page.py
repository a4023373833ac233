"""Puts the page of advice together, in the report's style."""

from importlib import resources

from analysis.advise.advice import Advice
from analysis.advise.view import look_at
from analysis.report.page import SHARED_SCRIPTS, assemble, asset

_PAGE = resources.files("analysis.advise") / "page"


def render(advice: Advice) -> str:
    """The advice as HTML that fetches nothing."""
    template, script = ((_PAGE / name).read_text("utf-8") for name in ("advice.html", "advice.js"))
    return assemble(template, [*map(asset, SHARED_SCRIPTS), script], view=look_at(advice))
