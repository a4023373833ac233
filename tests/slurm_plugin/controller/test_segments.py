"""Jobs in segments: every policy keeps them whole, Slurm starts them, and what tears one later is told."""

from pathlib import Path
from typing import Any

import pytest

from dally.cluster.topology import Topology
from dally.jobs.job import Gang
from dally.policies.registry import policy_names
from dally.testing.worlds import racks
from slurm_plugin.client.block_topology import BlockTopology
from slurm_plugin.client.slurm import Reservation
from slurm_plugin.controller.earliest_nodes import GpuHold, earliest_start
from slurm_plugin.controller.failed_starts import WITH_SEGMENT
from slurm_plugin.controller.journal import read_events
from slurm_plugin.controller.managed_job import JobPhase
from tests.slurm_plugin.fake_job import SubmitSpec
from tests.slurm_plugin.worlds import FakeSite

FOUR = racks([[4] * 4] * 4)
NAMES = [machine.name for machine in FOUR.machines]
BLOCKS = BlockTopology({4: {name: name[:2] for name in NAMES}}, takes_segments=True)
TROUBLE = ("segment_torn", "released", "start_failed", "start_declined")


def site_of_blocks(folder: Path, policy: str = "fifo") -> FakeSite:
    site = FakeSite(folder, FOUR, policy)
    site.slurm.told_blocks = BLOCKS
    return site


def plain(site: FakeSite, **spec: Any) -> str:
    """A job of Slurm's own."""
    return site.slurm.submit(SubmitSpec(user="bob", held=False, **spec))


def in_segments(site: FakeSite, nodes: int, segment: int, **more: Any) -> str:
    return site.submit(
        **{"nodes": nodes, "gpus_per_node": 4, "run_time_s": 300.0, "segment": segment, **more}
    )


@pytest.mark.slow
@pytest.mark.parametrize("policy", policy_names())
def test_every_policy_starts_jobs_in_whole_segments(tmp_path: Path, policy: str) -> None:
    site = site_of_blocks(tmp_path, policy)
    ones = [in_segments(site, 1, 1, run_time_s=200.0 + 100 * more) for more in range(6)]
    sizes = ((4, 2), (8, 4), (6, 3), (4, 4), (2, 16), (8, 2))
    asked = {in_segments(site, nodes, segment): segment for nodes, segment in sizes}
    site.run_to(6000)
    assert {site.states().get(job, "COMPLETED") for job in (*ones, *asked)} == {"COMPLETED"}
    assert site.events(*TROUBLE) == []
    starts = [each for each in read_events(tmp_path) if each["event"] == "start" and each["job"] in asked]
    assert {each["job"] for each in starts} == {*asked}
    assert [BLOCKS.torn([*each["gpus"]], asked[each["job"]]) for each in starts] == [""] * len(starts)


PODS = racks([[4] * 4] * 4, depth=4)
LARGER = BlockTopology(
    {4: BLOCKS.block_of[4], 8: {name: "r[0,2]" if name[1] in "02" else "r[1,3]" for name in NAMES}},
    takes_segments=True,
)


@pytest.mark.slow
@pytest.mark.parametrize("policy", policy_names())
def test_every_policy_lays_segments_out_as_their_user_says(tmp_path: Path, policy: str) -> None:
    site = FakeSite(tmp_path, PODS, policy)
    site.slurm.told_blocks = LARGER
    ones = [in_segments(site, 1, 1, run_time_s=200.0 + 100 * more) for more in range(6)]
    asked = (
        (4, 2, 1, 0),
        (3, 1, 1, 0),
        (4, 4, 1, 0),
        (4, 2, 0, 1),
        (6, 2, 0, 1),
        (4, 2, 1, 1),
        (2, 16, 1, 1),
    )
    layout = {
        in_segments(site, nodes, segment, spreads_segments=bool(spread), consolidates_segments=bool(close)): (
            segment,
            bool(spread),
            bool(close),
        )
        for nodes, segment, spread, close in asked
    }
    site.run_to(8000)
    assert {site.states().get(job, "COMPLETED") for job in (*ones, *layout)} == {"COMPLETED"}
    assert site.events(*TROUBLE) == []
    starts = [each for each in read_events(tmp_path) if each["event"] == "start" and each["job"] in layout]
    assert {each["job"] for each in starts} == {*layout}
    for each in starts:
        assert LARGER.refusal([*each["gpus"]], *layout[each["job"]]) == "", each["job"]


def test_a_job_whose_segments_spread_waits_for_another_block_and_says_so(tmp_path: Path) -> None:
    site = FakeSite(tmp_path, PODS, "fifo")
    site.slurm.told_blocks = LARGER
    for name in ("r0m0", "r1m0", "r2m0"):
        site.slurm.set_node(name, "down")
    close = in_segments(site, 4, 2, consolidates_segments=True)
    late = in_segments(site, 4, 2, consolidates_segments=True)
    apart = in_segments(site, 8, 2, spreads_segments=True)
    site.run_to(10)
    assert {name[:2] for name in site.nodes(close)} == {"r3"}
    assert site.states()[late] == "PENDING"
    said = "16 GPUs asked for; 8 are free in segments of 2 machines, close together"
    assert site.managed(late).reason.startswith(said)
    said = "32 GPUs asked for; 24 are free in segments of 2 machines, each segment in another block"
    assert site.managed(apart).reason.startswith(said)
    site.run_to(400)
    assert {name[:2] for name in site.nodes(late)} == {"r3"}, (
        "two nodes of two blocks would do, but not for it"
    )
    assert site.events(*TROUBLE) == []


def test_the_layout_of_segments_is_slurms_where_it_takes_no_segments_or_the_job_has_none(
    tmp_path: Path,
) -> None:
    site = site_of_blocks(tmp_path)
    without = in_segments(site, 4, 0, spreads_segments=True)
    site.run_to(5)
    (event,) = [each for each in read_events(tmp_path, without) if each["event"] == "released"]
    assert "--spread-segments fixes the placement" in event["reason"]


@pytest.mark.parametrize(
    ("cluster", "slurms", "nodes"),
    [(FOUR, LARGER, 8), (PODS, BlockTopology({4: {name: f"b{name[3:]}" for name in NAMES}}, True), 4)],
)
def test_the_layout_of_segments_is_slurms_where_its_blocks_are_not_those_of_the_cluster(
    tmp_path: Path, cluster: Topology, slurms: BlockTopology, nodes: int
) -> None:
    """Nobody knows of blocks of eight in the first cluster, and the second says that they lie another way."""
    site = FakeSite(tmp_path, cluster, "fifo")
    site.slurm.told_blocks = slurms
    near = in_segments(site, nodes, 1, consolidates_segments=True)
    apart = in_segments(site, 2, 1, spreads_segments=True)
    site.run_to(5)
    events = [each for each in read_events(tmp_path) if each["event"] == "released"]
    reasons = {each["job"]: each["reason"] for each in events}
    assert "--consolidate-segments goes by blocks that" in reasons[near]
    assert (apart in reasons) == (cluster is PODS)


def test_a_job_that_shares_its_blocks_with_nobody_gets_one_and_keeps_it(tmp_path: Path) -> None:
    """It is Slurm's own, and leaves GPUs free in its block, on its nodes and beside them."""
    site = FakeSite(tmp_path, racks([[4, 4], [4, 4]]), "fifo")
    site.slurm.told_blocks = BlockTopology(
        {2: {f"r{number // 2}m{number % 2}": f"r{number // 2}" for number in range(4)}}, True
    )
    for name in ("r0m0", "r0m1", "r1m0", "r1m1"):
        long_s = {"r0m0": 0.0, "r0m1": 50.0}.get(name, 1000.0)
        plain(site, gpus_per_node=4, run_time_s=100 + long_s, time_limit_s=200 + long_s)
    site.run_to(1)
    alone = plain(site, gpus_per_node=2, run_time_s=300, time_limit_s=600, whole_blocks=True)
    site.run_to(2)
    younger = [site.submit(gpus_per_node=2, run_time_s=50, time_limit_s=3600) for _ in range(3)]
    site.run_to(130)
    claim = site.controller.reconciler.conditions.oldest_first.slurms
    assert claim is not None
    assert claim.job.job_id == alone
    assert {*claim.earliest.nodes} == {"r0m0", "r0m1"}
    assert site.states()[younger[0]] == "PENDING", "one node of its block is free"
    site.run_to(300)
    states = site.states()
    assert [states[job] for job in (alone, *younger)] == ["RUNNING", *["PENDING"] * 3]
    assert site.events(*TROUBLE) == []
    site.run_to(600)
    assert {site.states().get(job, "COMPLETED") for job in younger} == {"COMPLETED"}


def test_a_claim_of_a_job_keeps_nodes_that_lie_as_its_segments_are_to(tmp_path: Path) -> None:
    """An older job of Dally's, and a younger of Slurm's own that could take its nodes."""
    site = FakeSite(tmp_path, PODS, "fifo")
    site.slurm.told_blocks = LARGER
    for name in NAMES:
        later_s = 100.0 if name[1] in "23" else 0.0  # half of each pod comes free before the other
        plain(site, gpus_per_node=4, run_time_s=300 + later_s, time_limit_s=600 + later_s)
    site.run_to(1)
    near = in_segments(site, 6, 2, consolidates_segments=True)
    plain(site, nodes=2, gpus_per_node=4, run_time_s=50, time_limit_s=3000)
    site.run_to(10)
    claim = site.controller.reconciler.conditions.oldest_first.ours
    assert claim is not None
    assert claim.job.job_id == near
    assert LARGER.refusal(claim.earliest.nodes, 2, False, True) == ""


def test_a_job_waits_while_no_block_has_a_whole_segment_for_it(tmp_path: Path) -> None:
    firsts = ("r0m0", "r1m0", "r2m0", "r3m0")
    site = FakeSite(tmp_path, FOUR, "fifo", features=dict.fromkeys(firsts, ("first",)))
    site.slurm.told_blocks = BLOCKS
    for _ in firsts:
        in_segments(site, 1, 1, constraint="first")
    site.run_to(1)
    whole, halves = in_segments(site, 4, 4), in_segments(site, 4, 2)
    site.run_to(10)
    assert site.managed(whole).reason.startswith("16 GPUs asked for; 0 are free in segments of 4 machines")
    site.run_to(400)
    assert len({name[:2] for name in site.nodes(whole)}) == 1
    assert BLOCKS.torn([*site.nodes(halves)], 2) == ""


def test_a_job_says_which_nodes_are_missing_for_whole_segments(tmp_path: Path) -> None:
    site = site_of_blocks(tmp_path)
    for name in ("r0m0", "r1m0", "r2m0", "r3m0"):
        site.slurm.set_node(name, "down")
    whole, halves = in_segments(site, 4, 4), in_segments(site, 4, 2)
    site.run_to(10)
    assert site.states()[whole] == "PENDING"
    assert site.managed(whole).reason == (
        "too few of the nodes that it may use are up in segments of 4: r0m0,r1m0,r2m0,r3m0 are down"
    )
    assert BLOCKS.torn([*site.nodes(halves)], 2) == ""
    site.slurm.set_node("r3m0")
    site.run_to(20)
    assert {*site.nodes(whole)} == {"r3m0", "r3m1", "r3m2", "r3m3"}


def test_a_job_of_a_reservation_has_its_segments_whole_within_it(tmp_path: Path) -> None:
    site = site_of_blocks(tmp_path)
    names = ("r0m0", "r0m1", "r1m0", "r2m0", "r2m1", "r3m3")
    site.slurm.reserve(Reservation("course", names, 0.0, 1000.0), "alice")
    inside = in_segments(site, 4, 2, reservation="course")
    outside = in_segments(site, 6, 2)
    too_many = in_segments(site, 6, 2, reservation="course")
    site.run_to(5)
    assert {*site.nodes(inside)} == {"r0m0", "r0m1", "r2m0", "r2m1"}
    assert BLOCKS.torn([*site.nodes(outside)], 2) == ""
    assert not {*names} & {*site.nodes(outside)}
    assert "reservation course" in site.managed(too_many).reason
    assert "in segments of 2" in site.managed(too_many).reason
    assert site.events(*TROUBLE) == []


@pytest.mark.parametrize(
    ("nodes", "segment", "says"),
    [
        (8, 8, "8 machines in each segment, does not fit: cluster test has 64, 0 of them in such segments"),
        (6, 4, "--segment=4 does not divide its 6 nodes"),
    ],
)
def test_a_segment_that_no_block_holds_or_that_does_not_come_out_even_is_slurms(
    tmp_path: Path, nodes: int, segment: int, says: str
) -> None:
    site = site_of_blocks(tmp_path)
    job = in_segments(site, nodes, segment)
    site.run_to(5)
    (event,) = [each for each in read_events(tmp_path, job) if each["event"] == "released"]
    assert says in event["reason"]


@pytest.mark.parametrize("blocks", [BlockTopology(), BlockTopology(BLOCKS.block_of)])
def test_where_slurm_takes_no_segment_with_a_node_list_the_job_is_slurms(
    tmp_path: Path, blocks: BlockTopology
) -> None:
    site = FakeSite(tmp_path, FOUR, "fifo")
    site.slurm.told_blocks = blocks
    job = in_segments(site, 4, 2)
    site.run_to(5)
    assert site.managed(job).phase.name is JobPhase.RELEASED
    assert site.managed(job).reason == "--segment fixes the placement; Slurm schedules it"


def test_a_job_whose_segment_slurm_does_not_show_is_handed_to_slurm_once_it_refuses_nodes(
    tmp_path: Path,
) -> None:
    site = site_of_blocks(tmp_path)
    site.slurm.told_blocks = BlockTopology(BLOCKS.block_of)
    hidden, plain = (
        site.submit(nodes=4, gpus_per_node=4, run_time_s=300.0, hidden_segment=each) for each in (True, False)
    )
    site.live(60)
    assert [site.states()[job] for job in (hidden, plain)] == ["RUNNING", "RUNNING"]
    assert site.events("released", "start_failed") == [("released", hidden)]
    assert site.managed(hidden).reason == WITH_SEGMENT


def test_a_job_that_was_torn_is_told_once(tmp_path: Path) -> None:
    site = site_of_blocks(tmp_path)
    job = in_segments(site, 8, 4)
    site.run_to(10)
    held = [*site.nodes(job)]
    assert len({name[:2] for name in held}) == 2
    site.slurm.shrink(job, held[3], held[7])
    for _ in range(3):
        site.run_to(site.now_s + 5)
    site.slurm.shrink(job, held[6])
    site.run_to(site.now_s + 5)
    torn = [each["reason"] for each in read_events(tmp_path, job) if each["event"] == "segment_torn"]
    assert torn == [
        "its segments are of 4 nodes, and it has 3 in r0, 3 in r1",
        "its segments are of 4 nodes, and it has 3 in r0, 2 in r1",
    ]
    site.run_to(400)
    assert job not in site.states() or site.states()[job] == "COMPLETED"


def test_giving_back_a_whole_segment_tears_nothing(tmp_path: Path) -> None:
    site = site_of_blocks(tmp_path)
    job = in_segments(site, 8, 4)
    site.run_to(10)
    site.slurm.shrink(job, *[*site.nodes(job)][:4])
    site.run_to(20)
    assert site.events("segment_torn") == []


def test_nodes_are_kept_for_the_oldest_job_in_whole_segments() -> None:
    in_all = {f"{block}{node}": 4 for block in "abc" for node in range(3)}
    blocks = {name: ord(name[0]) for name in in_all}
    gang = Gang(16, None, 4, None, 2)
    holds = [GpuHold(50.0, {"b0": 4, "b1": 4}), GpuHold(90.0, {"c0": 4, "c1": 4})]
    best = earliest_start(gang, 1, in_all, holds, 10.0, blocks)
    assert best is not None
    assert best.start_s == 50.0, "five nodes are free before, of them two whole segments in no two blocks"
    assert sorted(sum(name[0] == block for name in best.nodes) for block in "abc") == [0, 2, 2]
    assert earliest_start(Gang(12, None, 4, None, 3), 1, in_all, holds, 10.0, blocks) is not None
    assert earliest_start(Gang(16, None, 4, None, 4), 1, in_all, holds, 10.0, blocks) is None


def test_a_job_of_16_of_18_nodes_starts_in_a_full_cluster_within_a_checkpoint_grace(tmp_path: Path) -> None:
    """All of 16 blocks of 18 nodes are in use; one block is cleared, and nobody else is asked to stop."""
    topology = racks([[4] * 18] * 16)
    block_of = {machine.name: machine.name.split("m")[0] for machine in topology.machines}
    site = FakeSite(tmp_path, topology, "srsf-delay")
    site.slurm.told_blocks = BlockTopology({18: block_of}, takes_segments=True)
    asked: dict[str, Any] = {"signal": "USR1", "grace_s": 60, "checkpoint_exit_s": 20.0, "time_limit_s": 9e5}
    small = [in_segments(site, 2, 2, run_time_s=5e5, **asked) for _ in range(16 * 9)]
    site.run_to(1000)
    assert {*site.states().values()} == {"RUNNING"}
    large = in_segments(site, 16, 16, time_limit_s=120.0, run_time_s=100.0)
    site.run_to(1060)
    assert site.states()[large] == "RUNNING"
    cleared = {block_of[name] for name in site.nodes(large)}
    assert len(cleared) == 1
    stops = [each for each in read_events(tmp_path) if each["event"] == "stop"]
    assert {each["job"] for each in stops} <= {*small}
    assert len(stops) == 8, "as many as it takes"
    assert all(
        each["reason"].endswith(f"; clearing {cleared.pop()} for it costs least") for each in stops[:1]
    )
    assert site.events(*TROUBLE) == []
