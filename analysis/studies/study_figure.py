"""The figure of a study: `python -m analysis.studies.study_figure STUDY.toml FIGURE.png`."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import click
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from analysis.studies.common import StudyCommand
from analysis.studies.study import RUNS, results
from analysis.studies.study_tables import Case, geometric, ratios
from dally.errors import InputError
from simulator.sweep.plan import read_plan
from simulator.sweep.work import Store

_TICKS = (0.5, 0.8, 1, 1.25, 2, 5, 10, 20, 50)
Bar = tuple[float, float, float]
"""Geometric mean over the settings, and the ends of its 95 % interval; all the same for one setting."""


def bars(own: Sequence[Case]) -> dict[str, Bar]:
    """By policy, its mean JCT over that of the first policy."""
    drawn: dict[str, Bar] = {}
    for policy, found in ratios(own).items():
        if any(found):
            value, low, high = geometric(found)
            drawn[policy] = value, value if low is None else low, value if high is None else high
    return drawn


def draw(found: Mapping[str, Sequence[Case]], path: Path) -> None:
    """Draw a panel for each class of knowledge and a line for each policy, as PNG or SVG."""
    drawn = {knows: bars(own) for knows, own in found.items()}
    policies = list(dict.fromkeys(policy for own in drawn.values() for policy in own))
    first = next(iter(found.values()))[0].first.task.policy
    figure = Figure(figsize=(3.2 * len(drawn) + 3, 0.35 * len(policies) + 1.4), layout="constrained")
    panels = figure.subplots(1, len(drawn), sharex=True, sharey=True, squeeze=False)[0]
    for axes, (knows, own) in zip(panels, drawn.items(), strict=True):
        _panel(axes, f"{knows}, {len(found[knows])} settings", own, policies)
    figure.supxlabel(f"mean completion time over that of {first}, geometric mean of the settings", fontsize=9)
    figure.savefig(path, dpi=130, metadata={"Date": None} if path.suffix == ".svg" else None)


def _panel(axes: Axes, title: str, own: Mapping[str, Bar], policies: Sequence[str]) -> None:
    for policy, (value, low, high) in own.items():
        errors = [[value - low], [high - value]]
        axes.errorbar(value, policies.index(policy), xerr=errors, fmt="o", color="tab:blue", capsize=3)
    axes.axvline(1, color="black", linewidth=0.8)
    axes.set_xscale("log")
    axes.set_yticks(range(len(policies)), policies, fontsize=8)
    axes.set_ylim(len(policies) - 0.5, -0.5)
    low, high = axes.get_xlim()
    shown = [tick for tick in _TICKS if low <= tick <= high]
    axes.set_xticks(shown, [f"{tick:g}" for tick in shown], minor=False, fontsize=8)
    axes.minorticks_off()
    axes.set_title(title, fontsize=9)
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)


@click.command(cls=StudyCommand)
@click.argument("file", type=click.Path(path_type=Path))
@click.argument("path", type=click.Path(path_type=Path))
@click.option("--out", type=click.Path(path_type=Path), help=f"Folder of results, {RUNS}/NAME by default.")
def main(file: Path, path: Path, out: Path | None) -> None:
    """Draw what the study in FILE has found so far into PATH."""
    found = results(read_plan(file), Store(out or RUNS / file.stem, make=False))
    if not found:
        raise InputError(f"no results of {file} yet; run `python -m analysis.studies.study {file}` first")
    draw(found, path)


if __name__ == "__main__":
    main()
