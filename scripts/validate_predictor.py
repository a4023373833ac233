"""Writes the tables of docs/predictor.md: `python scripts/validate_predictor.py [THROUGHPUTS]`."""

from collections.abc import Iterable
from pathlib import Path

import click

from analysis.studies.common import StudyCommand, publish
from analysis.studies.dally_slowdowns import dally_table
from analysis.studies.deepshare_validation import explain, noise_lines, read_jobs, read_kept, sharing_table
from analysis.studies.gavel_validation import pairs_table, validate_pairs
from analysis.studies.pollux_validation import errors_table, order_table, validate
from dally.markdown import table
from dally.profiles.imports.tables import PUBLISHED, import_published
from dally.profiles.schema import Profile

ROOT = Path(__file__).parent.parent


@click.command(cls=StudyCommand)
@click.argument(
    "throughputs", type=click.Path(path_type=Path), default=ROOT.parent / "shared" / "throughputs"
)
def main(throughputs: Path) -> None:
    """Validate on the tables under THROUGHPUTS and rewrite the generated sections."""
    publish(sections(throughputs).items(), ROOT / "docs" / "predictor.md")


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
        "deepshare": f"{sharing_table(explain(jobs, kept))}\n\n{noise_lines(jobs, kept)}",
    }


def fits_table(profiles: Iterable[Profile]) -> str:
    """The held-out errors that imported profiles carry."""
    header = ("profile", "held out: mean", "held out: max", "flags")
    rows = [
        (
            f"{profile.model.name} on {profile.env.gpu_type}",
            f"{fit.held_out_mape:.1%}",
            f"{fit.held_out_max:.1%}",
            str(len(profile.quality.flags) if profile.quality else 0),
        )
        for profile in profiles
        if (fit := profile.fit) and fit.held_out_mape is not None and fit.held_out_max is not None
    ]
    return table(header, rows)


if __name__ == "__main__":
    main()
