"""How long the steps of recorded jobs took, and how their GPUs lay."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from statistics import median

from dally.cluster.topology import Topology
from dally.errors import InputError
from dally.profiles.given import StepTime
from dally.profiles.schema import TIERS, PointShape, Timing
from profiler.recorded.plan_recognition import recognise
from profiler.recorded.record import RankRecord, RecordedRun


def step_times(runs: Sequence[RecordedRun], topology: Topology) -> list[StepTime]:
    """A step time for each place at which one training was recorded; of several runs there, the median.

    Args:
        runs: Of jobs that train the same by the same plan, with a GPU for each rank.
        topology: The cluster on which they ran.

    Raises:
        InputError: They train by different plans, a rank left no record, ranks lie unevenly, or a host is not
            in the cluster.
    """
    plans = {str(recognise(run.records).plan): run for run in runs}
    if len(plans) > 1:
        named = " and ".join(f"{run.folder} by {plan}" for plan, run in plans.items())
        raise InputError(f"they are not one training: {named}")
    found: dict[tuple[str, PointShape], list[RankRecord]] = defaultdict(list)
    for run in runs:
        found[_place(run, topology)].append(run.records[0])
    return [
        StepTime(
            tier,
            shape,
            Timing(median(each.step_s for each in there), None, None, sum(each.steps for each in there)),
        )
        for (tier, shape), there in found.items()
    ]


def _place(run: RecordedRun, topology: Topology) -> tuple[str, PointShape]:
    """The tier and shape of a run."""
    machines = Counter(rank_machines(run, topology))
    if len(set(machines.values())) > 1:
        named = {topology.machines[machine].name: count for machine, count in machines.items()}
        shown = ", ".join(f"{count} on {name}" for name, count in sorted(named.items()))
        raise InputError(f"{run.folder}: ranks lie unevenly ({shown}); a profile has as many on each host")
    level = topology.level_of(tuple(sorted(machines.items())))
    shape = PointShape(len(machines), machines.total() // len(machines), None)
    return TIERS[min(level, len(TIERS) - 1)], shape


def rank_machines(run: RecordedRun, topology: Topology) -> list[int]:
    """The index of the machine on which each rank ran, by rank.

    Raises:
        InputError: A rank left no record, or ran on a host that is not in the cluster.
    """
    records = run.records
    if len(records) < records[0].world:
        raise InputError(f"{run.folder}: {len(records)} of {records[0].world} ranks left a record, all must")
    return [_machine(record.host, run, topology) for record in records]


def _machine(host: str, run: RecordedRun, topology: Topology) -> int:
    """The index of a host, which may have told its name with its domain."""
    for name in (host, host.partition(".")[0]):
        if name in topology.machine_index:
            return topology.machine_index[name]
    raise InputError(f"{run.folder}: it ran on {host}, which is not in cluster {topology.name}")
