"""What advice rests on: a cluster, profiles, a history, and what is assumed of the models that jobs train."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise, product

from analysis.advise.history import PastJob, SiteHistory
from analysis.advise.naming import NamingRules
from dally.cluster.topology import Allocation, Topology
from dally.errors import CapacityError, InputError
from dally.hostlist import expand
from dally.jobs.job import Job, JobKind
from dally.jobs.knowledge import Known
from dally.jobs.priority import DEFAULT_RATIO
from dally.jobs.segment_rule import SegmentRule
from dally.profiles.costs import CostModel
from dally.profiles.files import ProfileSet
from dally.traces import assign_models, parse_mix
from dally.traces.workload import remade
from dally.words import plural
from simulator.inputs import split_by_fit
from simulator.priorities import PrioritySettings
from simulator.scenario import Scenario

CHECKPOINT_S = 1800.0


@dataclass(frozen=True, slots=True)
class ModelAssumption:
    """One assumption about which models the jobs train whose names tell none.

    Attributes:
        name: What it is called.
        mix: The models and their weights; empty: none of them is sensitive to the network.
        seed: Of the draw.
    """

    name: str
    mix: str = ""
    seed: int = 1


@dataclass(frozen=True, slots=True)
class Site:
    """A cluster and its history.

    Attributes:
        topology: The cluster.
        profiles: Profiles of the models; None: no job is sensitive to the network.
        history: What really ran on it.
        rules: Which models the jobs' names tell.
        knows: What all schedulers know of how long jobs take, today's too.
        arrival_scale: Factor on submission times in what is compared; 0.5 doubles the load.
        priorities: How Slurm works out priorities there; None: all jobs have the same.
    """

    topology: Topology
    profiles: ProfileSet | None
    history: SiteHistory
    rules: NamingRules
    knows: Known
    arrival_scale: float = 1.0
    priorities: PrioritySettings | None = None

    @property
    def models(self) -> tuple[str, ...]:
        """The models that have a profile."""
        return self.profiles.models if self.profiles else ()

    def stand_ins(self) -> tuple[str, ...]:
        """Which GPU type's profiles stand in for which on this cluster, in words."""
        types = self.topology.gpu_types
        return self.profiles.stand_ins(product(self.models, types)) if self.profiles else ()

    def as_it_was(self) -> Scenario:
        """The jobs with the times they really ran, distance costing nothing: it is in these times already."""
        return self._scenario([past.job for past in self.history.jobs], None)

    def under(
        self,
        case: ModelAssumption,
        priority_ratio: float = DEFAULT_RATIO,
        segments: SegmentRule | None = None,
    ) -> Scenario:
        """The jobs with their models under a case, at the pace that they would have had placed best.

        Args:
            case: The case.
            priority_ratio: How far priorities count, as in dally.toml, if there are any.
            segments: What sets the segments of jobs with several machines; None: they stay as told.
        """
        costs = CostModel(self.topology, self.profiles)
        jobs = [self._placed_best(past, job, costs) for past, job in self._with_models(case)]
        if segments is not None:
            jobs = [with_segments(job, segments, costs) for job in jobs]
        if self.arrival_scale != 1:
            jobs = [remade(job, "submit_s", job.submit_s * self.arrival_scale) for job in jobs]
        return self._scenario(jobs, self.profiles, priority_ratio)

    @property
    def costs_nothing(self) -> bool:
        """Whether `under` gives what `as_it_was` does: distance costs nothing, and the load is as it was."""
        planned = any(past.job.plan for past in self.history.jobs)
        return self.profiles is None and self.arrival_scale == 1 and not planned

    def named(self) -> int:
        """How many jobs' models are told by their names, or by the history itself."""
        return sum(bool(job.model) for _, job in self._with_models(ModelAssumption("named")))

    def unknown(self, case: ModelAssumption) -> int:
        """How many jobs with several GPUs have no model under a case, so that distance costs them nothing."""
        return sum(job.gpus > 1 and not job.model for _, job in self._with_models(case))

    def priced(self, case: ModelAssumption) -> int:
        """How many jobs with several machines have a model or a plan that tells what distance costs them."""
        costs = CostModel(self.topology, self.profiles)
        return sum(
            several_machines(job)
            and (job.model in self.models or (job.plan is not None and not costs.plan_gap(job)))
            for _, job in self._with_models(case)
        )

    def located(self) -> int:
        """How many jobs' nodes are known, of those with more than one GPU."""
        return sum(self.real_placement(past) is not None for past in self.history.jobs if past.job.gpus > 1)

    def elsewhere(self) -> tuple[int, str]:
        """How many jobs ran on nodes that the cluster lacks, and one of these; 0 and empty if none did."""
        strange = [name for past in self.history.jobs if (name := self._strange_node(past))]
        return len(strange), strange[0] if strange else ""

    def _strange_node(self, past: PastJob) -> str:
        """The first node of a job that the cluster lacks; empty if it has all, or they are not known."""
        try:
            names = expand(past.nodes) if past.nodes else ()
        except InputError:
            return ""
        return next((name for name in names if name not in self.topology.machine_index), "")

    def _with_models(self, case: ModelAssumption) -> list[tuple[PastJob, Job]]:
        """Each job with that of the history, its model told, by its name, or drawn as a case has it."""
        jobs = []
        for past in self.history.jobs:
            named = not past.job.model and past.job.job_name
            model = self.rules.model_of(past.job.job_name, self.models) if named else past.job.model
            jobs.append(remade(past.job, "model", model) if model != past.job.model else past.job)
        drawn: Sequence[Job] = assign_models(jobs, parse_mix(case.mix), case.seed) if case.mix else jobs
        return list(zip(self.history.jobs, drawn, strict=True))

    def _placed_best(self, past: PastJob, job: Job, costs: CostModel) -> Job:
        """The job with what the network cost it, where it really ran, taken out of its time."""
        place = self.real_placement(past)
        if place is None or not job.model:
            return job
        slowdown = max(1.0, costs.cost(job, place).slowdown)
        return replace(job, duration_s=job.duration_s / slowdown)

    def real_placement(self, past: PastJob) -> Allocation | None:
        """The GPUs that a job really had, shared out evenly over its nodes; None if that is not known."""
        try:
            names = expand(past.nodes) if past.nodes else ()
        except InputError:
            return None
        index, gpus = self.topology.machine_index, past.job.gpus
        if not names or len(names) > gpus or any(name not in index for name in names):
            return None
        each, more = divmod(gpus, len(names))
        shares = sorted((index[name], each + (number < more)) for number, name in enumerate(names))
        room = all(count <= self.topology.machines[machine].gpus for machine, count in shares)
        return tuple(shares) if room else None

    def _scenario(
        self, jobs: Sequence[Job], profiles: ProfileSet | None, priority_ratio: float = DEFAULT_RATIO
    ) -> Scenario:
        return Scenario(
            topology=self.topology,
            profiles=profiles,
            jobs=jobs,
            too_large=(),
            outages=tuple,
            checkpoint_s=CHECKPOINT_S,
            facts={},
            knows=self.knows,
            priorities=self.priorities,
            priority_ratio=priority_ratio if self.priorities else 0.0,
        )


def several_machines(job: Job) -> bool:
    """Whether a job has several machines, and as many GPUs on each: what segments are for."""
    each = job.gpus_per_machine
    return job.kind is JobKind.RIGID and each is not None and job.gpus > each


def with_segments(job: Job, rule: SegmentRule, costs: CostModel) -> Job:
    """The job with the segments that a rule sets, or smaller ones where the cluster has too few so large."""
    if not several_machines(job):
        return job
    assert job.gpus_per_machine is not None
    bound = max(len(block.children) for block in costs.topology.level_domains[1])
    while True:
        segment = rule.segment(job.gpus, job.gpus_per_machine, bound)
        ruled = replace(job, segment=segment, spread_segments=False, consolidate_segments=False)
        if segment is None or segment == 1:
            return ruled
        try:
            costs.best_level(ruled.gang)
        except CapacityError:
            bound = segment - 1
        else:
            return ruled


def without_too_large(history: SiteHistory, topology: Topology, skip: bool) -> SiteHistory:
    """The history without jobs that the cluster cannot hold.

    Raises:
        CapacityError: There is one, and `skip` is False.
        InputError: The cluster can hold none.
    """
    fits, too_large = split_by_fit([past.job for past in history.jobs], topology, skip)
    if not fits:
        raise InputError(f"cluster {topology.name} can hold none of {plural(len(too_large), 'job')}")
    fitting = {job.job_id: job for job in fits}
    kept = [
        replace(past, job=fitting[past.job.job_id]) for past in history.jobs if past.job.job_id in fitting
    ]
    return replace(history, jobs=kept, too_large=len(too_large))


LOW, MIDDLE, HIGH, TOLD = "low", "middle", "high", "as told"
ALL = "all"
"""The mix of all models that have a profile, alike."""


def cases(site: Site, mix: str | None, seeds: int) -> list[ModelAssumption]:
    """The cases to simulate, the middle one with the first seed first.

    Low has the half of the mix that distance costs least, high the half that it costs most. There is only one
    case if nothing is to be drawn: all models are told, no mix is given, or there are no profiles.

    Args:
        site: The site.
        mix: Models and weights of the jobs whose models nobody tells; `ALL`: all that have a profile, alike;
            None: they stay unknown, and distance costs them nothing.
        seeds: How many draws of each case.

    Raises:
        InputError: The mix is wrong, or has a model without a profile.
    """
    if mix is None or site.profiles is None or site.named() == len(site.history.jobs):
        return [ModelAssumption(TOLD)]
    parsed = parse_mix(",".join(f"{model}=1" for model in site.models) if mix == ALL else mix)
    if unknown := [model for model in parsed.names if model not in site.models]:
        raise InputError(f"model mix: no profile of {', '.join(unknown)}; there are {', '.join(site.models)}")
    bounds = pairwise((0.0, *parsed.bounds))
    weights = {name: high - low for name, (low, high) in zip(parsed.names, bounds, strict=True)}
    slowdowns = sensitivities(site, list(weights))
    order = sorted(weights, key=lambda model: (slowdowns[model], model))
    mixes = {MIDDLE: weights}
    if len(set(slowdowns.values())) > 1:
        mixes |= {LOW: _half(weights, order), HIGH: _half(weights, order[::-1])}
    return [
        ModelAssumption(name, ",".join(f"{model}={weight:.6g}" for model, weight in parts.items()), seed)
        for name, parts in mixes.items()
        for seed in range(1, seeds + 1)
    ]


def sensitivities(site: Site, models: Sequence[str]) -> dict[str, float]:
    """What distance costs each model: the slowdown of a gang of one machine's size halved over two of them.

    These are the first machine and the last in its network, so the farthest as clusters are usually listed.
    """
    topology = site.topology
    costs, machines = CostModel(topology, site.profiles), topology.machines
    near = (
        place
        for place in range(1, len(machines))
        if topology.level_of(((0, 1), (place, 1))) <= topology.widest
    )
    last = max(near, default=0)
    if last == 0:
        return dict.fromkeys(models, 1.0)
    each = max(1, min(machines[0].gpus, machines[last].gpus) // 2)
    apart = ((0, each), (last, each))
    return {model: costs.cost(Job(model, 0, 2 * each, 1, model=model), apart).slowdown for model in models}


def _half(weights: Mapping[str, float], order: Sequence[str]) -> dict[str, float]:
    """The first models in an order that together have half of the weight, the last of them cut to fit."""
    half, left = {}, 0.5
    for model in order:
        if left > 1e-9:
            half[model] = min(weights[model], left)
            left -= half[model]
    return half
