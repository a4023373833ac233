"""Where a cluster has networks that no job may span, no policy spans them, whatever it does."""

from dataclasses import replace

import pytest

from dally.cluster.free import FreeGpus
from dally.cluster.toml_file import read_toml
from dally.cluster.topology import Topology
from dally.errors import CapacityError, InputError
from dally.jobs.job import Gang, Job, JobKind
from dally.policies.common.backfill import reserve
from dally.policies.common.placements import find_victims
from dally.policies.registry import parse_policy, policy_names, policy_type
from dally.profiles.costs import CostModel
from dally.state import ClusterState
from dally.testing.worlds import simulate

UNAWARE = {name for name in policy_names() if not policy_type(name).islands}


def islands(text: str = "") -> Topology:
    """Two networks of 20 and 12 GPUs, machines a1 to a5 in two racks, and b1 to b3 in one."""
    return read_toml(text or WIDE, "islands", "islands")


_LINKS = "{ bandwidth_bps = 200e9, latency_s = 1e-6 }"
_HEAD = f"""
islands = true
[[levels]]
name = "machine"
gpus = 4
fabric = {_LINKS}
uplink = {_LINKS}
[[levels]]
name = "rack"
uplink = {_LINKS}
"""
WIDE = f"""{_HEAD}
[[levels]]
name = "pod"
uplink = {_LINKS}
[[machines]]
names = "a[1-5],b[1-3]"
[[switches]]
name = "ra1"
machines = "a[1-3]"
[[switches]]
name = "ra2"
machines = "a[4-5]"
[[switches]]
name = "pa"
switches = "ra[1-2]"
[[switches]]
name = "pb"
machines = "b[1-3]"
uplink = {_LINKS}
[[switches]]
name = "top"
switches = "pa,pb"
"""
FLAT = f"""{_HEAD}
[[machines]]
names = "a[1-3],b[1-2]"
[[switches]]
name = "ra"
machines = "a[1-3]"
[[switches]]
name = "rb"
machines = "b[1-2]"
[[switches]]
name = "top"
switches = "ra,rb"
"""


def test_a_gang_is_held_by_one_island_or_not_at_all() -> None:
    free = FreeGpus(islands())
    top = free.topology.top
    assert free.lowest_level(Gang(20)) == top - 1
    assert free.lowest_level(Gang(21)) is None
    assert free.find(Gang(21), top) is None
    root = free.topology.root.index
    assert (free.held(root, Gang(1)), free.on(root)) == (20, 32)
    assert {machine for machine, _ in free.pack(root, Gang(12))} in ({0, 1, 2}, {5, 6, 7})


def test_a_gang_larger_than_every_island_is_refused_with_their_size() -> None:
    with pytest.raises(CapacityError, match=r"a gang of 24 GPUs .* has 32, 20 of them in one network"):
        CostModel(islands()).best_level(Gang(24))


def test_a_shallow_island_shares_nothing_with_its_neighbour() -> None:
    cluster = islands()
    assert [cluster.domains[index].name for index in cluster.root.children] == ["pa", "pb"]
    assert cluster.level_of(((5, 1), (7, 1))) == 1
    assert cluster.level_of(((0, 1), (7, 1))) == cluster.top


def test_nobody_is_stopped_for_gpus_of_another_island() -> None:
    cluster = islands(FLAT)
    state = ClusterState(cluster, CostModel(cluster))
    for name, machine in (("x", 0), ("y", 3)):
        state.submit(Job(name, 0, 4, 100), 0.0)
        state.start(name, ((machine, 4),), 0.0, 0.0, 1.0)
    wanted = Job("z", 0, 12, 100)
    victims = find_victims(state.free, [state.jobs["y"], state.jobs["x"]], wanted, cluster.top)
    assert [victim.job_id for victim in victims] == ["x"]
    released = [(50.0, state.jobs["y"].allocation), (80.0, state.jobs["x"].allocation)]
    assert reserve(state.free, wanted, cluster.top, released).shadow_s == 80


def jobs(elastic: bool) -> list[Job]:
    sizes = [1, 8, 12, 20, 2, 16, 6, 4, 12, 8, 1, 20, 10, 3]
    return [
        replace(job, kind=JobKind.ELASTIC, min_gpus=1, max_gpus=32) if elastic and number % 2 else job
        for number, gpus in enumerate(sizes)
        for job in [Job(f"j{number}", 20.0 * number, gpus, 50.0 + 90 * (number % 4), user=f"u{number % 3}")]
    ]


@pytest.mark.parametrize("elastic", [False, True])
@pytest.mark.parametrize("policy", [name for name in policy_names() if name not in UNAWARE])
def test_no_policy_spans_two_islands(policy: str, elastic: bool) -> None:
    cluster = islands()
    ended = simulate(policy, cluster, jobs(elastic))
    assert ended.outcome.complete
    placed = [event["gpus"] for event in ended.events if isinstance(event.get("gpus"), dict)]
    assert len(placed) >= len(jobs(elastic))
    assert [machines for machines in placed if len({name[0] for name in machines}) > 1] == []


@pytest.mark.parametrize("policy", sorted(UNAWARE))
def test_a_policy_that_might_span_them_is_refused(policy: str) -> None:
    cluster = islands()
    with pytest.raises(
        InputError, match=f"policy {policy} cannot be used on islands: jobs may not span its 2"
    ):
        parse_policy(policy).build(ClusterState(cluster, CostModel(cluster)))
