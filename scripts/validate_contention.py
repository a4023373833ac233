"""Writes the tables of docs/contention.md: `python scripts/validate_contention.py`; about a minute."""

from pathlib import Path

import click

from analysis.studies.common import StudyCommand, publish
from analysis.studies.contention_validation import measured_table, mixes_table

DOCUMENT = Path(__file__).parent.parent / "docs" / "contention.md"


@click.command(cls=StudyCommand)
def main() -> None:
    """Hold the model of shared links against exact cases and rewrite the generated sections."""
    publish(sections().items(), DOCUMENT)


def sections() -> dict[str, str]:
    """The generated sections by name."""
    return {"one-link": mixes_table(1), "three-links": mixes_table(3), "measured": measured_table()}


if __name__ == "__main__":
    main()
