"""`dally testbed status`: the cluster that is up, its nodes, jobs and links."""

import json
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
from rich.table import Table
from rich.text import Text

from dally.commands.terminal import TextConsole
from dally.hostlist import fold
from slurm_plugin.client.job_json import read_jobs
from slurm_plugin.client.slurm import SlurmJob, SlurmUnavailableError, State
from slurm_plugin.local_cluster.cluster import ClusterError
from testbed.commands.options import chosen_folder, folder_option
from testbed.persistent.control import find_persistent, opened_persistent
from testbed.persistent.shape import HostsShape, shown_rate
from testbed.persistent.state import PersistentState

_ANSWER_S = 15.0


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
    state = find_persistent(place)
    status = _status(place, state) if state else {}
    if as_json:
        click.echo(json.dumps({"up": state is not None, "folder": str(place), **status}, indent=2))
    elif not status:
        click.echo(f"nothing is up in {place}")
    else:
        _show(place, status)


def _status(folder: Path, state: PersistentState) -> dict[str, Any]:
    """What `--json` prints of the cluster that is up in a folder."""
    shape = state.shape
    rates: dict[str, float] = {}
    if isinstance(shape, HostsShape):
        rack_of = {host.name: host.rack for host in shape.hosts().hosts}
    else:
        racks = shape.spec(Path("/")).racks_of()
        rack_of = {name: rack for rack, names in racks.items() for name in names}
        rates = dict.fromkeys(rack_of, shape.rate_bps) | dict.fromkeys(racks, shape.uplink_bps)
    problem = ""
    states: dict[str, str] = {}
    jobs = []
    with opened_persistent(folder) as cluster:
        try:
            sinfo = ("sinfo", "--noheader", "--Node", f"--partition={cluster.partition}", "--format=%N %T")
            lines = cluster.ask(*sinfo, timeout_s=_ANSWER_S).splitlines()
            states = {name: node_state for name, _, node_state in (line.partition(" ") for line in lines)}
            squeue = ("env", "SLURM_BITSTR_LEN=0", "squeue", "--json")  # users write whole lines into names
            shown = read_jobs(cluster.ask(*squeue, timeout_s=_ANSWER_S))
            jobs = [_told_of(job) for job in shown if job.state is not State.ENDED]
        except (ClusterError, SlurmUnavailableError) as error:
            problem = str(error)
        links = [
            {"name": name, "rate_bps": rates.get(name), **asdict(carried)}
            for name, carried in cluster.traffic().items()
        ]
    return {
        "since_s": state.since_s,
        "conf": str(cluster.conf),
        "cluster_file": "" if isinstance(shape, HostsShape) else str(cluster.conf.with_name("cluster.toml")),
        "nodes": [
            {"name": name, "rack": rack, "state": states.get(name, "unknown")}
            for name, rack in rack_of.items()
        ],
        "jobs": jobs,
        "links": links,
        "problem": problem,
    }


def _told_of(job: SlurmJob) -> dict[str, str]:
    nodes = fold(job.nodes) if job.nodes else ""
    return {
        "id": job.job_id,
        "state": job.state_name,
        "user": job.user,
        "nodes": nodes,
        "name": job.job_name,
    }


def _show(folder: Path, status: dict[str, Any]) -> None:
    console = TextConsole(highlight=False, soft_wrap=True)
    since = datetime.fromtimestamp(status["since_s"], UTC)
    console.print(f"up in {folder} since {since:%Y-%m-%d %H:%M:%S} UTC", markup=False)
    if status["problem"]:
        console.print(f"Slurm does not answer: {status['problem']}", markup=False)
    nodes = Table("node", "rack", "state", box=None, padding=(0, 2, 0, 0))
    for node in status["nodes"]:
        nodes.add_row(node["name"], node["rack"], node["state"])
    links = Table("link", "rate", "sent", "received", box=None, padding=(0, 2, 0, 0))
    for link in status["links"]:
        carried = (f"{link[f'{way}_bytes'] / 1e6:,.1f} MB" for way in ("sent", "received"))
        links.add_row(link["name"], shown_rate(link["rate_bps"]) if link["rate_bps"] else "-", *carried)
    jobs = Table("job", "name", "user", "state", "nodes", box=None, padding=(0, 2, 0, 0))
    for job in status["jobs"]:
        told = (Text(job[key]) for key in ("id", "name", "user", "state", "nodes"))
        jobs.add_row(*told)  # a name may look like rich's markup
    for table in (nodes, links, *([jobs] if status["jobs"] else ())):
        console.print(table)
    if not status["jobs"] and not status["problem"]:
        console.print("no jobs")
