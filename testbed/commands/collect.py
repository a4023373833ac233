"""`dally testbed collect`: make the run folders of runs that were cut off."""

from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import click

from slurm_plugin.local_cluster.cluster import Cluster
from testbed.commands.existing_options import ExistingOptions, existing_options, opened_existing
from testbed.commands.options import chosen_folder, folder_option
from testbed.persistent.control import find_persistent, opened_persistent
from testbed.running.batch import begun_runs, collect_run
from testbed.running.folder import read_inputs
from testbed.running.report import show_runs


@click.command(
    epilog="""\b
Example:
  dally testbed collect --out runs/forty"""
)
@click.option("--out", type=click.Path(path_type=Path), required=True, help="What `run` was given.")
@folder_option
@existing_options
@click.option("--json", "as_json", is_flag=True, help="Print the summaries as JSON.")
def command(out: Path, folder: Path | None, existing: ExistingOptions | None, as_json: bool) -> None:
    """Make the run folders of runs that were cut off, from what there is; changes nothing on the cluster.

    If the cluster is up, what the jobs have written there until now is fetched first; for one of others, give
    the options that `run` was given.
    """
    runs_begun = begun_runs(out)
    place = chosen_folder(folder)
    opened: AbstractContextManager[Cluster | None] = nullcontext()
    if existing:
        opened = opened_existing(existing)
    elif find_persistent(place):
        opened = opened_persistent(place)
    with opened as cluster:
        runs = [collect_run(run, cluster) for run in runs_begun]
    show_runs(runs, read_inputs(runs_begun[0]).topology.levels, out, as_json)
