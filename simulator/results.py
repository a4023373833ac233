"""The experiments of docs/results.md: the author's settings and real traces, as Markdown tables."""

import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import mean

import click

from dally.errors import DallyError
from dally.markdown import replace_section, table
from dally.policies.registry import parse_policy
from dally.summary import Summary
from dally.words import duration
from simulator.bench import MIX, PHILLY_SLICE_S
from simulator.inputs import Inputs, load_scenario
from simulator.scenario import simulate

POLICIES = (
    "dally",
    "dally:timers=manual",
    "dally:timers=no-wait",
    "dally:timers=consolidated",
    "tiresias",
    "gandiva",
    "srtf",
    "srtf:placement=consolidated",
    "sjf:backfill=easy",
    "fifo",
    "fifo:placement=consolidated",
    "fifo:backfill=easy",
    "fifo:placement=consolidated,backfill=easy",
    "slurm",
)
SEEDS = (1, 2, 3)
AS_RECORDED = {"Philly": 1.0, "Venus": 1.0, "Lingjun": 1.0}
PRESSED = {"Philly": 0.71, "Venus": 0.73, "Lingjun": 0.13}
"""Factors on submission times with which each cluster is offered nine tenths of its GPU time or more."""

PROCESSES = 2


@dataclass(frozen=True, slots=True)
class Setting:
    """One column group of results: a name and the inputs of each seed."""

    name: str
    inputs: tuple[Inputs, ...]


def dally_settings(workload: str, congestion: float) -> list[Setting]:
    """The author's workload on 128, 256 and 512 GPUs, three seeds each."""
    return [
        Setting(
            f"{gpus} GPUs",
            tuple(
                Inputs(workload, f"dally-{gpus}", profiles="dally", seed=seed, congestion=congestion)
                for seed in SEEDS
            ),
        )
        for gpus in (128, 256, 512)
    ]


def trace_settings(traces: Path, scales: Mapping[str, float]) -> list[Setting]:
    """Philly's steady slice, Venus and Lingjun, each on a cluster like its own.

    Args:
        traces: Folder of the traces.
        scales: Factors on their submission times.
    """
    mixed = partial(Inputs, profiles="realistic", model_mix=MIX, seed=1, min_duration_s=1.0)
    begin_s, end_s = map(float, PHILLY_SLICE_S)
    philly = mixed(
        str(traces / "philly.csv.gz"),
        str(traces / "philly_cluster_machine_list.csv"),
        start_s=begin_s,
        end_s=end_s,
    )
    lingjun = mixed(str(traces / "alibaba_lingjun.csv.gz"), str(traces / "alibaba_lingjun_topo.csv"))
    venus = mixed(str(traces / "helios_venus.csv.gz"), "venus")
    inputs = {"Philly": philly, "Venus": venus, "Lingjun": lingjun}
    return [Setting(name, (replace(each, arrival_scale=scales[name]),)) for name, each in inputs.items()]


def run(policy: str, inputs: Inputs) -> Summary:
    """One simulation; its folder is thrown away.

    Raises:
        DallyError: It did not end.
    """
    with tempfile.TemporaryDirectory() as folder:
        ended = simulate(load_scenario(inputs), parse_policy(policy), Path(folder) / "run")
    if not ended.complete:
        raise DallyError(f"{policy}: {ended.note}")
    return ended.summary


def tasks(settings: Sequence[Setting]) -> list[tuple[str, Inputs]]:
    """All simulations of some settings, policy by policy."""
    return [(policy, inputs) for policy in POLICIES for setting in settings for inputs in setting.inputs]


def compare(
    settings: Sequence[Setting], cells: Callable[[Sequence[Summary]], Sequence[str]], heads: Sequence[str]
) -> str:
    """Simulate every policy in every setting; a table of policies by settings.

    Args:
        settings: Where to simulate.
        cells: The cells of one policy in one setting, from the summaries of its seeds.
        heads: Their headings.
    """
    todo = tasks(settings)
    with ProcessPoolExecutor(PROCESSES) as pool:
        summaries = iter(list(pool.map(run, *zip(*todo, strict=True))))
    rows = []
    for policy in POLICIES:
        row = [f"`{policy}`"]
        for setting in settings:
            row += cells([next(summaries) for _ in setting.inputs])
        rows.append(row)
    header = ["policy", *(f"{setting.name}: {head}" for setting in settings for head in heads)]
    return table(header, rows)


def dally_cells(summaries: Sequence[Summary]) -> list[str]:
    """Makespan, mean JCT and mean communication of multi-GPU jobs in ks, mean over the seeds."""
    values = ((summary.makespan_s, summary.jct_s.mean, summary.comm_mean_multi_s) for summary in summaries)
    return [" / ".join(_kiloseconds(mean(column)) for column in zip(*values, strict=True))]


def _kiloseconds(seconds: float) -> str:
    """Three significant digits, thousands whole."""
    return f"{seconds / 1000:,.0f}" if seconds >= 1e6 else f"{seconds / 1000:.3g}"


def trace_cells(summaries: Sequence[Summary]) -> list[str]:
    """Mean and p99 JCT, mean waiting, preemptions."""
    summary = summaries[0]
    return [
        f"{duration(summary.jct_s.mean)} / {duration(summary.jct_s.p99)}",
        f"{duration(summary.queue_s.mean)} / {duration(summary.queue_s.p99)}",
        duration(summary.comm_s.mean),
        f"{summary.preemptions:,}",
    ]


def sections(traces: Path) -> dict[str, Callable[[], str]]:
    """The generated sections of the document."""
    made: dict[str, Callable[[], str]] = {}
    for workload in ("dally-batch", "dally-poisson"):
        for name, congestion in (("", 1.0), ("-congested", 0.1)):
            settings = dally_settings(workload, congestion)
            made[workload + name] = partial(compare, settings, dally_cells, ["makespan / JCT / comm."])
    heads = ["JCT mean / p99", "waiting mean / p99", "network", "preemptions"]
    for name, scales in (("traces", AS_RECORDED), ("traces-pressed", PRESSED)):
        made[name] = partial(compare, trace_settings(traces, scales), trace_cells, heads)
    return made


@click.command()
@click.argument("names", nargs=-1)
@click.option(
    "--traces", type=click.Path(path_type=Path), default=Path("../shared/traces"), show_default=True
)
@click.option(
    "--document", type=click.Path(path_type=Path), default=Path("docs/results.md"), show_default=True
)
def main(names: Iterable[str], traces: Path, document: Path) -> None:
    """Run the experiments again and rewrite their tables in the document: all, or the sections NAMES."""
    try:
        made = sections(traces)
        for name in names or made:
            if name not in made:
                raise click.BadParameter(f"no section {name!r}; sections: {', '.join(made)}")
            body = made[name]()
            text = document.read_text(encoding="utf-8")
            document.write_text(replace_section(text, name, body), encoding="utf-8")
            click.echo(f"{name}: written to {document}")
    except DallyError as error:
        raise click.ClickException(str(error)) from error


if __name__ == "__main__":
    main()
