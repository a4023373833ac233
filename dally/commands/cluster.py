"""`dally cluster`: show a cluster file, or convert it to TOML."""

import json
from collections.abc import Sequence

import click
from rich.table import Table
from rich.text import Text

from dally.cluster import load_cluster, shipped_clusters, write_toml
from dally.cluster.load import MACHINES_PER_RACK, names_links
from dally.cluster.summary import (
    cluster_data,
    left_out_line,
    level_summaries,
    machine_kinds,
    partitions_line,
)
from dally.cluster.topology import Link, Topology
from dally.commands.terminal import TextConsole, say
from dally.words import plural

_MOST_LINKS = 3
_DEFAULT_LINKS = "! these files name no links, so the speeds are defaults"
_PREFIXES = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))

_EPILOG = f"""\b
Shipped clusters: {", ".join(shipped_clusters())}

\b
Examples:
  dally cluster demo
  dally cluster /etc/slurm --to toml > cluster.toml
  dally cluster philly_cluster_machine_list.csv --machines-per-rack 16 --json
"""


@click.command(epilog=_EPILOG)
@click.argument("cluster")
@click.option("--json", "as_json", is_flag=True, help="Print the figures as JSON.")
@click.option("--to", "target", type=click.Choice(["toml"]), help="Print the whole cluster as a TOML file.")
@click.option(
    "--machines-per-rack",
    type=click.IntRange(min=1),
    help=f"Rack size for the Philly machine list, which tells none (default {MACHINES_PER_RACK}).",
)
def command(cluster: str, as_json: bool, target: str | None, machines_per_rack: int | None) -> None:
    """Show a cluster, or convert it to TOML.

    CLUSTER is a shipped cluster's name, a TOML file, a folder with slurm.conf (and gres.conf and
    topology.conf), or the Lingjun or Philly table. Slurm's files and the tables give no link speeds: defaults
    hold, to be edited in the TOML.
    """
    if as_json and target is not None:
        raise click.UsageError("--json and --to exclude each other")
    topology = load_cluster(cluster, machines_per_rack=machines_per_rack)
    if target is not None:
        click.echo(write_toml(topology), nl=False)
        if line := left_out_line(topology):
            say(line, err=True)
        if not names_links(cluster):
            say(f"{_DEFAULT_LINKS}: correct them", err=True)
    elif as_json:
        click.echo(json.dumps(cluster_data(topology), indent=2))
    else:
        _show(topology)
        if not names_links(cluster):
            say(f"{_DEFAULT_LINKS}: correct them in what --to toml writes")


def _show(topology: Topology) -> None:
    """Print the tree from the top down, a row for each level, and the machines, a row for each kind."""
    console = TextConsole(highlight=False)
    console.print(
        Text(f"{topology.name}: {plural(len(topology.machines), 'machine')}, {plural(topology.gpus, 'GPU')}")
    )
    if topology.islands:
        console.print(Text(f"{len(topology.root.children):,} separate networks: no job spans two of them"))
    if partitions := partitions_line(topology):
        console.print(Text(partitions))
    if left_out := left_out_line(topology):
        console.print(Text(left_out))
    levels = Table("level", "domains", "GPUs each", "uplink of each")
    levels.columns[1].justify = levels.columns[2].justify = "right"
    for level in reversed(level_summaries(topology)):
        low, high = level.gpus
        gpus = f"{low:,}" if low == high else f"{low:,}-{high:,}"
        levels.add_row(Text(level.name), f"{level.domains:,}", gpus, Text(_uplinks(level.uplinks)))
    console.print(levels)
    kinds = Table("machines", "GPUs each", "GPU type", "between the GPUs")
    kinds.columns[0].justify = kinds.columns[1].justify = "right"
    for kind, count in machine_kinds(topology):
        fabric = _link(kind.fabric)
        if kind.slots > 1:
            in_slot = _link(kind.slot_fabric or kind.fabric)
            fabric = f"{plural(kind.slots, 'slot')}: in one {in_slot}, between {fabric}"
        kinds.add_row(f"{count:,}", str(kind.gpus), Text(kind.gpu_type or "not known"), Text(fabric))
    console.print(kinds)


def _uplinks(uplinks: Sequence[tuple[Link, int]]) -> str:
    """The kinds of links, one a line, the first few."""
    if len(uplinks) <= 1:
        return "".join(_link(link) for link, _ in uplinks)
    lines = [f"{count:,} x {_link(link)}" for link, count in uplinks[:_MOST_LINKS]]
    rest = len(uplinks) - len(lines)
    return "\n".join([*lines, *([f"and {rest:,} more kinds"] if rest else [])])


def _link(link: Link) -> str:
    """A link in words, such as `200 Gb/s, 2.5 us`."""
    factor, prefix = next(
        ((factor, prefix) for factor, prefix in _PREFIXES if link.bandwidth_bps >= factor), (1.0, "")
    )
    return f"{link.bandwidth_bps / factor:.4g} {prefix}b/s, {link.latency_s * 1e6:.4g} us"
