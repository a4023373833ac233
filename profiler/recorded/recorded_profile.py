"""A profile out of recorded runs of one training: what a step communicates, and how long it took there."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from statistics import median

from dally import __version__
from dally.cluster.topology import Allocation, Topology, slowest
from dally.errors import InputError
from dally.profiles.checks import add_trust
from dally.profiles.given import StepTime, check_name, step_points
from dally.profiles.parallel.rank_placement import RankPlacer
from dally.profiles.schema import (
    EVENT_SCHEMA,
    TIERS,
    Compute,
    Env,
    Model,
    PointLink,
    PointShape,
    Profile,
    ProfileMode,
    Provenance,
    Quality,
    Timing,
)
from profiler.recorded.plan_recognition import recognise
from profiler.recorded.record import RankRecord, RecordedRun
from profiler.recorded.recorded_events import recorded_step
from profiler.recorded.recorded_stages import recorded_stages


@dataclass(frozen=True, slots=True)
class RecordedJob:
    """What records do not tell of a training.

    Attributes:
        name: What jobs call the model.
        gpu_type: Slurm's name of the GPUs; None for any.
        local_batch: Samples of a GPU in a step; None if unknown.
        precision: Of the passes; None if unknown.
    """

    name: str
    gpu_type: str | None = None
    local_batch: int | None = None
    precision: str | None = None


def recorded_profile(
    job: RecordedJob,
    runs: Sequence[RecordedRun],
    topology: Topology,
    typed: Sequence[StepTime] = (),
    source: str = "recorded",
    utc_time: str = "",
) -> Profile:
    """A profile of a training.

    Its events are those of the run whose links were fastest, its measured steps those of all runs; of several
    at one place, the median.

    Args:
        job: What jobs call it.
        runs: One or more, of jobs that train the same by the same plan, with a GPU for each rank.
        topology: The cluster on which they ran.
        typed: Step times of it that were measured otherwise.
        source: How the records came about.
        utc_time: When they were recorded, ISO 8601.

    Raises:
        InputError: They train by different plans, a rank left no record, ranks do not fill one host after the
            other, a host is not in the cluster, or what ranks send is not known.
    """
    plans = {str(recognise(run.records).plan): run for run in runs}
    if len(plans) > 1:
        named = " and ".join(f"{run.folder} by {plan}" for plan, run in plans.items())
        raise InputError(f"they are not one training: {named}")
    places = {run.folder: _allocation(run, topology) for run in runs}
    first = min(runs, key=lambda run: (topology.level_of(places[run.folder]), run.records[0].step_s))
    lacking = next((record for record in first.records if record.lacks), None)
    if lacking is not None:
        raise InputError(
            f"{first.folder}: rank {lacking.rank}: {lacking.lacks}. Its step took {lacking.step_s:.3g} s: "
            "type such times of two places in"
        )
    recognised, place = recognise(first.records), places[first.folder]
    shape, ranks = topology.shape(place), RankPlacer(topology).place(place)
    step = recorded_stages(first.records, recognised.traffic, shape, ranks)
    step = step or recorded_step(first.records, shape, ranks)
    if not step.events:
        raise InputError(f"{first.folder}: its ranks send each other nothing in a step")
    compute_s = step.backward_s + step.optimizer_s
    times = [*_step_times(runs, places, topology), *typed]
    profile = Profile(
        schema=EVENT_SCHEMA,
        provenance=Provenance(
            ProfileMode.NCCL if first.records[0].launched else ProfileMode.GLOO,
            source,
            "own measurement",
            f"dally {__version__}",
            utc_time,
        ),
        env=Env(gpu_type=job.gpu_type, gpu_count=len(first.records)),
        model=Model(check_name(job.name), None, None, None, job.local_batch, None, (), None, job.precision),
        compute=Compute(None, step.backward_s, step.optimizer_s, None, None, stages=step.stages),
        tiers=step_points(times, compute_s),
        quality=Quality(flags=tuple(f"unsure: {doubt}" for doubt in recognised.doubts)),
        plan=str(recognised.plan),
        events=step.events,
        curves=step.curves,
    )
    return add_trust(profile)


def _step_times(
    runs: Sequence[RecordedRun], places: Mapping[Path, Allocation], topology: Topology
) -> list[StepTime]:
    """A step time for each place; places with more ranks on one host than on another are left out."""
    found: dict[tuple[str, PointShape, PointLink | None], list[RankRecord]] = defaultdict(list)
    for run in runs:
        place = places[run.folder]
        if len({gpus for _, gpus in place}) == 1:
            shape = PointShape(len(place), place[0][1], None)
            rings = topology.shape(place).rings
            crossed = slowest([ring.link for ring in rings]) if len(place) > 1 else None
            link = PointLink(crossed.bandwidth_bps, crossed.latency_s) if crossed else None
            tier = TIERS[min(topology.level_of(place), len(TIERS) - 1)]
            found[tier, shape, link].append(run.records[0])
    return [
        StepTime(
            tier,
            shape,
            Timing(median(each.step_s for each in there), None, None, sum(each.steps for each in there)),
            link,
        )
        for (tier, shape, link), there in found.items()
    ]


def _allocation(run: RecordedRun, topology: Topology) -> Allocation:
    """The GPUs of a run, which ranks fill one machine after the other."""
    machines = rank_machines(run, topology)
    filled = [machine for machine, _ in groupby(machines)]
    if len(filled) != len(set(filled)):
        raise InputError(f"{run.folder}: ranks do not fill one host after the other, as those of jobs do")
    return tuple(sorted(Counter(machines).items()))


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
