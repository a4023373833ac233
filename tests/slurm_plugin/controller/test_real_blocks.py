"""Starts under topology/block on real Slurm: as far apart as was decided, and no start that it refuses."""

import json
import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from dally.errors import InputError
from slurm_plugin.client.block_topology import SEGMENTS_SINCE
from slurm_plugin.client.command_line import CommandLine
from slurm_plugin.client.job_json import in_order
from slurm_plugin.client.orders import ReleaseOnNodes
from slurm_plugin.client.slurm import State
from slurm_plugin.controller.journal import read_events
from slurm_plugin.controller.managed_job import IneligiblePhase
from slurm_plugin.local_cluster.local_slurm import LocalSlurm
from slurm_plugin.local_cluster.slurm_files import LocalClusterSpec, TopologyPlugin
from slurm_plugin.munge import Realm
from slurm_plugin.submit.hints import site_lua
from tests.patience import LONGEST_S
from tests.slurm_plugin.answering import answering
from tests.slurm_plugin.client.test_changed_jobs import by_json, compared
from tests.slurm_plugin.controller.test_real_controller import LUA, RealSite, sleeping

STARTS = 200
"""Random placements of each kind that are tried."""
JOBS = 40
"""Random jobs in segments of one, two and four nodes, some of which spread or consolidate them."""
RACKS = 16
"""Full blocks of 18 nodes, one of which is cleared."""
GRACE_S = 60
"""What each job has for its checkpoint, seconds."""


@pytest.fixture
def blocks(cluster_folder: Path) -> Iterator[Callable[..., LocalSlurm]]:
    """Brings up a cluster under topology/block, where Slurm takes a segment with a node list."""
    started = []

    def bring_up(**spec: object) -> LocalSlurm:
        lua = {"job_submit.lua": LUA.read_text(), "dally_site.lua": site_lua(["gpu"], [])}
        made = LocalClusterSpec(cluster_folder, topology=TopologyPlugin.BLOCK, lua_files=lua, **spec)  # type: ignore[arg-type]
        local_slurm = LocalSlurm(made)
        try:
            local_slurm.start(LONGEST_S)
        except InputError as error:  # this Slurm does not have the plugin
            pytest.skip(str(error))
        started.append(local_slurm)
        if local_slurm.version() < SEGMENTS_SINCE:
            pytest.skip("this Slurm takes no segment with a node list; 25.11 and newer do")
        return local_slurm

    yield bring_up
    for local_slurm in started:
        local_slurm.stop()


def test_with_a_segment_jobs_start_on_any_nodes_and_without_where_it_is_said(
    blocks: Callable[..., LocalSlurm], record_property: Callable[[str, object], None]
) -> None:
    local_slurm = blocks(nodes=32, racks=16, gpus=1)
    slurm, draw = CommandLine(local_slurm.environment), random.Random(5)
    known = slurm.blocks(("gpu",))
    assert {size: len(set(of.values())) for size, of in known.block_of.items()} == {2: 16}
    far: dict[str, tuple[str, ...]] = {}
    plain: dict[str, tuple[str, ...]] = {}
    for found, options in ((far, ("--segment=1",)), (plain, ())):
        for _ in range(STARTS):
            first = draw.randrange(0, 28)  # nodes near each other, or few starts would be near enough
            window = range(first, min(32, first + draw.choice((2, 4, 6, 32))))
            nodes = [f"n{1 + node}" for node in draw.sample(window, draw.randint(1, min(6, len(window))))]
            asked = (*options, f"-N{len(nodes)}", "--gpus-per-node=1", "-o", "/dev/null", "--wrap=true")
            job = local_slurm.run("sbatch", "--parsable", "--hold", "--mem=1", *asked).strip()
            found[job] = tuple(sorted(nodes, key=lambda name: int(name[1:])))
    orders = [ReleaseOnNodes(job, nodes) for job, nodes in (far | plain).items()]
    assert set(slurm.run(orders)) == {None}
    starts = {job for job, nodes in plain.items() if not known.refusal(nodes)}
    assert 20 < len(starts) < STARTS - 20, "both kinds are tried"
    ran: set[str] = set()
    refused: set[str] = set()

    def all_ran() -> bool:
        shown = local_slurm.run("squeue", "-h", "--states=all", "-o", "%A %T %r").splitlines()
        ran.update(line.split()[0] for line in shown if " PENDING " not in line)
        refused.update(line.split()[0] for line in shown if line.endswith(" PENDING BadConstraints"))
        # Slurm shows other reasons in between, so not each of those that it refuses is seen so.
        return ran >= far.keys() | starts and len(refused) >= 20

    local_slurm.wait_for(all_ran, "all to run that should", 4 * LONGEST_S)
    assert ran == far.keys() | starts
    assert refused <= plain.keys() - starts
    several = sum(bool(known.refusal(nodes)) for nodes in far.values())
    record_property("starts", f"{len(far)} of {len(far)}, {several} of them refused without a segment")


def test_segments_and_whole_blocks_are_in_lines_what_they_are_in_json(
    blocks: Callable[..., LocalSlurm],
) -> None:
    local_slurm = blocks()
    slurm = CommandLine(local_slurm.environment)
    assert slurm.blocks(("gpu",)).wants_segments
    for options in (
        ("--segment=2",),
        ("--segment=2", "--spread-segments"),
        ("--segment=1", "--spread-segments", "--consolidate-segments"),
        ("--segment=1", "--exclusive=topo"),
        ("--exclusive", "--comment=x SpreadSegments=No "),
    ):
        local_slurm.run(
            "sbatch", "--hold", "-N4", "--gpus-per-node=1", "-o/dev/null", *options, "--wrap=true"
        )
    slurm.records()
    assert slurm._changed_jobs._agreed == {False}
    jobs = in_order(slurm.records())
    assert [*map(compared, jobs)] == [*map(compared, by_json(slurm))]
    assert [(job.segment, job.spreads_segments, job.whole_blocks, job.exclusive) for job in jobs] == [
        (2, False, False, False),
        (2, True, False, False),
        (1, True, False, False),
        (1, False, True, False),
        (0, False, False, True),
    ]


def test_what_is_decided_starts_wherever_it_lies(
    blocks: Callable[..., LocalSlurm], users: tuple[str, ...]
) -> None:
    local_slurm = blocks()
    site = RealSite(local_slurm, "dally:timers=no-wait,lease_s=5")
    site.controller.cycle()
    told = {"ok": True, "segments": site.controller.reconciler.conditions.blocks.wants_segments}
    others = [
        local_slurm.run(
            "sbatch", "--parsable", f"-wn{n}", "--gres=gpu:8", "-o/dev/null", "--wrap=sleep 600"
        ).strip()
        for n in (1, 3, 5, 7)
    ]
    local_slurm.wait_for(lambda: all(site.state(job) == "RUNNING" for job in others), "others to run")
    with answering(200, json.dumps(told).encode(), "/health", realm_of(local_slurm)) as url:
        config = local_slurm.work / "dally.toml"
        config.write_text(config.read_text().replace('url = ""', f'url = "{url}"\nuser = "root"'))
        wrapped = sleeping(site, 600, "-N2", "--gres=gpu:8")
        open_shares = sleeping(site, 600, "--gpus=16")
    plain = local_slurm.run(
        "sbatch", "--parsable", "-N2", "--gpus-per-node=8", "-o/dev/null", "--wrap=sleep 600", user=users[0]
    ).strip()
    spread = local_slurm.run(
        "sbatch", "--parsable", "-N4", "--segment=2", "--spread-segments", "--gpus-per-node=8", "-o/dev/null",
        "--wrap=sleep 600", user=users[0],
    ).strip()  # fmt: skip
    site.until(lambda: site.state(wrapped) == site.state(plain) == "RUNNING", "for the far ones to run")
    assert sorted([site.nodes(wrapped), site.nodes(plain)]) == ["n[2,4]", "n[6,8]"]
    assert site.managed_jobs[spread].reason.startswith("32 GPUs asked for")
    local_slurm.run("scancel", wrapped, plain)
    waits = "it has no segment, so Slurm starts its 2 nodes in 1 block of 2, not in 2"
    site.until(lambda: site.managed_jobs[open_shares].reason == waits, "for it to be left out")
    assert isinstance(site.managed_jobs[open_shares].phase, IneligiblePhase)
    local_slurm.run("scancel", others[0])
    site.until(lambda: site.state(open_shares) == "RUNNING", "for it to run in one block")
    assert site.nodes(open_shares) == "n[1-2]"
    local_slurm.run("scancel", *others[1:])
    site.until(lambda: site.state(spread) == "RUNNING", "for the segments to start, each in another block")
    events = read_events(Path(site.config.state_dir))
    assert [each for each in events if each["event"] in ("start_failed", "order_refused")] == []
    site.decide_again()
    site.journal.close()


def realm_of(local_slurm: LocalSlurm) -> Realm:
    """By what this process, as the controller, proves who it is."""
    return Realm("lab", True, str(local_slurm.spec.socket), "root", "root")


@contextmanager
def telling_of_blocks(site: RealSite) -> Iterator[None]:
    """The controller has looked at Slurm once, and tells dally-sbatch how jobs may lie in blocks."""
    site.controller.cycle()
    told = {"ok": True, "segments": site.controller.reconciler.conditions.blocks.wants_segments}
    with answering(200, json.dumps(told).encode(), "/health", realm_of(site.local_slurm)) as url:
        config = site.local_slurm.work / "dally.toml"
        config.write_text(config.read_text().replace('url = ""', f'url = "{url}"\nuser = "root"'))
        yield


def submit_sleep(site: RealSite, seconds: int, user: str, *options: str) -> str:
    """A job that sleeps, by dally-sbatch as root, or by plain sbatch as a user; its number."""
    if not user:
        return sleeping(site, seconds, *options)
    plain = ("-o/dev/null", f"--wrap=sleep {seconds}")
    return site.local_slurm.run("sbatch", "--parsable", *options, *plain, user=user).strip()


def test_jobs_in_segments_start_where_it_is_decided_and_none_is_torn(
    blocks: Callable[..., LocalSlurm], users: tuple[str, ...], record_property: Callable[[str, object], None]
) -> None:
    local_slurm, draw = blocks(nodes=24, racks=6, gpus=2), random.Random(7)
    site = RealSite(local_slurm, "srsf-delay")
    asked: dict[str, tuple[int, bool, bool]] = {}
    with telling_of_blocks(site):
        for number in range(JOBS):
            segment = draw.choice((1, 2, 4))
            nodes = segment * draw.randint(1, max(1, 8 // segment))
            gpus = draw.choice(
                (
                    ["--gpus-per-node=2"],
                    ["--gpus-per-node=1"],
                    [f"--gpus={2 * nodes}"] if nodes > 1 else ["--gres=gpu:2"],
                )
            )
            spread, close = draw.random() < 0.3 and nodes <= 4 * segment, draw.random() < 0.3
            layout = ["--spread-segments"] * spread + ["--consolidate-segments"] * close
            options = [f"-N{nodes}", *gpus, f"--segment={segment}", *layout, "--time=10", "--mem=1"]
            user = "" if number % 2 else users[0]
            asked[submit_sleep(site, draw.randint(2, 8), user, *options)] = segment, spread, close
    known, seen = site.controller.reconciler.conditions.blocks, dict[str, tuple[str, ...]]()

    def all_ran() -> bool:
        for job in site.slurm.jobs():
            if job.state is State.RUNNING:
                seen[job.job_id] = job.nodes
        return not site.managed_jobs

    site.until(all_ran, "for all to run")
    events = read_events(Path(site.config.state_dir))
    started = {each["job"]: [*each["gpus"]] for each in events if each["event"] == "start"}
    assert started.keys() == asked.keys(), "Dally starts each of them"
    for places in (started, seen):
        assert [job for job, where in places.items() if known.refusal(where, *asked[job])] == []
    trouble = ("start_failed", "start_declined", "order_refused", "released", "segment_torn")
    assert [each for each in events if each["event"] in trouble] == []
    far = sum(len({known.block_of[4][node] for node in where}) > 1 for where in started.values())
    record_property("starts", f"{len(started)} of {len(asked)} in segments, {far} of them in several blocks")
    site.decide_again()
    site.journal.close()


def test_a_job_of_slurms_own_that_shares_its_blocks_with_nobody_gets_one_and_keeps_it(
    blocks: Callable[..., LocalSlurm],
) -> None:
    """Half of its nodes' GPUs are free, and all beside them: no job of Dally's is released there in vain."""
    local_slurm = blocks(nodes=8, racks=2, gpus=2)
    site = RealSite(local_slurm, "fifo")
    site.controller.cycle()
    seconds = {1: 6, 2: 10, 3: 10, 4: 10}
    first = {n: sleeping(site, seconds.get(n, 600), f"-wn{n}", "-t60", "--gres=gpu:2") for n in range(1, 9)}
    site.until(lambda: all(site.state(job) == "RUNNING" for job in first.values()), "all nodes to be full")
    alone = local_slurm.run(  # job_submit.lua lets root's jobs by
        "sbatch", "--parsable", "-N2", "--exclusive=topo", "--gpus-per-node=1", "-t10", "-o/dev/null",
        "--wrap=sleep 600",
    ).strip()  # fmt: skip
    site.controller.cycle()
    younger = [sleeping(site, 600, "-t60", "--gres=gpu:1") for _ in range(6)]
    site.until(lambda: site.state(alone) == "RUNNING", "for it to have a block")
    assert site.nodes(alone) in ("n[1-2]", "n[2-3]", "n[3-4]", "n[1,3]", "n[1,4]", "n[2,4]")
    (seen,) = [job for job in site.slurm.jobs() if job.job_id == alone]
    assert seen.whole_blocks
    assert alone not in site.managed_jobs
    for _ in range(5):
        site.controller.cycle()
        time.sleep(0.5)
    assert {site.state(job) for job in younger} == {"PENDING"}
    local_slurm.run("scancel", alone)
    site.until(lambda: all(site.state(job) == "RUNNING" for job in younger), "for the others to run")
    events = read_events(Path(site.config.state_dir))
    trouble = ("start_failed", "start_declined", "order_refused")
    assert [each for each in events if each["event"] in trouble] == []
    site.decide_again()
    site.journal.close()


def test_jobs_that_share_their_blocks_with_nobody_start_where_it_is_decided_and_nobody_beside_them(
    blocks: Callable[..., LocalSlurm], users: tuple[str, ...], record_property: Callable[[str, object], None]
) -> None:
    """Beside others of Dally's, one of Slurm's own without GPUs, and a node that is drained."""
    local_slurm, draw = blocks(nodes=24, racks=6, gpus=2), random.Random(11)
    site = RealSite(local_slurm, "srsf-delay")
    local_slurm.run("scontrol", "update", "NodeName=n6", "State=DRAIN", "Reason=test")
    local_slurm.run("sbatch", "-wn24", "-n1", "--mem=1", "-o/dev/null", "--wrap=sleep 12")
    asked: dict[str, bool] = {}
    with telling_of_blocks(site):
        for number in range(JOBS):
            is_alone, nodes = draw.random() < 0.4, draw.randint(1, 6)
            options = [f"-N{nodes}", f"--gpus-per-node={draw.randint(1, 2)}", "--time=10", "--mem=1"]
            options += ["--exclusive=topo"] * is_alone + ["--segment=2"] * (
                draw.random() < 0.3 and not nodes % 2
            )
            user = "" if number % 2 else users[0]
            asked[submit_sleep(site, draw.randint(2, 8), user, *options)] = is_alone
    known, shared, blocked = site.controller.reconciler.conditions.blocks, list[str](), set[str]()

    def all_ran() -> bool:
        held = {job.job_id: job.nodes for job in site.slurm.jobs() if job.state is State.RUNNING}
        in_blocks = {job: {known.block_of[4][node] for node in nodes} for job, nodes in held.items()}
        for job in in_blocks:
            others = (each for each in in_blocks if asked.get(job) and each != job)
            shared.extend(other for other in others if in_blocks[job] & in_blocks[other])
        blocked.update(node.name for node in site.slurm.nodes() if node.blocked)
        return not site.managed_jobs

    site.until(all_ran, "for all to run")
    assert shared == []
    assert blocked, "Slurm shows nodes beside them so"
    events = read_events(Path(site.config.state_dir))
    started = {each["job"]: [*each["gpus"]] for each in events if each["event"] == "start"}
    assert started.keys() == asked.keys(), "Dally starts each of them"
    trouble = ("start_failed", "start_declined", "order_refused", "released", "segment_torn")
    assert [each for each in events if each["event"] in trouble] == []
    alone = [job for job, is_alone in asked.items() if is_alone]
    far = sum(len({known.block_of[4][node] for node in started[job]}) > 1 for job in alone)
    record_property("starts", f"{len(alone)} of {len(asked)} for whole blocks, {far} of them for several")
    site.decide_again()
    site.journal.close()


def test_a_job_whose_nodes_somebody_takes_is_said_to_be_torn(blocks: Callable[..., LocalSlurm]) -> None:
    local_slurm = blocks(nodes=8, racks=2, gpus=1)
    site = RealSite(local_slurm, "fifo")
    site.controller.cycle()
    told = {"ok": True, "segments": True}
    with answering(200, json.dumps(told).encode(), "/health", realm_of(local_slurm)) as url:
        config = local_slurm.work / "dally.toml"
        config.write_text(config.read_text().replace('url = ""', f'url = "{url}"\nuser = "root"'))
        job = sleeping(site, 600, "-N8", "--segment=4", "--gpus-per-node=1", "--no-kill")
    site.until(lambda: site.state(job) == "RUNNING", "for it to run")
    local_slurm.run("scontrol", "update", f"JobId={job}", "NodeList=n[1-3,5-7]")
    site.until(lambda: site.nodes(job) == "n[1-3,5-7]", "for it to lose two nodes")
    for _ in range(3):
        site.controller.cycle()
    torn = [each for each in read_events(Path(site.config.state_dir)) if each["event"] == "segment_torn"]
    said = "its segments are of 4 nodes, and it has 3 in rack0, 3 in rack1"
    assert [(each["job"], each["reason"]) for each in torn] == [(job, said)]
    site.journal.close()


def test_a_job_of_16_of_18_nodes_starts_in_a_full_cluster_within_one_checkpoint_grace(
    blocks: Callable[..., LocalSlurm], record_property: Callable[[str, object], None]
) -> None:
    """Two jobs of nine nodes fill each block; those of one block checkpoint, and nobody else does."""
    local_slurm = blocks(nodes=18 * RACKS, racks=RACKS, gpus=4)
    site = RealSite(local_slurm, "srsf-delay:lease_s=5,lease_restarts=0")
    site.controller.cycle()
    told = {"ok": True, "segments": True}
    with answering(200, json.dumps(told).encode(), "/health", realm_of(local_slurm)) as url:
        config = local_slurm.work / "dally.toml"
        config.write_text(config.read_text().replace('url = ""', f'url = "{url}"\nuser = "root"'))
        options = ("--checkpoint-signal=USR1", f"--checkpoint-grace={GRACE_S}", "-o/dev/null", "--mem=1")
        asked = (*options, "-N9", "--segment=9", "--gpus-per-node=4", "-t", "5000")
        fill = [site.submit(*asked, "train.sh", f"fill{number}") for number in range(2 * RACKS)]
        site.until(lambda: all(site.state(job) == "RUNNING" for job in fill), "for the cluster to be full")
        wanted = ("-N16", "--segment=16", "--gpus-per-node=4", "-t", "1", "--mem=1")
        large = sleeping(site, 30, *wanted)
    since_s = time.time()
    site.until(lambda: site.state(large) == "RUNNING", "for the large job to run")
    waited_s = time.time() - since_s
    known = site.controller.reconciler.conditions.blocks
    events = read_events(Path(site.config.state_dir))
    (start,) = [each for each in events if each["event"] == "start" and each["job"] == large]
    cleared = {known.block_of[18][node] for node in start["gpus"]}
    assert len(cleared) == 1
    held = {each["job"]: {*each["gpus"]} for each in events if each["event"] == "start"}
    stopped = {each["job"] for each in events if each["event"] == "stop"}
    assert len(stopped) == 2
    assert {known.block_of[18][node] for job in stopped for node in held[job]} == cleared
    assert waited_s < GRACE_S
    site.until(lambda: all(site.state(job) == "RUNNING" for job in fill), "for those stopped to go on")
    events = read_events(Path(site.config.state_dir))
    trouble = ("start_failed", "start_declined", "order_refused", "released", "segment_torn", "fail")
    assert [each for each in events if each["event"] in trouble] == []
    record_property("starts", f"16 of 18 nodes after {waited_s:.1f} s in {18 * RACKS} nodes that were full")
    site.decide_again()
    site.journal.close()
