"""Many starts under topology/block on a real Slurm: does each lie in the blocks that its options allow?"""

import signal
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from random import Random

from dally.hostlist import expand
from slurm_plugin.client.block_topology import BlockTopology
from slurm_plugin.controller.journal import MOST_EVENTS, read_events
from slurm_plugin.local_cluster.local_slurm import LocalSlurm, make_user
from slurm_plugin.local_cluster.slurm_files import LocalClusterSpec, TopologyPlugin
from slurm_plugin.submit.hints import site_lua
from tests.conftest import USERS
from tests.slurm_plugin.bench import cpu_s
from tests.slurm_plugin.controller.test_real_controller import LUA
from tests.slurm_plugin.live_site import LiveSite

BLOCKS = 16
BLOCK_NODES = 18
NODE_GPUS = 4
SEGMENTS = (0, 0, 1, 2, 4, 8, 16)
"""Nodes of a segment, 0 for a job without; each is as likely as it is often here."""

MOST_NODES = 32
AT_ONCE = 80
"""So many jobs wait or run at a time."""

BOOT_S = 300.0
LAST_S = 600.0
"""When no more jobs come, those that are left must have ended after this."""

TROUBLE = ("start_failed", "start_declined", "order_refused", "segment_torn")


@dataclass(frozen=True, slots=True)
class BlockJob:
    """What a random job asks for: its nodes, 0 where that is open, and the nodes of each of its segments."""

    nodes: int
    segment: int
    options: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class BlockFindings:
    """What came of many starts under topology/block.

    Attributes:
        slurm: Slurm's version.
        jobs: Jobs submitted.
        starts: Starts that the controller decided and Slurm made.
        in_segments: Of these, starts of jobs with segments of several nodes.
        far: Of these, starts in several blocks.
        slurms: Starts of jobs that the controller left to Slurm.
        trouble: Events that tell of a start that was refused or torn, by kind and reason.
        wrong: Starts on other nodes than were decided, or in blocks that their options do not allow.
        unstarted: Jobs that never ran.
        seconds: How long all of it took.
        controller_s: Seconds of the processor that the controller used.
        slurmctld_s: The same of slurmctld.
    """

    slurm: str
    jobs: int
    starts: int
    in_segments: int
    far: int
    slurms: int
    trouble: Counter[str]
    wrong: list[str]
    unstarted: list[str]
    seconds: float
    controller_s: float
    slurmctld_s: float

    @property
    def good(self) -> bool:
        """All started, each where it was decided and may lie, and none was refused."""
        return not (self.trouble or self.wrong or self.unstarted)


@contextmanager
def block_site(folder: Path, policy: str) -> Iterator[LiveSite]:
    """Full racks of nodes under topology/block, with job_submit.lua and a controller of its own."""
    make_user(USERS[0])
    lua = {"job_submit.lua": LUA.read_text(encoding="utf-8"), "dally_site.lua": site_lua(["gpu"], [])}
    spec = LocalClusterSpec(
        folder,
        BLOCKS * BLOCK_NODES,
        BLOCKS,
        NODE_GPUS,
        topology=TopologyPlugin.BLOCK,
        lua_files=lua,
        extra_conf=("MinJobAge=60",),
    )
    local_slurm = LocalSlurm(spec)
    local_slurm.start(BOOT_S)
    try:
        site = LiveSite(local_slurm, ("gpu",), policy=policy)
        site.start_controller()
        try:
            yield site
        finally:
            site.end_controller(signal.SIGKILL)
    finally:
        local_slurm.stop()


def random_job(random: Random) -> BlockJob:
    """A job of up to 32 nodes: in segments or not, its GPUs counted by node, in all, or left open."""
    segment = random.choice(SEGMENTS)
    step = segment or 1
    nodes = step * random.randint(1, max(1, min(MOST_NODES // step, random.choice((1, 2, 4, 8)))))
    each = random.choice((1, 2, NODE_GPUS, NODE_GPUS))
    if not segment and random.random() < 0.2:
        return BlockJob(0, 0, (f"--gpus={random.randint(1, 40)}",))
    gpus = f"--gpus={each * nodes}" if nodes > 1 and random.random() < 0.3 else f"--gpus-per-node={each}"
    return BlockJob(nodes, segment, (f"-N{nodes}", gpus, *([f"--segment={segment}"] if segment else ())))


def many_starts(site: LiveSite, starts: int, seed: int) -> BlockFindings:
    """Submit so many random jobs, a few at a time, let all end, and look where each ran.

    Args:
        site: A site of `block_site`.
        starts: Jobs that are submitted.
        seed: Of the jobs.
    """
    random, asked, local_slurm = Random(seed), dict[str, BlockJob](), site.local_slurm
    began, plain = time.monotonic(), ("--mem=1", "--time=10", "-o/dev/null")
    waiting = 0
    while len(asked) < starts:
        for _ in range(min(AT_ONCE - waiting, starts - len(asked))):
            job = random_job(random)
            seconds = f"--wrap=sleep {random.uniform(1, 4):.1f}"
            command = ("sbatch", "--parsable", *plain, *job.options, seconds)
            asked[local_slurm.run(*command, user=USERS[0]).strip()] = job
        time.sleep(0.5)
        waiting = len(local_slurm.run("squeue", "-h", "-o", "%i").split())
    with suppress(AssertionError):  # those that are left are told as not started
        site.wait_for(lambda: not local_slurm.run("squeue", "-h").strip(), "all jobs to end", LAST_S)
    site.cycles(2)
    return found(site, asked, time.monotonic() - began)


def found(site: LiveSite, asked: dict[str, BlockJob], seconds: float) -> BlockFindings:
    """Compare where Slurm says that jobs ran with what was decided, and with its blocks."""
    blocks = site.slurm.blocks(("gpu",))
    ran = dict(_ran(site.local_slurm.spec.folder / "log" / "jobcomp.txt"))
    events = [each for each in read_events(site.state_dir, most=MOST_EVENTS) if each.get("job") in asked]
    decided = {each["job"]: {*each["gpus"]} for each in events if each["event"] == "start"}
    ours = decided.keys() & ran.keys()
    wrong = [
        f"{job} {' '.join(asked[job].options)} on {','.join(ran[job])}: {why}"
        for job in asked.keys() & ran.keys()
        if (why := misplaced(asked[job], ran[job], decided.get(job), blocks))
    ]
    version = ".".join(map(str, site.local_slurm.version()))
    return BlockFindings(
        slurm=version,
        jobs=len(asked),
        starts=len(ours),
        in_segments=sum(asked[job].segment > 1 for job in ours),
        far=sum(len(_blocks_of(ran[job], blocks)) > 1 for job in ours),
        slurms=len(ran.keys() & asked.keys() - ours),
        trouble=Counter(f"{each['event']}: {each['reason']}" for each in events if each["event"] in TROUBLE),
        wrong=wrong,
        unstarted=sorted(asked.keys() - ran.keys()),
        seconds=round(seconds, 1),
        controller_s=round(site.controller_s(), 1),
        slurmctld_s=round(cpu_s(site.local_slurm), 1),
    )


def misplaced(job: BlockJob, nodes: Sequence[str], decided: set[str] | None, blocks: BlockTopology) -> str:
    """Why a job should not have run on these nodes; empty if it may."""
    if decided is not None and decided != {*nodes}:
        return f"decided were {','.join(sorted(decided))}"
    if job.nodes and len(nodes) != job.nodes:
        return f"{len(nodes)} nodes"
    return blocks.refusal(nodes, job.segment or int(blocks.takes_segments and job.nodes > 0))


def _blocks_of(nodes: Sequence[str], blocks: BlockTopology) -> set[str]:
    return {blocks.block_of[BLOCK_NODES][node] for node in nodes}


def _ran(log: Path) -> Iterator[tuple[str, tuple[str, ...]]]:
    """The nodes on which jobs ran, by number, as Slurm wrote them down when each had ended."""
    for line in log.read_text(encoding="utf-8").splitlines():
        said = dict(word.partition("=")[::2] for word in line.split())
        if said.get("NodeList", "(null)") not in ("", "(null)"):
            yield said["JobId"], expand(said["NodeList"])
