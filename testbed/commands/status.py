"""`dally testbed status`: the cluster that is up, its nodes, jobs and links."""

import json
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from testbed.commands.options import chosen_folder, folder_option
from testbed.persistent.control import find_persistent
from testbed.persistent.shape import shown_rate
from testbed.persistent.status import ClusterStatus, read_status


@click.command(
    epilog="""\b
Examples:
  dally testbed status
  dally testbed status --json"""
)
@folder_option
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(folder: Path | None, as_json: bool) -> None:
    """Show whether a cluster is up, since when, its nodes and their states, jobs, and what links carried."""
    place = chosen_folder(folder)
    status = read_status(place) if find_persistent(place) else None
    if as_json:
        said = {"up": status is not None, "folder": str(place), **(asdict(status) if status else {})}
        click.echo(json.dumps(said, indent=2))
    elif status is None:
        click.echo(f"nothing is up in {place}")
    else:
        _show(place, status)


def _show(folder: Path, status: ClusterStatus) -> None:
    console = Console(highlight=False, soft_wrap=True)
    since = datetime.fromtimestamp(status.since_s, UTC)
    console.print(f"up in {folder} since {since:%Y-%m-%d %H:%M:%S} UTC", markup=False)
    if status.problem:
        console.print(f"Slurm does not answer: {status.problem}", markup=False)
    nodes = Table("node", "rack", "state", box=None, padding=(0, 2, 0, 0))
    for node in status.nodes:
        nodes.add_row(node.name, node.rack, node.state)
    links = Table("link", "rate", "sent", "received", box=None, padding=(0, 2, 0, 0))
    for link in status.links:
        links.add_row(
            link.name,
            shown_rate(link.rate_bps) if link.rate_bps else "-",
            _bytes(link.sent_bytes),
            _bytes(link.received_bytes),
        )
    jobs = Table("job", "name", "user", "state", "nodes", box=None, padding=(0, 2, 0, 0))
    for job in status.jobs:
        jobs.add_row(job.id, job.name, job.user, job.state, job.nodes)
    for table in (nodes, links, *([jobs] if status.jobs else ())):
        console.print(table)
    if not status.jobs and not status.problem:
        console.print("no jobs")


def _bytes(count: int) -> str:
    return f"{count / 1e6:,.1f} MB"
