"""Sets of nodes, of which a job may use any one: by `--constraint=[a|b]`, `--switches` and `--nodelist`."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import replace
from math import inf

from dally.cluster.free import most_units
from dally.errors import CapacityError, InputError
from dally.hostlist import MOST_NAMES, expand, fold
from dally.jobs.job import Gang, Job
from dally.state import ClusterState
from slurm_plugin.client.slurm import SlurmJob, SlurmNode
from slurm_plugin.constraint import alternatives, satisfies
from slurm_plugin.controller.managed_job import ManagedJob
from slurm_plugin.request import Request


def named_nodes(request: Request, most: int = MOST_NAMES) -> frozenset[str]:
    """The nodes of a job's own `--nodelist`; none if it has none, one that cannot be read, or of too many."""
    try:
        return frozenset(expand(request.nodes, most)) if request.nodes else frozenset()
    except InputError:
        return frozenset()


def is_pinned(job: SlurmJob, request: Request) -> bool:
    """Whether a job has a node list that is not its user's own, but of Dally's making."""
    return bool(job.required_nodes) and {*job.required_nodes} != named_nodes(request, len(job.required_nodes))


def with_nodes_of_now(managed: ManagedJob, job: SlurmJob, request: Request) -> Request:
    """What a waiting job asks for, with the nodes that a person has set since (`scontrol update NodeList=`).

    Once it was released onto nodes, its node list may be of Dally's making, and is what it was known to be.

    Raises:
        InputError: There are too many.
    """
    if managed.placed_once:
        return replace(request, nodes=managed.request.nodes)
    return with_slurms_nodes(job, request)


def with_slurms_nodes(job: SlurmJob, request: Request) -> Request:
    """What a job asks for that Dally has not placed: the nodes that Slurm has for it count before its mark's.

    Raises:
        InputError: There are too many.
    """
    return replace(request, nodes=fold(job.required_nodes)) if is_pinned(job, request) else request


def has_exactly(asked: Job, min_nodes: int, named: frozenset[str]) -> bool:
    """Whether a job that must have the named nodes has them if it may use no other."""
    each = asked.gpus_per_machine
    if each is None:
        return len(named) == 1 and min_nodes <= 1
    return asked.gpus == each * len(named)


def node_sets(
    request: Request, constraint: str, nodes: Mapping[str, SlurmNode], usable: frozenset[str]
) -> list[frozenset[str]]:
    """The nodes that a job may use; if all of them must share a feature, those with each of the features.

    Args:
        request: What its user told Dally.
        constraint: Its `--constraint`.
        nodes: All nodes, by name.
        usable: Names of those that it may use otherwise.
    """
    if named := named_nodes(request):
        usable &= named
    each = alternatives(constraint)
    if len(each) < 2:
        return [usable]
    return [frozenset(name for name in usable if satisfies(one, nodes[name].features)) for one in each]


def in_one_of(
    partitions: Iterable[str], sets: Iterable[frozenset[str]], nodes: Mapping[str, SlurmNode]
) -> list[frozenset[str]]:
    """Of each set the nodes of each partition: a job runs in one of those that it names."""
    each = [
        frozenset(name for name in names if part in nodes[name].partitions)
        for names in sets
        for part in partitions
    ]
    return [*dict.fromkeys(each)]


def on_switches(
    sets: Iterable[frozenset[str]], switches: int, gang: Gang, state: ClusterState
) -> list[frozenset[str]]:
    """Of each set the nodes on so many leaf switches: on those that have most for a gang, now or in all."""
    found = dict[frozenset[str], None]()
    ancestors, machines = state.topology.ancestors, state.topology.machine_index
    for names in sets:
        leaves = defaultdict[int, set[str]](set)
        for name in sorted(names & machines.keys()):
            leaves[ancestors[machines[name]][1]].add(name)
        if switches == 1:
            found.update((frozenset(leaf), None) for leaf in leaves.values())
            continue
        free = {name: state.free.on(machines[name]) for leaf in leaves.values() for name in leaf}
        in_all = {name: state.topology.machines[machines[name]].gpus for name in free}
        for gpus in (free, in_all):
            held = [
                (most_units(state.topology, gang, ((machines[name], gpus[name]) for name in leaf)), leaf)
                for leaf in leaves.values()
            ]
            best = [leaf for _, leaf in sorted(held, key=lambda each: -each[0])]
            found[frozenset[str]().union(*best[:switches])] = None
    return [*found]


def chosen(sets: Iterable[frozenset[str]], gang: Gang, state: ClusterState) -> frozenset[str] | None:
    """The set on which a gang can start now; else one on which it could if jobs that may be stopped left.

    Of several such it is the one with most free GPUs, or the one that the gang had. None if it fits on none
    of them, whatever is free.
    """
    fitting = [each for each in sets if fits(gang._replace(machines=each), state)]
    if len(fitting) < 2:
        return fitting[0] if fitting else None
    for names in fitting:
        if state.free.lowest_level(gang._replace(machines=names)) is not None:
            return names
    stoppable = Counter[int]()
    for job_id in state.running:
        if state.jobs[job_id].job.preemptible:
            stoppable.update(dict(state.jobs[job_id].allocation))
    machines = state.topology.machine_index

    def merit(names: frozenset[str]) -> tuple[bool, int, bool]:
        ours = [machines[name] for name in names & machines.keys()]
        could_have = ((machine, state.free.on(machine) + stoppable[machine]) for machine in ours)
        units = most_units(state.topology, gang, could_have)
        return units >= gang.units, sum(map(state.free.on, ours)), names == gang.machines

    return max(fitting, key=merit)


def fits(gang: Gang, state: ClusterState) -> bool:
    """Whether the cluster could hold a gang if nobody else were there."""
    try:
        state.best_level(gang)
    except CapacityError:
        return False
    return True


def switches_until_s(request: Request, since_s: float) -> float:
    """Until when a job that waits since then insists on its `--switches`; -inf if it has none."""
    return since_s + request.switch_wait_s if request.switches else -inf
