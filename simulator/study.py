"""Tables of documents from the results of sweeps: policies by clusters, a table for each other difference."""

import csv
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import click

from dally.errors import DallyError, InputError
from dally.markdown import replace_section, table

_FIGURES = ("jct_mean_s", "jct_p99_s", "makespan_s")
_KILO = 1000.0

Row = Mapping[str, str]


def read_summary(folder: Path) -> list[Row]:
    """The rows of a sweep's summary.csv.

    Raises:
        InputError: There is none, or no run of the sweep is in it.
    """
    file = folder / "summary.csv"
    try:
        with file.open(newline="", encoding="utf-8") as lines:
            rows: list[Row] = list(csv.DictReader(lines))
    except OSError as error:
        raise InputError(f"{file}: {error.strerror}; run `dally sweep ... --out {folder}` first") from error
    if not rows:
        raise InputError(f"{file} has no results")
    return rows


def tables(rows: Sequence[Row]) -> Iterator[str]:
    """A table for each setting and value of its options, with a column for each cluster.

    Cells are mean JCT with half its 95 % interval, p99 JCT and makespan, all in thousands of seconds.
    """
    options = [name for name in list(rows[0])[: list(rows[0]).index("figure")] if _is_option(name)]
    varied = [name for name in options if len({row[name] for row in rows if row[name]}) > 1]
    places = dict.fromkeys(tuple(row[name] for name in varied) for row in rows)
    for place in places:
        own = [row for row in rows if tuple(row[name] for name in varied) == place]
        said = ", ".join(
            value if name == "setting" else f"{name} {value}"
            for name, value in zip(varied, place, strict=True)
            if value
        )
        yield f"{said}:\n\n{_table(own)}" if said else _table(own)


def _is_option(name: str) -> bool:
    """Whether a column tells places apart; trace and profiles go with the setting."""
    return name not in ("policy", "cluster", "trace", "seed") and not name.startswith("policy.")


def _table(rows: Sequence[Row]) -> str:
    found = {(row["policy"], row["cluster"], row["figure"]): row for row in rows}
    clusters = dict.fromkeys(row["cluster"] for row in rows)
    lines = [
        [f"`{policy}`", *(_cell(found, policy, cluster) for cluster in clusters)]
        for policy in dict.fromkeys(row["policy"] for row in rows)
    ]
    return table(["policy", *(Path(cluster).stem for cluster in clusters)], lines)


def _cell(found: Mapping[tuple[str, str, str], Row], policy: str, cluster: str) -> str:
    own = [found.get((policy, cluster, figure)) for figure in _FIGURES]
    shown = [_kilo(row) for row in own if row is not None]
    return " / ".join(shown)


def _kilo(row: Row) -> str:
    mean = float(row["mean"]) / _KILO
    digits = f"{mean:,.0f}" if mean >= _KILO else f"{mean:.4g}"
    spread = row["figure"] == _FIGURES[0] and row["ci95"]
    return f"{digits} ±{float(row['ci95']) / _KILO:.2g}" if spread else digits


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
