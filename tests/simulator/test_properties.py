"""What must hold for every policy on every cluster and workload."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dally.cluster import scaled_links
from dally.cluster.topology import Topology
from dally.jobs.job import Job, JobKind
from dally.jobs.knowledge import Known
from dally.policies.registry import PolicySpec, policy_names
from dally.profiles.costs import CostModel
from dally.profiles.files import ProfileSet, load_profiles
from dally.profiles.gang_iteration import Split
from dally.scheduling.scheduler import told_slowdown
from tests.worlds import SEARCHING, Result, World, racks, simulate, worlds

VARIANTS = (
    "dally:lease_s=600",
    "dally:timers=manual,machine=1,rack=2,lease_s=900",
    "dally:timers=no-wait,lease_s=700",
    "dally:timers=consolidated",
    "fifo:placement=consolidated,backfill=easy",
    "sjf:backfill=easy,depth=2",
    "srtf:placement=consolidated,backfill=easy",
    "slurm:switch_wait_s=900,bf_max_job_test=1",
    "tiresias:promote=1,limits=1000+5000+9000,quantum_s=90,regroup_s=500",
    "tiresias:order=arrival,interval_s=50,limits=pollux,quantum_s=0",
    "gandiva:slice_s=400",
)
POLICIES = [*policy_names(), *VARIANTS]
PROFILES = ProfileSet(
    "all", tuple(each for name in ("dally", "gavel", "pollux") for each in load_profiles(name).profiles)
)
"""Models whose speed depends on the network, on the GPU type, and on how much of the training is done."""
MODELS = ("", "resnet50", "bert-large", "mobilenetv3", "unheard-of", "resnet-50", "transformer", "cifar10")
WORLDS = worlds(models=MODELS, varying=True)

every_policy = pytest.mark.parametrize("policy", POLICIES)


def on_worlds(policy: str, most: int, check: Callable[[World], None]) -> None:
    """Check what must hold on so many random worlds; on fewer where deciding is a search, and takes long."""
    examples = max(2, 2 * most // 5) if policy in SEARCHING else most
    more = settings(max_examples=examples, suppress_health_check=[HealthCheck.too_slow])
    more(given(world=WORLDS)(check))()


def run(policy: str | PolicySpec, world: World) -> Result:
    return simulate(policy, world.topology, world.jobs, world.outages, PROFILES)


def run_on_slow_links(policy: str, world: World) -> Result:
    """Links a hundred times slower than those of the worlds, which jobs share; batches split by speed."""
    topology = scaled_links(world.topology, 0.01)
    split = Split.PROPORTIONAL
    return simulate(policy, topology, world.jobs, world.outages, PROFILES, contention=True, split=split)


MOVES = ("migrate", "resize")
RESIZE_S = 3.0


def restart_s(gpus: int) -> float:
    return 6.0 + gpus


class Audit:
    """Replays an event log and refuses what cannot be."""

    def __init__(self, topology: Topology, jobs: tuple[Job, ...]) -> None:
        self.capacity = {machine.name: machine.gpus for machine in topology.machines}
        self.types = {machine.name: machine.gpu_type for machine in topology.machines}
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
        wanted = self.asked[job]
        assert job not in self.held, "a job runs twice at once"
        assert wanted.runs_on([*gpus.values()]), "part of a gang starts, or of a copy"
        for machine, count in gpus.items():
            assert wanted.gpus_per_machine in (None, count), "a machine gives another share than asked for"
            self.used[machine] += count
            assert self.used[machine] <= self.capacity[machine], "a GPU is held twice"
            assert machine not in self.down, "a job starts on a machine that is down"
            assert wanted.gpu_type in (None, self.types[machine]), "a GPU of the wrong type"
        cost_s = RESIZE_S if resized else restart_s(wanted.gpus)
        ready = self.now + (cost_s if self.starts[job] else 0.0)
        self.starts[job] += 1
        self.held[job], self.since[job] = gpus, (self.now, ready, slowdown)
        self.slack[job] += 0.002 / slowdown

    def repace(self, job: str, slowdown: float) -> None:
        if job not in self.since:
            return  # it moves at this very moment, and was released for that
        begun, ready, before = self.since[job]
        self.work[job] += max(0.0, self.now - ready) / before
        self.since[job] = begun, max(ready, self.now), slowdown
        self.slack[job] += 0.002 / slowdown

    def release(self, job: str) -> None:
        self.used.subtract(self.held.pop(job))
        _, ready, slowdown = self.since.pop(job)
        self.work[job] += max(0.0, self.now - ready) / slowdown


@every_policy
def test_every_job_ends_once_and_no_gpu_is_held_twice(policy: str) -> None:
    on_worlds(policy, 10, lambda world: holds_throughout(run(policy, world), world))


@every_policy
def test_every_job_ends_once_and_keeps_its_work_where_jobs_share_links(policy: str) -> None:
    on_worlds(policy, 6, lambda world: holds_throughout(run_on_slow_links(policy, world), world))


@every_policy
def test_every_job_ends_and_runs_at_its_true_pace_where_profiles_are_wrong(policy: str) -> None:
    on_worlds(policy, 6, lambda world: runs_true(policy, world))


def runs_true(policy: str, world: World) -> None:
    """Run with profiles that are far off; each rigid job goes as fast as the right ones say."""
    wrong = Known(seed=1, profile_error=1.0)
    result = simulate(policy, world.topology, world.jobs, world.outages, PROFILES, knows=wrong)
    holds_throughout(result, world)
    costs, asked = CostModel(world.topology, PROFILES), {job.job_id: job for job in world.jobs}
    index = world.topology.machine_index
    for event in result.events:
        if event["event"] in ("start", *MOVES) and asked[event["job"]].kind is JobKind.RIGID:
            place = tuple((index[machine], gpus) for machine, gpus in event["gpus"].items())
            assert event["slowdown"] == told_slowdown(costs.cost(asked[event["job"]], place))


def holds_throughout(result: Result, world: World) -> None:
    """Check a run from its first event to its records."""
    audit = Audit(world.topology, world.jobs)
    audit.read(result.events)
    assert not audit.held
    assert sorted(result.by_job) == sorted(job.job_id for job in world.jobs)
    for record in result.outcome.records:
        assert record.status == "COMPLETED"
        assert record.jct_s == pytest.approx(record.queue_s + record.run_s)
        slack = audit.slack[record.job_id]
        assert audit.work[record.job_id] == pytest.approx(record.ideal_s, rel=2e-3, abs=slack), (
            "work is lost or made"
        )


@every_policy
def test_same_inputs_give_the_same_bytes(policy: str) -> None:
    on_worlds(policy, 6, lambda world: comes_out_the_same(lambda: run(policy, world)))


@every_policy
def test_same_inputs_give_the_same_bytes_where_jobs_share_links(policy: str) -> None:
    on_worlds(policy, 5, lambda world: comes_out_the_same(lambda: run_on_slow_links(policy, world)))


def comes_out_the_same(simulate_it: Callable[[], Result]) -> None:
    """Run something twice and compare all that it leaves."""
    first, second = simulate_it(), simulate_it()
    assert first.log == second.log
    assert first.outcome == second.outcome


@every_policy
@settings(max_examples=15, deadline=None)
@given(gpus=st.lists(st.integers(1, 12), min_size=1, max_size=8))
def test_a_lone_job_runs_at_once_for_its_ideal_time(policy: str, gpus: list[int]) -> None:
    """Jobs far apart meet an idle cluster: nobody waits, nobody is preempted."""
    jobs = [Job(f"j{number}", number * 1e6, size, 5000.0) for number, size in enumerate(gpus)]
    for record in simulate(policy, racks([[4, 4], [4]]), jobs).outcome.records:
        assert record.queue_s == 0
        assert record.run_s == pytest.approx(5000)
        assert record.preemptions == 0


@every_policy
def test_overload_ends_and_takes_no_longer_than_the_work(policy: str) -> None:
    """Four times more work than GPU time to do it before the last arrival: the run still ends."""
    jobs = [Job(f"j{n}", n * 100.0, 1 + n % 8, 20_000.0) for n in range(40 if policy in SEARCHING else 120)]
    result = simulate(policy, racks([[8, 8], [8, 8]]), jobs)
    assert {record.status for record in result.outcome.records} == {"COMPLETED"}
    work = sum(job.gpus * job.duration_s for job in jobs)
    assert result.outcome.end_s <= 3 * work / 32 + 12_000


@pytest.mark.parametrize("policy", policy_names())
def test_output_stays_small_under_churn(policy: str) -> None:
    """Some simulators write 0.1 MB a job; a job here leaves a few lines."""
    jobs = [Job(f"j{n}", n * 50.0, 1 + n % 8, 8_000.0) for n in range(60 if policy in SEARCHING else 150)]
    result = simulate(policy, racks([[8, 8], [8, 8]]), jobs)
    assert len(result.log) / len(jobs) < 8_000
