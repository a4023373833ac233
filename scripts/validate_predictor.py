"""Writes the tables of docs/predictor.md: `python scripts/validate_predictor.py [THROUGHPUTS]`."""

from pathlib import Path

import click

from analysis.pollux_validation import validate
from analysis.predictor_tables import author_table, validation_table
from dally.errors import DallyError
from dally.markdown import replace_section

ROOT = Path(__file__).parent.parent


@click.command()
@click.argument(
    "throughputs", type=click.Path(path_type=Path), default=ROOT.parent / "shared" / "throughputs"
)
def main(throughputs: Path) -> None:
    """Validate on the tables under THROUGHPUTS and rewrite the generated sections."""
    document = ROOT / "docs" / "predictor.md"
    try:
        text = replace_section(document.read_text(encoding="utf-8"), "author", author_table())
        validations = validate(throughputs / "pollux" / "traces")
        document.write_text(replace_section(text, "pollux", validation_table(validations)), encoding="utf-8")
    except DallyError as error:
        raise click.ClickException(str(error)) from error


if __name__ == "__main__":
    main()
