"""A study: one sweep file, one command, and the tables of its page, by class of knowledge."""

import sys
from collections.abc import Mapping
from pathlib import Path

import click

from analysis.studies.common import StudyCommand
from analysis.studies.study_tables import SECTIONS, Case, Effects, cases, sections
from dally.atomic_file import write_atomically
from dally.errors import InputError
from dally.markdown import opening, replace_section
from simulator.sweep.command import carry_out
from simulator.sweep.groups import grouped
from simulator.sweep.plan import SweepPlan, read_plan
from simulator.sweep.work import Store
from simulator.sweep.workers import LOCAL

RUNS = Path("runs/studies")


def read_effects(study: Mapping[str, object]) -> Effects:
    """The named steps of a study file.

    Raises:
        InputError: They are not pairs of policies.
    """
    for key in study:
        if key != "effects":
            raise InputError(f"study.{key} is not a known key; valid: effects")
    effects = study.get("effects", {})
    if not isinstance(effects, dict):
        raise InputError(f"study.effects is {effects!r}, must be a table")
    for name, pair in effects.items():
        if not (isinstance(pair, list) and len(pair) == 2 and all(isinstance(each, str) for each in pair)):
            raise InputError(f"study.effects.{name} is {pair!r}, must be a list of two policies")
    return {name: (before, after) for name, (before, after) in effects.items()}


def results(plan: SweepPlan, store: Store) -> dict[str, list[Case]]:
    """The results of a study that are there so far, by class of knowledge."""
    return cases(list(grouped(store.found(plan.tasks)).values()))


@click.command(cls=StudyCommand)
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--workers", type=click.IntRange(min=1), default=2, show_default=True, help="Runs at a time.")
@click.option("--out", type=click.Path(path_type=Path), help=f"Folder of results, {RUNS}/NAME by default.")
@click.option("--page", type=click.Path(path_type=Path), help="By default docs/results/NAME.md.")
def main(file: Path, workers: int, out: Path | None, page: Path | None) -> None:
    """Run what is missing of the study in FILE, NAME.toml, and write the tables of its page.

    FILE is one of `dally sweep` (docs/sweeps.md), which may run parts of it before with the same --out.
    """
    page = page or Path("docs/results") / f"{file.stem}.md"
    plan = read_plan(file)
    effects = read_effects(plan.study)
    text = page.read_text(encoding="utf-8")
    if not any(opening(name) in text for name in SECTIONS):
        raise InputError(f"{page} has no section for a table, like {opening(SECTIONS[0])}")
    store = Store(out or RUNS / file.stem, make=True)
    if status := carry_out(plan, store, LOCAL, workers):
        sys.exit(status)
    for section, body in sections(results(plan, store), effects):
        if opening(section) in text:
            text = replace_section(text, section, body)
    write_atomically(page, text)
    click.echo(f"written: {page}")


if __name__ == "__main__":
    main()
