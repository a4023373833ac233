"""Puts the page together: template, style, scripts, the plotting library and the data, all in one file."""

import re
from collections.abc import Iterable
from importlib import resources

from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup
from plotly.offline import get_plotlyjs

from analysis.report.packing import deflated
from analysis.report.view import ReportView
from dally import __version__

_PAGE = resources.files("analysis.report") / "page"
NO_BREAK = "\N{NO-BREAK SPACE}"
SHARED_SCRIPTS = ("unpack.js", "opening.js", "words.js", "figures.js")
_SCRIPTS = (*SHARED_SCRIPTS, "heatmap.js", "jobs.js", "story.js", "main.js")


def render(view: ReportView) -> str:
    """The report as HTML that fetches nothing."""
    return assemble(asset("report.html"), map(asset, _SCRIPTS), view=view)


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
    environment.filters["unbroken"] = _unbroken
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


def _unbroken(text: str) -> str:
    """A text in which no line ends between a number and its unit."""
    return re.sub(r"(?<=\d) (?=(?:x|s|min|h|d)\b|%)", NO_BREAK, text)
