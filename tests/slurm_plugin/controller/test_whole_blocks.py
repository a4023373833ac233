"""Jobs of `--exclusive=topo`: they share their blocks with nobody, and no start of theirs is refused."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from dally.policies.registry import policy_names
from dally.testing.worlds import racks
from slurm_plugin.client.block_topology import BlockTopology
from slurm_plugin.client.slurm import Reservation
from slurm_plugin.controller.journal import read_events
from slurm_plugin.controller.managed_job import JobPhase
from slurm_plugin.service.report import report
from tests.slurm_plugin.fake_job import SubmitSpec
from tests.slurm_plugin.worlds import FakeSite

THREE = racks([[4] * 3] * 3)
BLOCKS = BlockTopology({3: {each.name: each.name[:2] for each in THREE.machines}}, takes_segments=True)
TROUBLE = ("released", "start_failed", "start_declined", "gpus_miscounted")


def site_of_blocks(folder: Path, policy: str = "fifo", **settings: Any) -> FakeSite:
    site = FakeSite(folder, THREE, policy, **settings)
    site.slurm.told_blocks = BLOCKS
    return site


def alone(site: FakeSite, nodes: int = 2, **more: Any) -> str:
    """A job that shares its blocks with nobody, and leaves GPUs free on its nodes and beside them."""
    asked = {"nodes": nodes, "gpus_per_node": 2, "run_time_s": 300.0, "whole_blocks": True, "segment": 1}
    return site.submit(**asked | more)


def beside(site: FakeSite, **more: Any) -> str:
    return site.submit(**{"gpus_per_node": 4, "run_time_s": 300.0, **more})


def blocks_of(nodes: Mapping[str, int]) -> set[str]:
    return {name[:2] for name in nodes}


def is_up(site: FakeSite, job: str) -> bool:
    return site.states().get(job) == "RUNNING"


@pytest.mark.slow
@pytest.mark.parametrize("policy", policy_names())
def test_under_every_policy_they_have_their_blocks_alone_and_slurm_refuses_none(
    tmp_path: Path, policy: str
) -> None:
    site = site_of_blocks(tmp_path, policy)
    others = [beside(site, run_time_s=200.0 + 90 * more, gpus_per_node=2) for more in range(9)]
    apart = [alone(site, nodes, run_time_s=150.0 + nodes) for nodes in (1, 2, 3, 5, 1, 2)]
    others += [beside(site, nodes=nodes, segment=1) for nodes in (2, 4, 6)]
    for until_s in range(100, 9000, 100):
        site.run_to(until_s)
        held = {job: blocks_of(site.nodes(job)) for job in site.states() if is_up(site, job)}
        for job in held.keys() & {*apart}:
            shared = [other for other in held if other != job and not held[job].isdisjoint(held[other])]
            assert shared == []
        if not site.controller.reconciler.managed_jobs:
            break
    assert {site.states().get(job, "COMPLETED") for job in (*others, *apart)} == {"COMPLETED"}
    assert site.events(*TROUBLE) == []
    assert {job for _, job in site.events("start")} == {*others, *apart}, "Dally starts each of them"


def test_nobody_starts_beside_one_until_it_ends(tmp_path: Path) -> None:
    site = site_of_blocks(tmp_path)
    first = alone(site, 5)
    site.run_to(1)
    younger = [beside(site) for _ in range(4)]
    site.run_to(100)
    assert len(blocks_of(site.nodes(first))) == 2
    assert [is_up(site, job) for job in younger] == [True, True, True, False], "one block has three nodes"
    assert site.managed(younger[3]).reason.startswith("4 GPUs asked for; 0 are free in all")
    site.run_to(305)
    assert is_up(site, younger[3])
    assert site.events(*TROUBLE) == []


def test_one_waits_for_a_block_that_no_other_uses_and_says_so(tmp_path: Path) -> None:
    site = site_of_blocks(tmp_path)
    site.slurm.told_blocks = BLOCKS
    ones = [beside(site, gpus_per_node=1, excluded=excluded(name)) for name in ("r0m1", "r1m0", "r2m2")]
    site.run_to(1)
    waiting = alone(site)
    site.run_to(100)
    assert [blocks_of(site.nodes(job)) for job in ones] == [{"r0"}, {"r1"}, {"r2"}]
    assert site.managed(waiting).reason.startswith(
        "4 GPUs asked for; 0 are free in blocks that nobody else uses"
    )
    site.run_to(302)
    assert is_up(site, waiting)


def excluded(name: str) -> tuple[str, ...]:
    """All nodes but one."""
    return tuple(each.name for each in THREE.machines if each.name != name)


def test_nodes_that_are_down_or_drained_keep_nobody_from_the_rest_of_their_block(tmp_path: Path) -> None:
    site = site_of_blocks(tmp_path)
    for name, state in (("r0m2", "down"), ("r1m0", "drain"), ("r2m0", "down"), ("r2m1", "down")):
        site.slurm.set_node(name, state)
    jobs = [alone(site) for _ in range(3)]
    site.run_to(100)
    assert [blocks_of(site.nodes(job)) for job in jobs if is_up(site, job)] == [{"r0"}, {"r1"}]
    site.slurm.set_node("r0m2")
    late = beside(site, excluded=tuple(each.name for each in THREE.machines if each.name[:2] == "r2"))
    site.run_to(200)
    assert not is_up(site, late), "a node that comes back is in the block, too"
    site.run_to(320)
    assert is_up(site, late)
    assert site.events(*TROUBLE) == []


def test_no_start_is_tried_beside_jobs_of_slurms_own_or_nodes_reserved_for_others(tmp_path: Path) -> None:
    """One of these jobs has no GPUs; nobody is stopped for what Slurm would refuse."""
    site = site_of_blocks(tmp_path, "srsf-delay:lease_s=1,lease_restarts=0")
    site.slurm.submit(SubmitSpec(user="bob", held=False, gpus=1, run_time_s=9e4, excluded=excluded("r0m1")))
    site.slurm.reserve(Reservation("course", ("r1m0",), 0.0, 5000.0), "bob")
    runs = [beside(site, signal="USR1", grace_s=5, run_time_s=9e4, time_limit_s=1e5) for _ in range(3)]
    site.run_to(50)
    for job in runs:
        assert is_up(site, job)
    waiting = alone(site, time_limit_s=600.0, excluded=tuple(f"r2m{n}" for n in range(3)))
    site.run_to(400)
    assert site.managed(waiting).reason == (
        "jobs that are not Dally's, or reservations, are in too many of the blocks that it could have alone"
    )
    assert site.events("stop", *TROUBLE) == []
    site.run_to(5100)
    assert blocks_of(site.nodes(waiting)) == {"r1"}, "the reservation is over"
    assert site.events(*TROUBLE) == []


def test_one_block_is_cleared_and_nobody_else_stopped(tmp_path: Path) -> None:
    site = site_of_blocks(tmp_path, "srsf-delay:lease_s=1,lease_restarts=0")
    asked: dict[str, Any] = {"signal": "USR1", "grace_s": 60, "checkpoint_exit_s": 20.0, "time_limit_s": 9e5}
    long = [beside(site, run_time_s=5e5, **asked) for _ in range(9)]
    site.run_to(1000)
    before = {job: blocks_of(site.nodes(job)) for job in long}
    large = alone(site, 1, gpus_per_node=4, time_limit_s=120.0, run_time_s=100.0)
    site.run_to(1060)
    cleared = blocks_of(site.nodes(large))
    stops = [each for each in read_events(tmp_path) if each["event"] == "stop"]
    assert {each["job"] for each in stops} == {job for job in long if before[job] == cleared}
    assert len(stops) == 3, "all of the block, though one node would be enough"
    assert all(f"; clearing {min(cleared)} for it costs least" in each["reason"] for each in stops)
    site.run_to(1300)
    assert all(is_up(site, job) for job in long), "they go on"
    assert site.events(*TROUBLE) == []


def test_while_others_still_leave_its_block_nobody_starts_there(tmp_path: Path) -> None:
    """They checkpoint for 50 s; smaller jobs come meanwhile, for which there would be room at once."""
    site = site_of_blocks(tmp_path, "srsf-delay:lease_s=1,lease_restarts=0")
    asked: dict[str, Any] = {"signal": "USR1", "grace_s": 60, "checkpoint_exit_s": 50.0, "time_limit_s": 9e5}
    for _ in range(9):
        beside(site, run_time_s=5e5, gpus_per_node=3, **asked)
    site.run_to(1000)
    large = alone(site, 3, gpus_per_node=4, time_limit_s=120.0, run_time_s=100.0)
    site.live(1010, rest_s=1.0)
    small = [beside(site, gpus_per_node=1, time_limit_s=60.0, run_time_s=10.0) for _ in range(9)]
    site.live(1062, rest_s=1.0)
    assert is_up(site, large)
    assert {site.states().get(job, "COMPLETED") for job in small} == {"COMPLETED"}, "in the other blocks"
    assert site.events(*TROUBLE) == []


def test_a_controller_that_is_started_anew_goes_on_with_it(tmp_path: Path) -> None:
    site = site_of_blocks(tmp_path)
    first = alone(site, 5)
    site.run_to(50)
    site.restart()
    younger = [beside(site) for _ in range(4)]
    site.run_to(100)
    assert [is_up(site, job) for job in younger] == [True, True, True, False]
    site.run_to(320)
    assert is_up(site, younger[3])
    assert site.events("start") == [("start", job) for job in (first, *younger)]
    assert site.events(*TROUBLE) == []


@pytest.mark.parametrize("blocks", [BlockTopology(), BlockTopology(BLOCKS.block_of)])
def test_where_slurm_takes_no_segment_with_a_node_list_the_job_is_slurms(
    tmp_path: Path, blocks: BlockTopology
) -> None:
    site = FakeSite(tmp_path, THREE, "fifo")
    site.slurm.told_blocks = blocks
    job = alone(site, segment=0)
    site.run_to(5)
    assert site.managed(job).phase.name is JobPhase.RELEASED
    assert site.managed(job).reason == "--exclusive=topo fixes the placement; Slurm schedules it"


@pytest.mark.parametrize("spans", [True, False])
def test_it_is_slurms_only_where_a_block_spans_racks_of_the_cluster_file(tmp_path: Path, spans: bool) -> None:
    """Where racks have several blocks each, more than Slurm asks for is kept free."""
    block_of = {each.name: "b" + each.name[3 if spans else 1 :] for each in THREE.machines}
    site = FakeSite(tmp_path, THREE, "fifo")
    site.slurm.told_blocks = BlockTopology({3 if spans else 1: block_of}, takes_segments=True)
    job = alone(site, 1)
    site.run_to(5)
    events = [each["reason"] for each in read_events(tmp_path, job) if each["event"] == "released"]
    assert any("--exclusive=topo goes by blocks that Dally's cluster" in why for why in events) == spans
    assert is_up(site, job)


def test_gpus_that_it_keeps_from_others_do_not_count_as_used(tmp_path: Path) -> None:
    site = site_of_blocks(tmp_path)
    alone(site, nodes=1)
    site.live(10)
    gpus = report(site.controller, "fifo", ("gpu",)).gpus
    assert gpus == {"total": 36, "used": 2, "free": 24, "unavailable": 10}
