"""The indexed offers of `dally` against the published loop, written out plainly."""

from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st

from dally.cluster.topology import Allocation
from dally.jobs.job import Gang, Job
from dally.plan import Start
from dally.policies.registry import parse_policy
from dally.profiles.costs import CostModel
from dally.scheduling.scheduler import Scheduler
from dally.state import ClusterState, JobState
from dally.testing.worlds import racks

NOW = 10_000.0
T_MACHINE, T_RACK = 3000.0, 6000.0
POLICY = "dally:timers=manual,machine=3,rack=6,lease_s=1000"


@dataclass(frozen=True)
class Waiting:
    """A job that waits: its gang, when it arrived, and how it ran before (speed, end), if it did."""

    gpus: int
    submit_s: int
    speed: float | None
    stop_s: int


JOBS = st.lists(
    st.builds(
        Waiting,
        gpus=st.integers(1, 14),
        submit_s=st.integers(0, 7).map(lambda n: 1000 * n),
        speed=st.sampled_from([None, None, 1.0, 0.5, 0.25]),
        stop_s=st.integers(7, 10).map(lambda n: 1000 * n),
    ),
    min_size=1,
    max_size=15,
)
SIZES = st.lists(st.lists(st.integers(1, 8), min_size=1, max_size=3), min_size=1, max_size=3)


def published_loop(state: ClusterState, ranks: dict[str, tuple[float, float, int]]) -> dict[str, Allocation]:
    """Each waiting job in order of its claim takes the closest placement that its timers allow."""
    free, starts = state.free, {}
    gpus_per_machine = max(machine.gpus for machine in state.topology.machines)
    gpus_per_rack = max(domain.gpus for domain in state.topology.level_domains[1])
    with free.trial():
        for name in sorted(state.waiting, key=lambda name: ranks[name]):
            job = state.jobs[name]
            gpus, starve = job.job.gpus, NOW - job.origin_s
            for level, allowed in (
                (0, True),
                (1, starve >= T_MACHINE or gpus > gpus_per_machine),
                (2, starve >= T_RACK or gpus > gpus_per_rack),
            ):
                allocation = free.find(Gang(gpus), level) if allowed else None
                if allocation is not None:
                    free.take(allocation)
                    starts[name] = allocation
                    break
    return starts


def wait_again(world: Scheduler, job: JobState, speed: float, stop_s: float) -> None:
    """Let a job run for a second somewhere on an empty cluster and lose its GPUs."""
    level = world.state.free.lowest_level(job.job.gang)
    assert level is not None
    allocation = world.state.free.find(job.job.gang, level)
    assert allocation is not None
    world.start(job.job_id, allocation, stop_s - 1, speed)
    world.preempt(job.job_id, stop_s)


@settings(max_examples=300, deadline=None)
@given(sizes=SIZES, waiting=JOBS, data=st.data())
def test_one_round_of_offers_is_the_published_loop(
    sizes: list[list[int]], waiting: list[Waiting], data: st.DataObject
) -> None:
    topology = racks(sizes)
    state = ClusterState(topology, CostModel(topology))
    world = Scheduler(state, parse_policy(POLICY).build(state))
    ranks: dict[str, tuple[float, float, int]] = {}
    fitting = [each for each in waiting if each.gpus <= topology.gpus]
    for order, each in enumerate(sorted(fitting, key=lambda each: each.submit_s)):
        job = world.submit(Job(f"j{order}", each.submit_s, each.gpus, 1e6), each.submit_s)
        ranks[job.job_id] = (0.0, float("-inf"), order)
        if each.speed is not None:
            wait_again(world, job, each.speed, each.stop_s)
            ranks[job.job_id] = (each.speed, each.stop_s - 1, order)
    for machine in range(len(topology.machines)):
        taken = data.draw(st.integers(0, topology.machines[machine].gpus))
        if taken:
            state.free.take(((machine, taken),))
    expected = published_loop(state, ranks)
    decisions = world.decide(NOW).decisions
    assert {each.job_id: each.allocation for each in decisions if isinstance(each, Start)} == expected
