"""Writes the tables of docs/contention.md: `python scripts/validate_contention.py`; about a minute."""

from pathlib import Path

import click

from analysis.studies.contention_validation import measured_table, mixes_table
from dally.errors import DallyError
from dally.markdown import replace_section

DOCUMENT = Path(__file__).parent.parent / "docs" / "contention.md"


@click.command()
def main() -> None:
    """Hold the model of shared links against exact cases and rewrite the generated sections."""
    try:
        text = DOCUMENT.read_text(encoding="utf-8")
        for name, body in sections().items():
            text = replace_section(text, name, body)
        DOCUMENT.write_text(text, encoding="utf-8")
    except DallyError as error:
        raise click.ClickException(str(error)) from error


def sections() -> dict[str, str]:
    """The generated sections by name."""
    return {"one-link": mixes_table(1), "three-links": mixes_table(3), "measured": measured_table()}


if __name__ == "__main__":
    main()
