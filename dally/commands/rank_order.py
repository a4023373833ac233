"""`dally rank-order`: the nodes of a job in the order in which they should get its ranks."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import click

from dally.atomic_file import write_atomically
from dally.cluster import load_cluster
from dally.cluster.rank_order import group_machines, rank_order, spanning_groups
from dally.cluster.topology import Shape
from dally.commands.terminal import say
from dally.errors import InputError
from dally.hostlist import expand
from dally.jobs.parallelism import Parallelism
from dally.jobs.training_plan import TrainingPlan
from dally.profiles.files import load_profiles
from dally.profiles.iteration import predict
from dally.profiles.parallel.rank_choice import fastest_order, step_in_order
from dally.profiles.parallel.rank_placement import RankPlacement
from dally.profiles.plan_iteration import predict_by_plan, training_step
from dally.words import plural

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
@click.option(
    "--profile",
    type=click.Path(path_type=Path),
    help="Of a recorded job: go by what its step takes, not by inner axes.",
)
@click.option("--model", help="Transformer that trains by --plan: likewise, with --global-batch.")
@click.option("--global-batch", type=click.IntRange(min=1), help="Its samples a step, of all replicas.")
@click.option("--rank-of", "node", help="Print the place of this node in the order, from 0.")
def command(
    nodelist: str | None,
    cluster: str,
    plan_text: str,
    tasks_per_node: int,
    hostfile: Path | None,
    profile: Path | None,
    model: str | None,
    global_batch: int | None,
    node: str | None,
) -> None:
    """Print the nodes of a job in the order in which they should get its ranks.

    Slurm gives ranks by the names of nodes. Where names do not follow the racks, a ring over all ranks
    crosses racks again and again. The order keeps groups of neighbouring ranks in one rack where it can.

    Which axis sends most, a plan alone does not tell. With the profile of a record, or model and batch of a
    transformer, the order is that with the shortest step.
    """
    if hostfile and node:
        raise click.UsageError("--hostfile and --rank-of exclude each other")
    if profile and (model or plan_text):
        other = "--model" if model else "--plan, as it has one of its own,"
        raise click.UsageError(f"--profile and {other} exclude each other")
    if bool(model) != bool(global_batch):
        raise click.UsageError("--model and --global-batch go together")
    if not nodelist:
        raise InputError("no nodes are given: say --nodes=n[1-4], or run it in a job of Slurm")
    topology, names = load_cluster(cluster), expand(nodelist)
    unknown = [name for name in names if name not in topology.machine_index]
    if unknown:
        raise InputError(f"node {unknown[0]} is not in {cluster}; name its files with --cluster")
    ranks = len(names) * tasks_per_node
    plan, step_s = _known_step(plan_text or f"dp={ranks}", profile, model, global_batch or 0)
    if plan.gpus != ranks:
        there = f"{plural(len(names), 'node')} x {plural(tasks_per_node, 'task')}"
        raise InputError(f"plan {plan} has {plural(plan.gpus, 'rank')}, and there are {there}")
    group, by_name = group_machines(plan, tasks_per_node), [topology.machine_index[name] for name in names]
    if step_s is None:
        order = rank_order(topology, by_name, group)
    else:
        on = topology.shape(tuple((machine, tasks_per_node) for machine in sorted(by_name)))
        order = fastest_order(topology, by_name, plan, tasks_per_node, partial(step_s, on))
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
    if step_s is not None:
        after_s, before_s = (
            step_in_order(topology, each, tasks_per_node, partial(step_s, on)) for each in (order, by_name)
        )
        say(f"a step is expected to take {after_s:.3g} s, {before_s:.3g} s by name", err=True)
    elif group > 1 and topology.top > 1:
        before, after = (spanning_groups(topology, each, group, 1) for each in (by_name, order))
        level = topology.levels[1]
        say(f"groups of {group} nodes that span several of {level}: {after}, {before} by name", err=True)


def _known_step(
    plan_text: str, path: Path | None, model: str | None, batch: int
) -> tuple[Parallelism, Callable[[Shape, RankPlacement], float] | None]:
    """The plan, and what gives the seconds of a step with ranks placed so; None if nothing does.

    Raises:
        InputError: The profile is not that of one record, or model and plan do not fit.
    """
    if path is not None:
        (found, *others) = load_profiles(path).profiles
        if others or found.plan is None or not found.events:
            raise InputError(f"{path} is not the profile of one record; name the file of one")
        return Parallelism.parse(found.plan), lambda on, ranks: predict(found, on, ranks=ranks).iteration_s
    if model is None:
        return Parallelism.parse(plan_text), None
    plan = TrainingPlan.parse(plan_text)

    def by_plan(on: Shape, ranks: RankPlacement) -> float:
        steps = (training_step(model, plan, batch, kind, ranks) for kind in on.gpu_types)
        return max(predict_by_plan(step, ranks.lowest).iteration_s for step in steps)

    return plan.parallelism, by_plan
