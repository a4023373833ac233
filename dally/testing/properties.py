"""What must hold for every policy on every cluster and workload: one function a property.

Each takes a policy, by its specification as users type it or as a `PolicySpec`, and a world; it simulates and
asserts. `dally.testing.worlds.worlds` draws worlds.
"""

import io
import json
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from math import inf, isclose
from typing import Any

from dally.cluster import scaled_links
from dally.cluster.topology import Topology
from dally.jobs.job import Job, JobKind
from dally.jobs.knowledge import EXACTLY, Knowledge, Known
from dally.plan import Plan, Wait
from dally.policies.registry import PolicySpec, parse_policy
from dally.profiles.costs import CostModel
from dally.profiles.files import ProfileSet, load_profiles
from dally.profiles.gang_iteration import Split
from dally.runs.records import EventLog
from dally.scheduling.scheduler import Scheduler, told_slowdown
from dally.state import ClusterState, JobHistory, JobState, Phase
from dally.testing.worlds import Result, World, simulate
from simulator.engine import Engine
from simulator.priorities import AccountSettings, PrioritySettings, UserSettings

PROFILES = ProfileSet(
    "all", tuple(each for name in ("dally", "gavel", "pollux") for each in load_profiles(name).profiles)
)
"""Models whose speed depends on the network, on the GPU type, and on how much of the training is done."""
MODELS = ("", "resnet50", "bert-large", "mobilenetv3", "unheard-of", "resnet-50", "transformer", "cifar10")

STEADY_PROFILES = ProfileSet(
    "steady", tuple(each for name in ("dally", "gavel") for each in load_profiles(name).profiles)
)
"""No model whose batch is worth more in the course of training: that a job's speed changed while it ran, a
scheduler that is built anew learns from reports, which simulated jobs do not make."""
STEADY_MODELS = ("", "resnet50", "bert-large", "resnet-50", "transformer")

_QUICK_PRIORITIES = PrioritySettings(
    weight_age=500.0,
    weight_fair_share=1000.0,
    max_age_s=20_000.0,
    half_life_s=20_000.0,
    period_s=300.0,
    accounts={"": AccountSettings(qos_factor=0.5)},
    users={"u0": UserSettings(shares=2.0), "u2": UserSettings(nice=200.0)},
)
"""They change within the few hours that a world lasts."""

MOVES = ("migrate", "resize")
_RESIZE_S = 3.0
_BARE_NAME = re.compile(r"(?<!\bjob )\bj\d+\b")
"""A job of a drawn world is j and a number; where Slurm hides jobs, `job N` is not shown to others."""


class Audit:
    """Replays the event log of a run, and refuses what cannot be."""

    def __init__(self, topology: Topology, jobs: tuple[Job, ...]) -> None:
        self.capacity = {machine.name: machine.gpus for machine in topology.machines}
        self.types = {machine.name: machine.gpu_type for machine in topology.machines}
        self.blocks = {each.name: topology.ancestors[at][1] for at, each in enumerate(topology.machines)}
        self.topology = topology
        self.asked = {job.job_id: job for job in jobs}
        self.used: Counter[str] = Counter()
        self.down: set[str] = set()
        self.held: dict[str, dict[str, int]] = {}
        self.since: dict[str, tuple[float, float, float]] = {}
        self.work: dict[str, float] = dict.fromkeys(self.asked, 0.0)
        self.starts: Counter[str] = Counter()
        self.slack: dict[str, float] = dict.fromkeys(self.asked, 0.1)
        """Ideal seconds that milliseconds of the log may hide; more where a job runs at a high pace."""
        self.now = 0.0

    def read(self, events: list[dict[str, Any]]) -> None:
        """Read all events, in order."""
        moving = Counter((event["t"], event["job"]) for event in events if event["event"] in MOVES)
        for event in events:
            assert event["t"] >= self.now, "time goes back"
            self.now = event["t"]
            # Stops come before starts; a migration is both, and a millisecond may hold two of a job.
            for job in [job for time, job in +moving if time == self.now and job in self.held]:
                moving[self.now, job] -= 1
                self.release(job)
            self.one(event)

    def one(self, event: dict[str, Any]) -> None:
        """Read one event."""
        match event["event"]:
            case "start" | "migrate" | "resize":
                assert event["event"] == "start" or self.asked[event["job"]].preemptible
                self.take(event["job"], event["gpus"], event["slowdown"], event["event"] == "resize")
            case "preempt":
                assert self.asked[event["job"]].preemptible, "a job loses its GPUs that must keep them"
                self.release(event["job"])
            case "end":
                self.release(event["job"])
            case "pace":
                self.repace(event["job"], event["slowdown"])
            case "fail":
                self.release(event["job"])
                self.work[event["job"]] -= event["lost_s"]
            case "machine_down":
                self.down.add(event["machine"])
            case "machine_up":
                self.down.discard(event["machine"])

    def take(self, job: str, gpus: dict[str, int], slowdown: float, resized: bool) -> None:
        """A job starts, moves or goes on with another number of GPUs."""
        wanted = self.asked[job]
        assert job not in self.held, "a job runs twice at once"
        assert wanted.runs_on([*gpus.values()]), "part of a gang starts, or of a copy"
        for machine, count in gpus.items():
            assert wanted.gpus_per_machine in (None, count), "a machine gives another share than asked for"
            self.used[machine] += count
            assert self.used[machine] <= self.capacity[machine], "a GPU is held twice"
            assert machine not in self.down, "a job starts on a machine that is down"
            assert wanted.gpu_type in (None, self.types[machine]), "a GPU of the wrong type"
            assert wanted.machines is None or machine in wanted.machines, "a machine that it must not use"
        if wanted.segment is not None:
            blocks = Counter(self.blocks[machine] for machine in gpus)
            assert all(count % wanted.segment == 0 for count in blocks.values()), "a segment in two blocks"
            if wanted.spread_segments and len(gpus) > wanted.segment:
                assert max(blocks.values()) == wanted.segment, "two segments in a block"
            if wanted.consolidate_segments:
                self.check_close(wanted, gpus)
        self.check_blocks(wanted, gpus)
        cost_s = _RESIZE_S if resized else 6.0 + wanted.gpus  # a restart, unless a profile says more
        ready = self.now + (cost_s if self.starts[job] else 0.0)
        self.starts[job] += 1
        self.held[job], self.since[job] = gpus, (self.now, ready, slowdown)
        self.slack[job] += 0.002 / slowdown

    def check_blocks(self, wanted: Job, gpus: dict[str, int]) -> None:
        """No other job is in the blocks of one that shares them with nobody."""
        mine = {self.blocks[machine] for machine in gpus}
        for other, held in self.held.items():
            if wanted.whole_blocks or self.asked[other].whole_blocks:
                theirs = {self.blocks[machine] for machine in held}
                assert mine.isdisjoint(theirs), "a block is shared with a job that shares with nobody"

    def check_close(self, wanted: Job, gpus: dict[str, int]) -> None:
        """A job is in one domain if any domain below the root has enough machines for it, or blocks."""
        segment, paths = wanted.segment or 1, self.topology.ancestors
        at = {self.topology.machine_index[name] for name in gpus}
        apart = wanted.spread_segments and len(at) > segment
        needed = len(at) // segment if apart else len(at)
        for level in range(1, self.topology.top):
            inside = {(path[int(apart)], path[level]) for path in paths}
            if max(Counter(domain for _, domain in inside).values()) >= needed:
                held = {paths[machine][level] for machine in at}
                assert len(held) == 1, "segments are farther apart than they must be"
                return

    def repace(self, job: str, slowdown: float) -> None:
        """A job goes on at another speed."""
        if job not in self.since:
            return  # it moves at this very moment, and was released for that
        begun, ready, before = self.since[job]
        self.work[job] += max(0.0, self.now - ready) / before
        self.since[job] = begun, max(ready, self.now), slowdown
        self.slack[job] += 0.002 / slowdown

    def release(self, job: str) -> None:
        """A job loses its GPUs."""
        self.used.subtract(self.held.pop(job))
        _, ready, slowdown = self.since.pop(job)
        self.work[job] += max(0.0, self.now - ready) / slowdown


class RebuildingScheduler(Scheduler):
    """Compares each plan with that of a scheduler rebuilt from the snapshot and the jobs."""

    def __init__(self, state: ClusterState, spec: PolicySpec) -> None:
        super().__init__(state, spec.build(state))
        self._spec = spec

    def decide(self, now: float) -> Plan:
        """Decide, and compare with a scheduler that is built at this moment."""
        plan = super().decide(now)
        assert _acts(self._rebuilt(now).decide(now)) == _acts(plan), "a rebuilt policy decides otherwise"
        return plan

    def _rebuilt(self, now: float) -> Scheduler:
        state = ClusterState(self.state.topology, self.state.costs, self.state.knows)
        twin = Scheduler(state, self._spec.build(state))
        twin.policy.restore(json.loads(json.dumps(self.policy.snapshot())))
        twin.beliefs.restore(json.loads(json.dumps(self.beliefs.snapshot())))
        for job in sorted(self.state.jobs.values(), key=lambda job: job.order):
            twin.submit(job.job, now, _history(job))
        for job_id in self.state.running:
            job = self.state.jobs[job_id]
            twin.resume(job_id, job.allocation, job.since_s, job.ready_s, now, job.speed)
        for machine in sorted({*self.state.withheld, *self.state.closed}):
            state.withhold(machine, self.state.withheld.get(machine, 0), machine in self.state.closed)
        return twin


def _history(job: JobState) -> JobHistory:
    return JobHistory(
        job.origin_s,
        job.first_start_s if job.phase is Phase.WAITING or job.first_start_s < job.since_s else inf,
        job.work_before_s,
        job.run_before_s,
        job.training_before_s,
        job.preemptions,
        job.more_before_s,
    )


def _acts(plan: Plan) -> list[object]:
    """What a plan does. Waits are left out: a rebuilt policy explains them again."""
    return [decision for decision in plan.decisions if not isinstance(decision, Wait)]


def every_job_ends_once(policy: str | PolicySpec, world: World) -> None:
    """Each job ends once, no GPU is held twice, no work is lost or made, `decide` changes nothing.

    Simulated again, with each plan asked for once only, it gives the same bytes.
    """
    _holds_each_time(lambda checked: _run(policy, world, checked=checked), world)


def every_job_ends_once_on_shared_links(policy: str | PolicySpec, world: World) -> None:
    """The same on links a hundred times slower, which jobs share; batches are split by speed."""
    _holds_each_time(lambda checked: run_on_slow_links(policy, world, checked), world)


def jobs_run_at_their_true_speed(policy: str | PolicySpec, world: World) -> None:
    """The same with profiles that are far off; each rigid job runs as fast as the right ones say.

    Each plan is asked for once: that to decide changes nothing, `every_job_ends_once` has seen.
    """
    result = _run(policy, world, Known(seed=1, profile_error=1.0), checked=False)
    _holds_throughout(result, world)
    costs, asked = CostModel(world.topology, PROFILES), {job.job_id: job for job in world.jobs}
    index = world.topology.machine_index
    for event in result.events:
        if event["event"] in ("start", *MOVES) and asked[event["job"]].kind is JobKind.RIGID:
            place = tuple((index[machine], gpus) for machine, gpus in event["gpus"].items())
            assert event["slowdown"] == told_slowdown(costs.cost(asked[event["job"]], place))


def a_rebuilt_policy_decides_the_same(
    policy: str | PolicySpec, world: World, knowledge: Knowledge = Knowledge.EXACT
) -> None:
    """At each moment a policy restored from its snapshot, and told of the jobs, decides as the old one."""
    spec = parse_policy(policy) if isinstance(policy, str) else policy
    averaging = spec.policy.averaging(spec.knobs)
    costs = CostModel(world.topology, STEADY_PROFILES, batching=spec.policy.batching, averaging=averaging)
    scheduler = RebuildingScheduler(ClusterState(world.topology, costs, Known(knowledge)), spec)
    jobs = [job if job.model in STEADY_MODELS else replace(job, model="") for job in world.jobs]
    Engine(scheduler, jobs, EventLog(io.StringIO()), world.outages, costs=costs).run()


def much_lower_priority_takes_no_gpus(policy: str | PolicySpec, world: World) -> None:
    """Where priorities count each job still ends once, and none is stopped for one of much lower priority."""
    users = [replace(job, user=f"u{number % 3}") for number, job in enumerate(world.jobs)]
    asked = World(world.topology, tuple(users), world.outages)
    result = simulate(
        policy, asked.topology, asked.jobs, asked.outages, PROFILES, priorities=_QUICK_PRIORITIES
    )
    _holds_throughout(result, asked)


PROPERTIES = (
    every_job_ends_once,
    every_job_ends_once_on_shared_links,
    jobs_run_at_their_true_speed,
    a_rebuilt_policy_decides_the_same,
    much_lower_priority_takes_no_gpus,
)
"""All of them, for `pytest.mark.parametrize`."""


def _run(policy: str | PolicySpec, world: World, knows: Known = EXACTLY, checked: bool = True) -> Result:
    return simulate(policy, world.topology, world.jobs, world.outages, PROFILES, knows=knows, checked=checked)


def run_on_slow_links(policy: str | PolicySpec, world: World, checked: bool = True) -> Result:
    """Run on links a hundred times slower than those of the world, which jobs share."""
    return simulate(
        policy,
        scaled_links(world.topology, 0.01),
        world.jobs,
        world.outages,
        PROFILES,
        contention=True,
        split=Split.PROPORTIONAL,
        checked=checked,
    )


def _holds_throughout(result: Result, world: World) -> None:
    """Check a run from its first event to its records."""
    audit = Audit(world.topology, world.jobs)
    audit.read(result.events)
    for event in result.events:
        bare = _BARE_NAME.search(event.get("reason", ""))
        assert bare is None, "a reason names a job without the word job, so it cannot be hidden from others"
    assert not audit.held
    assert sorted(result.by_job) == sorted(job.job_id for job in world.jobs)
    for record in result.outcome.records:
        assert record.status == "COMPLETED"
        assert isclose(record.jct_s, record.queue_s + record.run_s, rel_tol=1e-6, abs_tol=1e-9)
        slack = audit.slack[record.job_id]
        work = audit.work[record.job_id]
        assert abs(work - record.ideal_s) <= max(2e-3 * record.ideal_s, slack), "work is lost or made"


def _holds_each_time(simulate_it: Callable[[bool], Result], world: World) -> None:
    first, second = simulate_it(True), simulate_it(False)
    assert first.log == second.log
    assert first.outcome == second.outcome
    _holds_throughout(first, world)
