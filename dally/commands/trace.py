"""`dally trace`: show, convert or generate a workload trace."""

import io
import json
import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import TextIO

import click
from rich.table import Table
from rich.text import Text

from dally.commands.terminal import TextConsole, say
from dally.traces import (
    GENERATORS,
    TraceSummary,
    Workload,
    assign_models,
    changes_text,
    common_csv,
    format_names,
    load_trace,
    summarize,
    write_workload,
)
from dally.words import clean, share

_MOST_SIZES = 12
_ORIGIN = ("source", "format", "sha256", "seed", "origin", "dropped", "clamped", "outside")
"""What the JSON says of where the jobs came from."""

_EPILOG = "\b\n" + "\n".join(
    [
        "Generated workloads and their knobs:",
        *(
            f"  {name:<15} {generator.summary}"
            + (f"\n{'':17} {','.join(generator.knobs)}" if generator.knobs else "")
            for name, generator in GENERATORS.items()
        ),
        "",
        "\b",
        "Examples:",
        "  dally trace dally-batch",
        "  dally trace philly-like:jobs=2000,load=0.8,cluster_gpus=256 --seed 3 --to csv -o week.csv.gz",
        "  dally trace philly.csv.gz --min-duration-s 1 --from-s 4062780 --to-s 10542780",
    ]
)


@click.command(epilog=_EPILOG)
@click.argument("spec")
@click.option("--format", "trace_format", type=click.Choice(format_names()), help="Format of the file.")
@click.option(
    "--seed", type=int, default=0, show_default=True, help="Seed of a generator and of --model-mix."
)
@click.option("--from-s", "start_s", type=float, help="Keep jobs submitted at this second or later.")
@click.option("--to-s", "end_s", type=float, help="Keep jobs submitted before this second.")
@click.option("--skip-bad", is_flag=True, help="Leave wrong rows out and count them.")
@click.option("--min-duration-s", type=float, default=0.0, help="Raise shorter durations to this.")
@click.option(
    "--model-mix", "models", help="Draw missing models from a mix like resnet50=0.7,bert-large=0.3."
)
@click.option("--json", "as_json", is_flag=True, help="Print the summary as JSON.")
@click.option("--to", "target", type=click.Choice(["csv"]), help="Print the jobs instead of the summary.")
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Write the jobs here; needs --to.")
def command(
    spec: str,
    trace_format: str | None,
    seed: int,
    start_s: float | None,
    end_s: float | None,
    skip_bad: bool,
    min_duration_s: float,
    models: str | None,
    as_json: bool,
    target: str | None,
    output: Path | None,
) -> None:
    """Show, convert or generate a workload trace.

    SPEC is a trace file, or NAME[:knob=value,...] of a generated workload.
    """
    if output is not None and target is None:
        raise click.UsageError("-o needs --to csv")
    if as_json and target is not None:
        raise click.UsageError("--json and --to exclude each other")
    workload = load_trace(
        spec,
        seed=seed,
        trace_format=trace_format,
        skip_bad=skip_bad,
        min_duration_s=min_duration_s,
        start_s=start_s,
        end_s=end_s,
    )
    if models is not None:
        workload = replace(workload, jobs=assign_models(workload.jobs, models, seed))
    if as_json:
        origin = {name: getattr(workload, name) for name in _ORIGIN}
        click.echo(json.dumps(origin | asdict(summarize(workload)), indent=2))
        return
    if target is None:
        summary = summarize(workload)
        figures = Table(show_header=False)
        figures.add_column(style="bold", no_wrap=True)
        figures.add_column(overflow="fold")
        for name, value in _figures(workload, summary):
            figures.add_row(name, Text(clean(value)))
        TextConsole(file=sys.stdout, highlight=False).print(figures, _sizes(summary))
        return
    if output is None:
        common_csv.write(workload.jobs, _Terminal() if sys.stdout.isatty() else sys.stdout)
    else:
        write_workload(workload.jobs, output)
    if note := changes_text(workload.dropped, workload.clamped):
        say(f"dally: {note}", err=True)


class _Terminal(io.TextIOBase, TextIO):
    """Takes rows of CSV for a terminal, as text."""

    def write(self, row: str) -> int:
        return sys.stdout.write(f"{clean(row.rstrip())}\n")


def _figures(workload: Workload, summary: TraceSummary) -> Iterator[tuple[str, str]]:
    """The single figures as (name, text)."""
    times_s = summary.duration_percentiles_s
    yield "source", f"{workload.source} ({workload.format})"
    if workload.seed is not None:
        yield "seed", str(workload.seed)
    yield "starts at", workload.origin
    yield "jobs", f"{summary.jobs:,}"
    yield "submitted over", _duration(summary.span_s)
    yield "GPU-hours", f"{summary.gpu_hours:,.0f}"
    yield "duration mean", _duration(summary.mean_duration_s)
    for at, name in ((0, "min"), (50, "median"), (90, "p90"), (95, "p95"), (99, "p99"), (100, "max")):
        yield f"duration {name}", _duration(times_s[at])
    if summary.mean_gap_s is not None:
        yield "gap mean", _duration(summary.mean_gap_s)
    if summary.gap_cv is not None:
        yield "gap CV", f"{summary.gap_cv:.2f}"
    yield "users", f"{summary.users:,}" if summary.users else "not known"
    yield "models", _counts(summary.models)
    yield "statuses", _counts(summary.statuses)
    if workload.outside:
        yield "outside the slice", f"{workload.outside:,}"
    if note := changes_text(workload.dropped, workload.clamped):
        yield "changed", note


def _sizes(summary: TraceSummary) -> Table:
    """The table of GPU counts; many distinct ones are put together up to each power of two."""
    table = Table("GPUs", *("jobs", "jobs %", "GPU-hours", "GPU-hours %"))
    for column in table.columns:
        column.justify = "right"
    rows: dict[str, tuple[int, float]] = {}
    for gpus, jobs in summary.gpus.items():
        high = 1 << (gpus - 1).bit_length()
        is_range = len(summary.gpus) > _MOST_SIZES and high // 2 + 1 < high
        label = f"{high // 2 + 1}-{high}" if is_range else str(gpus)
        count, hours = rows.get(label, (0, 0.0))
        rows[label] = (count + jobs, hours + summary.gpu_hours_by_gpus[gpus])
    for label, (count, hours) in rows.items():
        shares = (count / summary.jobs, hours / summary.gpu_hours)
        table.add_row(label, f"{count:,}", share(shares[0], 1), f"{hours:,.0f}", share(shares[1], 1))
    return table


def _counts(counts: Mapping[str, int]) -> str:
    """Names with their counts in one line, the first dozen."""
    shown = [f"{name or 'not known'} {count:,}" for name, count in list(counts.items())[:12]]
    rest = len(counts) - len(shown)
    return ", ".join(shown) + (f", and {rest} more" if rest else "")


def _duration(time_s: float) -> str:
    """Seconds, and the same in a readable unit."""
    for unit, length_s in (("days", 86400.0), ("h", 3600.0), ("min", 60.0)):
        if time_s >= length_s:
            return f"{time_s:,.0f} s ({time_s / length_s:.1f} {unit})"
    return f"{time_s:.3g} s"
