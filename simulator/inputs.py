"""The inputs of a simulation, read and checked as a whole before anything is written."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from dally.bounds import check_number
from dally.cluster import load_cluster, scaled_links
from dally.cluster.topology import Topology
from dally.errors import CapacityError, InputError
from dally.jobs.job import Job
from dally.jobs.knowledge import Knowledge, Known
from dally.jobs.priority import DEFAULT_RATIO, check_ratio
from dally.profiles.costs import CostModel
from dally.profiles.files import load_profiles
from dally.profiles.gang_iteration import Split
from dally.traces import Workload, assign_models, load_trace
from dally.traces.workload import changed, remade
from simulator.failures import Outage, random_outages, read_outages
from simulator.priorities import PrioritySettings, load_priorities
from simulator.scenario import Scenario


@dataclass(frozen=True, slots=True)
class Inputs:
    """The inputs of a simulation, as named on the command line.

    Attributes:
        trace: Trace file, or a generated workload.
        cluster: Cluster file, folder, or a shipped cluster.
        profiles: Folder of profiles, or a shipped set; None: no model is sensitive to the network.
        mixed_profiles: Allow profiles measured on CPUs beside those of GPUs.
        model_mix: Models for jobs that name none; None leaves them without.
        seed: Of generators, model mix, failures, and what is drawn for schedulers to know.
        knowledge: What schedulers know of how long jobs take.
        estimate_error: Of exact knowledge: sigma of its log-normal error; 0 for none.
        profile_error: Sigma of the log-normal error of the profiles that schedulers see; 0 for none.
        hide_profiles: Whether schedulers see neither profiles nor plans, though jobs run as these say.
        learn_costs: Whether step times of running jobs correct what schedulers believe of costs.
        congestion: Factor on the bandwidth of all links outside the machines.
        contention: Jobs that share links slow each other.
        batch_split: How gangs over several GPU types split their batch.
        restart_s: What every restart costs, seconds; None: what the profiles say.
        assumed_slowdown: What each level farther apart costs gangs without a profile; see `CostModel`.
        priorities: File that says how Slurm would work out priorities, or `on`; None: no job has any.
        priority_ratio: Of a job's priority, what others need to overtake it; None: the default.
        failures: File of machine failures; None for none.
        mtbf_h: Mean hours between failures of a machine, drawn by the seed; None for none.
        repair_h: Hours to repair such a failure.
        checkpoint_s: A failure loses the work since the last multiple of this, seconds.
        trace_format: Format of the trace file; None to recognise it.
        start_s: Keep jobs submitted at this second or later.
        end_s: Keep jobs submitted before this second.
        min_duration_s: Raise shorter durations to this, seconds.
        group: Keep jobs of this group; None for all.
        arrival_scale: Factor on submission times; 0.5 puts twice the load on the cluster.
        load: Scale submission times so that jobs ask for this share of the cluster's GPU time until the last
            submission; None leaves them.
        skip_bad: Leave out and count wrong rows and jobs larger than the cluster.
    """

    trace: str
    cluster: str
    profiles: str | None = None
    model_mix: str | None = None
    mixed_profiles: bool = False
    seed: int = 0
    knowledge: Knowledge = Knowledge.EXACT
    estimate_error: float = 0.0
    profile_error: float = 0.0
    learn_costs: bool = False
    hide_profiles: bool = False
    congestion: float = 1.0
    contention: bool = False
    batch_split: Split = Split.EVEN
    assumed_slowdown: float = 1.0
    restart_s: float | None = None
    priorities: str | None = None
    priority_ratio: float | None = None
    failures: Path | None = None
    mtbf_h: float | None = None
    repair_h: float = 4.0
    checkpoint_s: float = 1800.0
    trace_format: str | None = None
    start_s: float | None = None
    end_s: float | None = None
    min_duration_s: float = 0.0
    group: str | None = None
    arrival_scale: float = 1.0
    load: float | None = None
    skip_bad: bool = False

    @property
    def knows(self) -> Known:
        """What schedulers know.

        Raises:
            InputError: An error is out of range, or that of running times of another class than exact.
        """
        return Known(
            self.knowledge,
            self.estimate_error,
            self.seed,
            self.profile_error,
            self.learn_costs,
            self.hide_profiles,
        )


def load_scenario(inputs: Inputs) -> Scenario:
    """Read and check all inputs.

    Raises:
        InputError: One of them is wrong.
        CapacityError: A job is larger than the cluster, and `skip_bad` is False.
    """
    check_number("checkpoint_s", inputs.checkpoint_s)
    check_number("restart_s", inputs.restart_s or 0.0, 0)
    check_number("assumed_slowdown", inputs.assumed_slowdown, 1, 1000)
    check_number("congestion", inputs.congestion)
    knows = inputs.knows
    priorities, ratio = _priorities(inputs)
    topology = load_cluster(inputs.cluster)
    if inputs.congestion != 1:
        topology = scaled_links(topology, inputs.congestion)
    profiles = load_profiles(inputs.profiles, inputs.mixed_profiles) if inputs.profiles else None
    outages = _outages(inputs, topology)
    workload = load_trace(
        inputs.trace,
        seed=inputs.seed,
        trace_format=inputs.trace_format,
        skip_bad=inputs.skip_bad,
        min_duration_s=inputs.min_duration_s,
        start_s=inputs.start_s,
        end_s=inputs.end_s,
        group=inputs.group,
    )
    if (knows.profile_error or knows.hides_profiles) and not inputs.profiles:
        _check_plans(workload, knows)
    jobs = workload.jobs
    if inputs.model_mix is not None:
        jobs = assign_models(jobs, inputs.model_mix, inputs.seed)
    fitting, too_large = split_by_fit(jobs, topology, inputs.skip_bad)
    scale = _arrival_scale(inputs, fitting, topology)
    return Scenario(
        topology=topology,
        profiles=profiles,
        jobs=_rescaled(fitting, scale),
        too_large=_rescaled(too_large, scale),
        outages=outages,
        checkpoint_s=inputs.checkpoint_s,
        facts=_facts(inputs, workload, scale, priorities, ratio),
        knows=knows,
        contention=inputs.contention,
        batch_split=inputs.batch_split,
        restart_s=inputs.restart_s,
        assumed_slowdown=inputs.assumed_slowdown,
        priorities=priorities,
        priority_ratio=ratio,
    )


def _check_plans(workload: Workload, knows: Known) -> None:
    """Refuse errors of profiles, and their hiding, where there are neither profiles nor plans."""
    if any(job.plan for job in workload.jobs):
        return
    if knows.hides_profiles:
        raise InputError("hide_profiles is on, but there are no profiles to hide")
    raise InputError(f"profile_error is {knows.profile_error:g}, but there are no profiles to be wrong")


def _priorities(inputs: Inputs) -> tuple[PrioritySettings | None, float]:
    """How priorities are worked out, and how far they count."""
    if inputs.priorities is None:
        if inputs.priority_ratio is not None:
            raise InputError("priority_ratio needs priorities: a file, or on")
        return None, 0.0
    ratio = DEFAULT_RATIO if inputs.priority_ratio is None else inputs.priority_ratio
    check_ratio(ratio)
    return load_priorities(inputs.priorities), ratio


def split_by_fit(jobs: Sequence[Job], topology: Topology, skip: bool) -> tuple[Sequence[Job], Sequence[Job]]:
    """The jobs that the cluster can hold, each on the machines of its partition, and those too large for it.

    Raises:
        CapacityError: A job is too large and `skip` is False; the message names it.
    """
    costs = CostModel(topology)
    if topology.partitions:
        jobs = changed(jobs, lambda job: _in_partition(job, topology))

    def fits(job: Job) -> bool:
        try:
            _check_partition(job, topology)
            costs.best_level(job.gang)
        except CapacityError as error:
            if skip:
                return False
            refused = CapacityError(f"job {job.job_id}: {error}")
            refused.hint = "--skip-bad leaves such jobs out"
            raise refused from error
        return True

    too_large = [job for job in jobs if not fits(job)]
    return (jobs if not too_large else [job for job in jobs if fits(job)]), too_large


def _in_partition(job: Job, topology: Topology) -> Job:
    """The job with the machines of its partition as the only ones; as it was where these are all."""
    nodes = topology.partitions.get(job.partition)
    if nodes is None or len(nodes) == len(topology.machines):
        return job
    both = nodes if job.machines is None else nodes & job.machines
    return remade(job, "machines", both) if both else job


def _check_partition(job: Job, topology: Topology) -> None:
    """Refuse a job of a partition that has no machine of the cluster, or none of those that the job names."""
    if not (job.partition and topology.partitions):
        return
    nodes = topology.partitions.get(job.partition)
    if nodes is None:
        known = ", ".join(sorted(topology.partitions))
        raise CapacityError(f"partition {job.partition!r} has no machine of the cluster; known: {known}")
    if job.machines is not None and nodes.isdisjoint(job.machines):
        raise CapacityError(f"partition {job.partition!r} has none of the machines that it names")


def _arrival_scale(inputs: Inputs, jobs: Sequence[Job], topology: Topology) -> float:
    """The factor on submission times: as given, or what makes the load of the jobs that fit.

    Raises:
        InputError: It or the load is out of range, both are given, or all jobs come at once.
    """
    if inputs.load is None:
        check_number("arrival_scale", inputs.arrival_scale, 0)
        return inputs.arrival_scale
    if inputs.arrival_scale != 1:
        raise InputError("load and arrival_scale exclude each other: a load sets the scale")
    check_number("load", inputs.load)
    span_s = jobs[-1].submit_s - jobs[0].submit_s if jobs else 0.0
    if not span_s:
        raise InputError("load needs jobs that are submitted at different times")
    asked_gpu_s = sum(job.gpus * job.duration_s for job in jobs)
    return asked_gpu_s / (inputs.load * topology.gpus * span_s)


def _rescaled(jobs: Sequence[Job], factor: float) -> Sequence[Job]:
    return jobs if factor == 1 else changed(jobs, lambda job: replace(job, submit_s=job.submit_s * factor))


def _outages(inputs: Inputs, topology: Topology) -> Callable[[], Iterable[Outage]]:
    """Gives the outages from the beginning each time it is called."""
    if inputs.failures is not None and inputs.mtbf_h is not None:
        raise InputError("failures from a file and at a rate (mtbf_h) exclude each other")
    if inputs.mtbf_h is not None:
        mtbf_s, repair_s = inputs.mtbf_h * 3600, inputs.repair_h * 3600
        check_number("mtbf_h", inputs.mtbf_h)
        check_number("repair_h", inputs.repair_h)
        return lambda: random_outages(topology, mtbf_s, repair_s, inputs.seed)
    outages = [] if inputs.failures is None else read_outages(inputs.failures, topology)
    return lambda: outages


def _facts(
    inputs: Inputs, workload: Workload, scale: float, priorities: PrioritySettings | None, ratio: float
) -> dict[str, Any]:
    """Where everything came from, for run.json."""
    return {
        "seed": inputs.seed,
        "knowledge": inputs.knowledge,
        "trace": {
            "source": workload.source,
            "format": workload.format,
            "sha256": workload.sha256,
            "origin": workload.origin,
            "dropped": dict(workload.dropped),
            "clamped": workload.clamped,
            "outside": workload.outside,
            **({} if inputs.group is None else {"group": inputs.group}),
        },
        "arrival_scale": scale,
        **({} if inputs.load is None else {"load": inputs.load}),
        "cluster_source": inputs.cluster,
        "congestion": inputs.congestion,
        **({"contention": True} if inputs.contention else {}),
        **({} if inputs.batch_split is Split.EVEN else {"batch_split": inputs.batch_split}),
        **({} if inputs.assumed_slowdown == 1.0 else {"assumed_slowdown": inputs.assumed_slowdown}),
        **({"estimate_error": inputs.estimate_error} if inputs.estimate_error else {}),
        **({"profile_error": inputs.profile_error} if inputs.profile_error else {}),
        **({"learn_costs": True} if inputs.learn_costs else {}),
        **({"hide_profiles": True} if inputs.hide_profiles else {}),
        **({} if inputs.restart_s is None else {"restart_s": inputs.restart_s}),
        "profiles": inputs.profiles,
        "model_mix": inputs.model_mix,
        "failures": {
            "file": None if inputs.failures is None else str(inputs.failures),
            "mtbf_h": inputs.mtbf_h,
            "repair_h": inputs.repair_h if inputs.mtbf_h else None,
        },
        **({} if priorities is None else {"priorities": asdict(priorities), "priority_ratio": ratio}),
    }
