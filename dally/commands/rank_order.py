"""`dally rank-order`: the nodes of a job in the order in which they should get its ranks."""

from pathlib import Path

import click

from dally.atomic_file import write_atomically
from dally.cluster import load_cluster
from dally.cluster.rank_order import group_machines, rank_order, spanning_groups
from dally.errors import InputError
from dally.hostlist import expand
from dally.jobs.parallelism import Parallelism

_EPILOG = """\b
Examples, in a batch script:
  export SLURM_HOSTFILE=$(dally rank-order --plan tp=8,pp=2,dp=4 --tasks-per-node 8 --hostfile hosts.txt)
  srun --distribution=arbitrary python train.py
\b
  srun sh -c 'torchrun --rdzv-backend=static --node-rank=$(dally rank-order --rank-of $SLURMD_NODENAME) ...'
"""


@click.command(epilog=_EPILOG)
@click.option(
    "--nodes", "nodelist", envvar="SLURM_JOB_NODELIST", help="Nodes, like n[1-4] (default: the job's)."
)
@click.option("--cluster", default="/etc/slurm", show_default=True, help="As for `dally cluster`.")
@click.option(
    "--plan", "plan_text", default="", help="Parallel plan, like tp=8,pp=2,dp=4; inner axes lie closest."
)
@click.option(
    "--tasks-per-node", type=click.IntRange(min=1), default=1, show_default=True, help="Ranks of a node."
)
@click.option(
    "--hostfile", type=click.Path(path_type=Path), help="Write a line for each rank there, print its path."
)
@click.option("--rank-of", "node", help="Print the place of this node in the order, from 0.")
def command(
    nodelist: str | None,
    cluster: str,
    plan_text: str,
    tasks_per_node: int,
    hostfile: Path | None,
    node: str | None,
) -> None:
    """Print the nodes of a job in the order in which they should get its ranks.

    Slurm gives ranks by the names of nodes. Where names do not follow the racks, a ring over all ranks
    crosses racks again and again. The order keeps groups of neighbouring ranks in one rack where it can.
    """
    if hostfile and node:
        raise click.UsageError("--hostfile and --rank-of exclude each other")
    if not nodelist:
        raise InputError("no nodes are given: say --nodes=n[1-4], or run it in a job of Slurm")
    topology, names = load_cluster(cluster), expand(nodelist)
    unknown = [name for name in names if name not in topology.machine_index]
    if unknown:
        raise InputError(f"node {unknown[0]} is not in {cluster}; name its files with --cluster")
    ranks = len(names) * tasks_per_node
    plan = Parallelism.parse(plan_text) if plan_text else Parallelism(dp=ranks)
    if plan.gpus != ranks:
        there = f"{len(names)} nodes x {tasks_per_node} tasks"
        raise InputError(f"plan {plan} has {plan.gpus} ranks, and there are {there}")
    group = group_machines(plan, tasks_per_node)
    order = rank_order(topology, [topology.machine_index[name] for name in names], group)
    ordered = [topology.machines[machine].name for machine in order]
    if node is not None:
        if node not in ordered:
            raise InputError(f"node {node} is none of {nodelist}")
        click.echo(ordered.index(node))
    elif hostfile:
        write_atomically(hostfile, "".join(f"{name}\n" * tasks_per_node for name in ordered))
        click.echo(hostfile.absolute())
    else:
        click.echo(",".join(ordered))
    if group > 1 and topology.top > 1:
        by_name = [topology.machine_index[name] for name in names]
        before, after = (spanning_groups(topology, each, group, 1) for each in (by_name, order))
        level = topology.levels[1]
        click.echo(
            f"groups of {group} nodes that span several of {level}: {after}, {before} by name", err=True
        )
