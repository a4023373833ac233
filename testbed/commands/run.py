"""`dally testbed run`: run a workload for real under one or more policies, and show them side by side."""

import sys
from pathlib import Path
from typing import Any

import click

from dally.bounds import check_number
from dally.interruption import INTERRUPTED, interruptible
from dally.traces import format_names
from profiler.commands import values
from testbed.commands.existing_options import (
    ExistingOptions,
    check_nodes,
    check_reservation,
    check_rights,
    existing_options,
    opened_existing,
)
from testbed.commands.options import LocalClusterOptions, local_cluster_options, opened_cluster
from testbed.running.batch import (
    EMULATED_TFLOPS,
    PROFILE_SET,
    RunRequest,
    check_policies,
    named_workloads,
    plan_batch,
    run_policy,
    topology_of,
)
from testbed.running.report import displayed, show_runs

_EPILOG = f"""\b
Workloads that come with Dally: {", ".join(named_workloads())}

\b
Examples:
  dally testbed run --workload demo --policy dally:lease_s=90 --policy slurm --out runs/demo
  dally testbed up --racks 2,2,2,2 --gpus 2 --rate 1Gb --uplink 200Mb
  dally testbed run --workload forty --policy fifo --policy tiresias --out runs/forty
  dally testbed run --racks 2,2 --gpus 1 --gpu-types v100,k80 --emulate v100=2,k80=0.5 --workload jobs.csv \
      --policy hadar:round_s=30 --policy gavel:round_s=30 --out runs/types
The same command again goes on where a killed one was. Policy slurm is Slurm's own scheduler, without Dally.
"""


@click.command(epilog=_EPILOG)
@click.option("--workload", required=True, help="Name, trace file, or generated workload.")
@click.option("--policy", "policies", multiple=True, required=True, help="NAME[:knob=value,...]; repeat it.")
@click.option("--out", type=click.Path(path_type=Path), required=True, help="Folder of the run folders.")
@click.option(
    "--profiles", default=PROFILE_SET, show_default=True, help="Folder of profiles, or a shipped set."
)
@click.option(
    "--emulate",
    type=values.speeds,
    metavar="TFLOPS|TYPE=TFLOPS,...",
    help=f"Speed of the pretended GPUs: the profiles', or one by type.  [default: {EMULATED_TFLOPS:g}]",
)
@click.option(
    "--data",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Train for real on the samples of this file, seen by all nodes; policies go by what jobs report.",
)
@click.option(
    "--companions",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    help="With --data: by so many each elastic job is resized while it trains; 0: by checkpoints.",
)
@click.option("--cluster", "cluster_file", help="Cluster file with the true links, if the cluster has none.")
@click.option("--scale", type=float, default=1.0, help="Factor on submission times; 0.5 doubles the load.")
@click.option("--duration-scale", type=float, default=1.0, help="Factor on durations.")
@click.option("--model-mix", help="Models for jobs that name none, like resnet18=0.6,ncf=0.4.")
@click.option("--seed", type=int, default=0, show_default=True, help="Of generators, model mix and training.")
@click.option("--format", "trace_format", type=click.Choice(format_names()), help="Format of the trace file.")
@click.option("--timeout-s", type=float, help="Longest time for one policy; then its jobs are cancelled.")
@click.option("--json", "as_json", is_flag=True, help="Print the summaries as JSON.")
@local_cluster_options
@existing_options
def command(
    policies: tuple[str, ...],
    out: Path,
    cluster_file: str | None,
    as_json: bool,
    cluster_options: LocalClusterOptions,
    existing: ExistingOptions | None,
    **options: Any,
) -> None:
    """Run a workload for real under one or more policies.

    On the cluster of `dally testbed up`, else on a local one for the time of the run; with --existing, on a
    Slurm of others that the first host of --hosts belongs to. Writes a run folder for
    each policy. Interrupted, it cancels its jobs, keeps what there is, marked incomplete, and exits with 130;
    with 1 if not all jobs ended.
    """
    specs = check_policies(policies)
    request = RunRequest(**options)
    if request.timeout_s is not None:
        check_number("--timeout-s", request.timeout_s)
    runs = []
    if existing:
        check_reservation(existing, specs)
    opened = opened_existing(existing) if existing else opened_cluster(cluster_options)
    with interruptible() as stop, opened as cluster, displayed() as show:
        topology = topology_of(cluster, cluster_file)
        if existing:
            check_rights(cluster, specs)
            check_nodes(existing, cluster, topology)
        batch = plan_batch(request, topology, out)
        for policy in specs:
            runs.append(run_policy(cluster, batch, policy, stop, show))
            if stop():
                break
    show_runs(runs, batch.inputs.topology.levels, out, as_json)
    if stop() or not all(run.complete for run in runs):
        sys.exit(INTERRUPTED if stop() else 1)
