"""Random and hand-made clusters and workloads, and a simulation of them in memory that checks the policy."""

import io
import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Any

from hypothesis import strategies as st

from dally.cluster.idle_cluster import IdleCluster
from dally.cluster.topology import Link, Machine, Topology
from dally.cluster.topology_build import Attached, Switch, build_topology
from dally.errors import CapacityError
from dally.jobs.job import Job, JobKind
from dally.jobs.knowledge import EXACTLY, Known
from dally.jobs.priority import DEFAULT_RATIO, may_take_gpus
from dally.plan import Plan, Preempt
from dally.policies.base import Policy
from dally.policies.registry import PolicySpec, parse_policy
from dally.profiles.contention import SharedLinks
from dally.profiles.costs import CostModel
from dally.profiles.files import ProfileSet
from dally.profiles.gang_iteration import Split
from dally.runs.records import EventLog, JobRecord
from dally.scheduling.scheduler import Scheduler
from dally.state import ClusterState
from dally.testing.described import described
from simulator.engine import Engine, Outcome
from simulator.failures import Outage
from simulator.priorities import PrioritySettings, SimulatedPriorities

FABRIC = Link(4.8e12)
NIC = Link(200e9, 2.5e-6)
CORE = Link(100e9, 50e-6)


def racks(sizes: Sequence[Sequence[int]], gpu_types: Sequence[str] = ("a",), depth: int = 3) -> Topology:
    """A cluster of racks, each a list of the GPUs of its machines; types alternate by machine.

    Depth 2 puts all machines on one switch, depth 4 puts two pods between the racks and the core.
    """
    attached = [
        Attached(
            Machine(f"r{rack}m{place}", gpus, gpu_types[place % len(gpu_types)], FABRIC),
            "core" if depth == 2 else f"r{rack}",
            NIC,
        )
        for rack, machines in enumerate(sizes)
        for place, gpus in enumerate(machines)
    ]
    pods = [Switch(f"p{pod}", "core", CORE) for pod in range(min(2, len(sizes)))] if depth == 4 else []
    above = [f"p{rack % 2}" if depth == 4 else "core" for rack in range(len(sizes))]
    leaves = [Switch(f"r{rack}", parent, CORE) for rack, parent in enumerate(above)] if depth > 2 else []
    return build_topology("test", attached, [Switch("core", None), *pods, *leaves])


@dataclass(frozen=True)
class World:
    """A cluster, a workload that it can hold, and failures."""

    topology: Topology
    jobs: tuple[Job, ...]
    outages: tuple[Outage, ...]


class CheckedScheduler(Scheduler):
    """Asks the policy twice and holds it to its word: the same plan and memo, and nothing changed."""

    def __init__(self, state: ClusterState, policy: Policy) -> None:
        super().__init__(state, policy)
        self._decisions = 0

    def decide(self, now: float) -> Plan:
        """Decide, and check that deciding is pure: the first thirty times, then each tenth."""
        self._decisions += 1
        if self._decisions > 30 and self._decisions % 10:
            return super().decide(now)
        self.advance(now)
        before = described(self.policy)
        free = [self.state.free.on(domain.index) for domain in self.state.topology.domains]
        plan = super().decide(now)
        self._check_priorities(plan)
        assert described(self.policy) == before, "deciding has changed the policy"
        again = super().decide(now)
        assert again == plan
        assert described(again.memo) == described(plan.memo)
        assert [self.state.free.on(domain.index) for domain in self.state.topology.domains] == free
        return plan

    def _check_priorities(self, plan: Plan) -> None:
        """Nobody is stopped for a job of a much lower priority, whatever the policy."""
        jobs, ratio = self.state.jobs, 0.0 if self.policy.orders_by_priority else self.state.priority_ratio
        for each in plan.decisions:
            for taker in each.by if isinstance(each, Preempt) else ():
                enough = may_take_gpus(jobs[taker].priority, jobs[each.job_id].priority, ratio)
                assert enough, f"{each.job_id} is stopped for {taker}, of much lower priority"


@dataclass(frozen=True)
class Result:
    """What a simulation in memory left."""

    outcome: Outcome
    log: str

    @property
    def events(self) -> list[dict[str, Any]]:
        """The events, in order."""
        return [json.loads(line) for line in self.log.splitlines()]

    @property
    def by_job(self) -> dict[str, JobRecord]:
        """The records by job."""
        return {record.job_id: record for record in self.outcome.records}


def simulate(
    policy: str | PolicySpec,
    topology: Topology,
    jobs: Iterable[Job],
    outages: Iterable[Outage] = (),
    profiles: ProfileSet | None = None,
    checkpoint_s: float = 600.0,
    contention: bool = False,
    split: Split = Split.EVEN,
    knows: Known = EXACTLY,
    until_s: float = inf,
    priorities: PrioritySettings | None = None,
    priority_ratio: float = DEFAULT_RATIO,
    checked: bool = True,
) -> Result:
    """Simulate in memory, no further than `until_s`; if `checked`, with each plan asked for twice."""
    spec = parse_policy(policy) if isinstance(policy, str) else policy
    costs = CostModel(
        topology, profiles, split, spec.policy.batching, averaging=spec.policy.averaging(spec.knobs)
    )
    ratio = 0.0 if priorities is None else priority_ratio
    state = ClusterState(topology, costs.believed(knows), knows, ratio)
    links = SharedLinks(costs) if contention else None
    log = io.StringIO()
    scheduler = (CheckedScheduler if checked else Scheduler)(state, spec.build(state))
    clock = [0.0]
    engine = Engine(
        scheduler,
        jobs,
        EventLog(log),
        outages,
        checkpoint_s,
        links,
        stop=lambda: clock[-1] >= until_s,
        progress=lambda now, _: clock.append(now),
        costs=costs,
        priorities=None if priorities is None else SimulatedPriorities(priorities, topology.gpus),
    )
    return Result(engine.run(), log.getvalue())


@st.composite
def worlds(
    draw: st.DrawFn,
    models: Sequence[str] = ("",),
    failing: bool = True,
    varying: bool = False,
    filtered: bool = False,
    segments: bool = False,
    longest: int = 200,
    whole_blocks: bool = False,
) -> World:
    """Small random worlds: up to 9 machines in trees of 2 to 4 levels, 1 or 2 GPU types, up to 12 jobs.

    With `varying` there may be 3 types, those of Gavel's profiles, and forked and elastic jobs; with
    `filtered` jobs that accept some machines only. With `segments` up to 16 machines are alike, and the
    machines of rigid jobs come in segments, which may have to be apart, or close together. With
    `whole_blocks` there may be rigid jobs that share their blocks with nobody. A job takes up to `longest`
    times 97.3 s.
    """
    if segments:
        gpus = draw(st.integers(1, 4))
        sizes = [[gpus] * count for count in draw(st.lists(st.integers(2, 4), min_size=1, max_size=4))]
    else:
        sizes = draw(st.lists(st.lists(st.integers(1, 8), min_size=1, max_size=3), min_size=1, max_size=3))
    types = draw(st.sampled_from([("a",), ("a", "b"), *([("k80", "p100", "v100")] if varying else [])]))
    topology = racks(sizes, types, depth=draw(st.sampled_from([2, 3, 3, 4])))
    jobs = draw(
        st.lists(_jobs(topology, models, varying, filtered, segments, longest), min_size=1, max_size=12)
    )
    if whole_blocks:
        jobs = [replace(job, whole_blocks=job.kind is JobKind.RIGID and draw(st.booleans())) for job in jobs]
    named = sorted(jobs, key=lambda job: job.submit_s)
    renamed = tuple(replace(job, job_id=f"j{number}") for number, job in enumerate(named))
    outages = draw(_outages(topology)) if failing else ()
    return World(topology, renamed, outages)


@st.composite
def _jobs(
    draw: st.DrawFn,
    topology: Topology,
    models: Sequence[str],
    varying: bool,
    filtered: bool,
    segments: bool,
    longest: int,
) -> Job:
    gpu_type = draw(st.sampled_from([None, None, *topology.gpu_types]))
    kind = draw(st.sampled_from([JobKind.RIGID, JobKind.RIGID, *JobKind])) if varying else JobKind.RIGID
    accepted = [each for each in topology.machines if gpu_type in (None, each.gpu_type)]
    machines = None
    if filtered and draw(st.booleans()):
        accepted = draw(st.lists(st.sampled_from(accepted), min_size=1, unique=True))
        machines = frozenset(each.name for each in accepted)
    gpus, share = draw(_gangs([each.gpus for each in accepted], kind))
    segment = None
    if segments and kind is JobKind.RIGID:
        share = share or draw(st.integers(1, max(each.gpus for each in accepted)))
        able = [each.name for each in accepted if each.gpus >= share]
        gpus, segment = draw(_segments(topology, able, share))
    job = Job(
        job_id="",
        submit_s=draw(st.integers(0, 20)) * 500.1,
        gpus=gpus,
        duration_s=draw(st.integers(1, longest)) * 97.3,
        model=draw(st.sampled_from(models)),
        gpu_type=gpu_type,
        kind=kind,
        min_gpus=draw(st.integers(1, gpus)) if kind is JobKind.ELASTIC else None,
        max_gpus=draw(st.integers(gpus, 2 * gpus)) if kind is JobKind.ELASTIC else None,
        max_copies=draw(st.integers(1, 3)) if kind is JobKind.FORKED else 1,
        gpus_per_machine=share,
        machines=machines,
        segment=segment,
        preemptible=draw(st.sampled_from([True, True, False])),
    )
    return job if segment is None else draw(_laid_out(topology, job))


@st.composite
def _laid_out(draw: st.DrawFn, topology: Topology, job: Job) -> Job:
    """A job whose segments are apart, close together, both or neither, as an idle cluster can hold them."""
    spread, close = draw(st.booleans()), draw(st.booleans())
    for layout in ((spread, close), (spread, False), (False, close)):
        asked = replace(job, spread_segments=layout[0], consolidate_segments=layout[1])
        try:
            IdleCluster(topology).best_level(asked.gang)
        except CapacityError:
            continue
        return asked
    return job


@st.composite
def _gangs(draw: st.DrawFn, sizes: Sequence[int], kind: JobKind) -> tuple[int, int | None]:
    """GPUs of a gang that machines of such sizes can hold, and of half of them the share on each machine."""
    if kind is JobKind.FORKED:
        return draw(st.integers(1, max(sizes))), None
    if draw(st.booleans()):
        return draw(st.integers(1, sum(sizes))), None
    share = draw(st.integers(1, max(sizes)))
    return share * draw(st.integers(1, sum(size >= share for size in sizes))), share


@st.composite
def _segments(draw: st.DrawFn, topology: Topology, able: Sequence[str], share: int) -> tuple[int, int]:
    """GPUs of a gang in segments that machines with room for its share hold, and machines of a segment."""
    blocks = Counter(topology.ancestors[topology.machine_index[name]][1] for name in able)
    segment = draw(st.integers(1, max(blocks.values())))
    whole = sum(count // segment for count in blocks.values())
    return share * segment * draw(st.integers(1, whole)), segment


@st.composite
def _outages(draw: st.DrawFn, topology: Topology) -> tuple[Outage, ...]:
    """Up to one outage of each machine, all repaired."""
    machines = draw(st.sets(st.integers(0, len(topology.machines) - 1), max_size=3))
    starts = [float(draw(st.integers(0, 60)) * 250) for _ in machines]
    lasting = [float(draw(st.integers(1, 20)) * 250) for _ in machines]
    return tuple(
        sorted(
            Outage(down, each, down + for_s)
            for each, down, for_s in zip(machines, starts, lasting, strict=True)
        )
    )
