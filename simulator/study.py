"""Tables of documents from the results of sweeps: policies by clusters, a table for each other difference."""

from collections.abc import Iterator
from pathlib import Path

import click
import pandas as pd

from dally.errors import DallyError, InputError
from dally.markdown import replace_section, table

_FIGURES = ("jct_mean_s", "jct_p99_s", "makespan_s")
_KILO = 1000.0


def read_summary(folder: Path) -> pd.DataFrame:
    """The summary.csv of a sweep, all cells as text.

    Raises:
        InputError: There is none, or no run of the sweep is in it.
    """
    file = folder / "summary.csv"
    try:
        summary = pd.read_csv(file, dtype=str, keep_default_na=False)
    except OSError as error:
        raise InputError(f"{file}: {error.strerror}; run `dally sweep ... --out {folder}` first") from error
    except pd.errors.EmptyDataError as error:
        raise InputError(f"{file} has no results") from error
    return summary


def tables(summary: pd.DataFrame) -> Iterator[str]:
    """A table for each setting and value of its options, with a column for each cluster.

    Cells are mean JCT with half its 95 % interval, p99 JCT and makespan, all in thousands of seconds.
    """
    columns = list(summary.columns)
    options = filter(_is_option, columns[: columns.index("figure")])
    varied = [name for name in options if summary[name].replace("", None).nunique() > 1]
    if not varied:
        yield _table(summary)
        return
    for place, own in summary.groupby(varied, sort=False):
        values = zip(varied, place, strict=True)
        said = [f"{value}" if name == "setting" else f"{name} {value}" for name, value in values if value]
        yield f"{', '.join(said)}:\n\n{_table(own)}"


def _is_option(name: str) -> bool:
    """Whether a column tells places apart; trace and profiles go with the setting."""
    return name not in ("policy", "cluster", "trace", "seed") and not name.startswith("policy.")


def _table(rows: pd.DataFrame) -> str:
    own = pd.concat([rows[rows["figure"] == figure] for figure in _FIGURES])
    own["cell"] = [_cell(*each) for each in zip(own["figure"], own["mean"], own["ci95"], strict=True)]
    cells = own.groupby(["policy", "cluster"])["cell"].agg(" / ".join).unstack(fill_value="")
    cells = cells.reindex(index=rows["policy"].unique(), columns=rows["cluster"].unique())
    lines = [[f"`{policy}`", *found] for policy, *found in cells.itertuples()]
    return table(["policy", *(Path(cluster).stem for cluster in cells.columns)], lines)


def _cell(figure: str, mean: str, half: str) -> str:
    value = float(mean) / _KILO
    digits = f"{value:,.0f}" if value >= _KILO else f"{value:.4g}"
    return f"{digits} ±{float(half) / _KILO:.2g}" if figure == _FIGURES[0] and half else digits


@click.command()
@click.argument("folder", type=click.Path(path_type=Path))
@click.option("--write", "document", type=click.Path(path_type=Path), help="Put them into this document.")
@click.option("--section", help="Between the comments of this section of it.")
def main(folder: Path, document: Path | None, section: str | None) -> None:
    """Print the tables of the sweep in FOLDER, or write them into a document."""
    try:
        text = "\n\n".join(tables(read_summary(folder)))
        if document is None or section is None:
            click.echo(text)
            return
        old = document.read_text(encoding="utf-8")
        document.write_text(replace_section(old, section, text), encoding="utf-8")
    except DallyError as error:
        raise click.ClickException(str(error)) from error


if __name__ == "__main__":
    main()
