"""Writes the tables of docs/predictor.md: `python scripts/validate_predictor.py [THROUGHPUTS]`."""

from pathlib import Path

import click

from analysis.studies.deepshare_validation import explain, noise, read_jobs, read_kept
from analysis.studies.gavel_validation import validate_pairs
from analysis.studies.pollux_validation import validate
from analysis.studies.predictor_tables import (
    dally_table,
    errors_table,
    fits_table,
    order_table,
    pairs_table,
    sharing_table,
)
from dally.errors import DallyError
from dally.markdown import replace_section
from dally.profiles.imports.tables import PUBLISHED, import_published

ROOT = Path(__file__).parent.parent


@click.command()
@click.argument(
    "throughputs", type=click.Path(path_type=Path), default=ROOT.parent / "shared" / "throughputs"
)
def main(throughputs: Path) -> None:
    """Validate on the tables under THROUGHPUTS and rewrite the generated sections."""
    document = ROOT / "docs" / "predictor.md"
    try:
        text = document.read_text(encoding="utf-8")
        for name, body in sections(throughputs).items():
            text = replace_section(text, name, body)
        document.write_text(text, encoding="utf-8")
    except DallyError as error:
        raise click.ClickException(str(error)) from error


def sections(throughputs: Path) -> dict[str, str]:
    """The generated sections by name."""
    imported = (profile for name in PUBLISHED for profile in import_published(name, throughputs / name))
    jobs = read_jobs(throughputs / "deepshare")
    kept = read_kept(throughputs / "deepshare", jobs)
    pollux = validate(throughputs / "pollux" / "traces")
    return {
        "dally": dally_table(),
        "imported": fits_table(imported),
        "pollux-near": errors_table(pollux, lambda found: found.near),
        "pollux-far": errors_table(pollux, lambda found: found.far),
        "pollux-order": order_table(pollux),
        "gavel": pairs_table(validate_pairs(throughputs / "gavel")),
        "deepshare": sharing_table(explain(jobs, kept), noise(jobs, kept)),
    }


if __name__ == "__main__":
    main()
