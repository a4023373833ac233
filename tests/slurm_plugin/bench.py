"""Measures the controller on a large private Slurm cluster: one JSON object a line."""

import json
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median

import click

from dally.cluster import load_cluster
from slurm_plugin.client.command_line import CommandLine
from slurm_plugin.client.orders import ReleaseOnNodes
from slurm_plugin.client.slurm import Slurm, State
from slurm_plugin.config import Config
from slurm_plugin.controller.controller import Controller
from slurm_plugin.controller.journal import Journal
from slurm_plugin.local_cluster.local_slurm import LocalSlurm, temporary_slurm
from slurm_plugin.local_cluster.slurm_files import LocalClusterSpec, slurm_conf, topology_conf
from slurm_plugin.request import Request, encode
from tests.slurm_plugin.fake import FakeSlurm
from tests.slurm_plugin.fake_job import FakeNode, SubmitSpec

NODES_PER_RACK = 16
BEGIN_S = 600.0
CYCLES = 11
MARK = encode(Request(model="resnet50"))
IMAGINED_JOB = SubmitSpec(gpus_per_node=8, comment=MARK)
LARGE = (
    "MaxJobCount=50000",
    "MaxArraySize=10001",
    "SchedulerParameters=bf_interval=30,batch_sched_delay=0,sched_min_interval=0,default_queue_depth=10000",
)
"""Backfill every second over thousands of jobs would be measured instead."""


@dataclass(frozen=True, slots=True)
class BenchSize:
    """How much is measured: nodes of 8 GPUs, held jobs waiting, and jobs placed."""

    nodes: int
    jobs: int
    placed: int


Figure = tuple[str, float, str]
"""Name, value and unit."""


def large_spec(folder: Path, nodes: int) -> LocalClusterSpec:
    """A cluster of many nodes in a folder."""
    return LocalClusterSpec(folder, nodes=nodes, racks=max(1, nodes // NODES_PER_RACK), extra_conf=LARGE)


def submit(local_slurm: LocalSlurm, jobs: int, gpus: int) -> list[str]:
    """Submit held jobs for Dally that sleep; their numbers."""
    options = (f"--comment={MARK}", f"--gres=gpu:{gpus}", "--output=/dev/null", "--wrap=exec sleep 36000")
    return [local_slurm.run("sbatch", "--parsable", "--hold", *options).strip() for _ in range(jobs)]


def controller(slurm: Slurm, conf_dir: Path, journal: Path) -> Controller:
    """A controller over a cluster, with a new journal."""
    config = Config(("gpu",), policy="dally", start_timeout_s=300.0)
    return Controller(slurm, config, load_cluster(conf_dir), None, Journal(journal))


def running(local_slurm: LocalSlurm) -> int:
    """How many jobs run."""
    return len(local_slurm.run("squeue", "-h", "-t", "RUNNING", "-o", "%i", timeout_s=120).split())


def cycles(one: Controller, change: Callable[[], object]) -> Iterator[Figure]:
    """Cycles over a full cluster and a long queue, as close together as the daemon would have them.

    Args:
        one: The controller.
        change: What happens before each of them.
    """
    figures: dict[str, list[float]] = {}
    for _ in range(CYCLES):
        change()
        before = os.times()
        one.cycle()
        after = os.times()
        took = {
            "cycle_s": one.stats.cycle_s,
            "observe_s": one.stats.observe_s,
            "cycle_processor_s": after.user + after.system - before.user - before.system,
            "commands_processor_s": (
                after.children_user + after.children_system - before.children_user - before.children_system
            ),
        }
        for name, value in took.items():
            figures.setdefault(name, []).append(value)
        time.sleep(max(2.0, 3 * one.stats.observe_s))
    return ((name, median(values), "s") for name, values in figures.items())


@contextmanager
def imagined(nodes: int, jobs: int) -> Iterator[tuple[FakeSlurm, Controller]]:
    """A Slurm in memory, its nodes full, with so many held jobs, and a controller that has seen them."""
    with tempfile.TemporaryDirectory() as name:
        spec = large_spec(Path(name), nodes)
        (spec.folder / "slurm.conf").write_text(slurm_conf(spec), encoding="utf-8")
        (spec.folder / "topology.conf").write_text(topology_conf(spec), encoding="utf-8")
        slurm = FakeSlurm([FakeNode(node, spec.gpus) for node in spec.node_names()], time.time)
        for _ in range(nodes + jobs):
            slurm.submit(IMAGINED_JOB)
        one = controller(slurm, spec.folder, spec.folder / "journal")
        one.cycle()
        one.cycle()
        yield slurm, one


def imagined_cycles(size: BenchSize) -> Iterator[Figure]:
    """The same over a Slurm in memory: what is left is the controller's own work."""
    with imagined(size.nodes, size.jobs) as (slurm, one):

        def come_and_go() -> None:
            slurm.submit(IMAGINED_JOB)
            slurm.cancel(next(job.job_id for job in slurm.jobs() if job.state is State.PENDING))

        for change, name in ((lambda: None, "imagined"), (come_and_go, "imagined_changing")):
            yield from ((f"{name}_{figure}", value, unit) for figure, value, unit in cycles(one, change))
    yield "imagined_growth", growth((size.nodes, size.jobs // 10), (size.nodes, size.jobs)), "times"


def growth(small: tuple[int, int], large: tuple[int, int]) -> float:
    """How many times as long a cycle is over the larger of two clusters in memory, by nodes and held jobs.

    It is the ratio of the shortest of several cycles each in which nothing changes, in processor time, so
    that it depends little on the machine and on what else it does.
    """
    shortest = []
    for nodes, jobs in (small, large):
        with imagined(nodes, jobs) as (_, one):
            times = []
            for _ in range(CYCLES):
                began_s = time.process_time()
                one.cycle()
                times.append(time.process_time() - began_s)
            shortest.append(min(times))
    return shortest[1] / shortest[0]


def measure(size: BenchSize) -> Iterator[Figure]:
    """All figures, the cluster brought up once."""
    yield from imagined_cycles(size)
    began_s = time.monotonic()
    with temporary_slurm(partial(large_spec, nodes=size.nodes), BEGIN_S) as local_slurm:
        yield "lab_start_s", time.monotonic() - began_s, "s"
        slurm = CommandLine(local_slurm.environment, timeout_s=120.0)
        conf, folder = local_slurm.spec.conf.parent, local_slurm.spec.folder
        jobs = submit(local_slurm, size.placed, 8)
        began_s = time.monotonic()
        # One scontrol for all, one job on each node: as fast as placements can be.
        slurm.run(
            [
                ReleaseOnNodes(job, (node,))
                for job, node in zip(jobs, local_slurm.spec.node_names(), strict=False)
            ]
        )
        local_slurm.wait_for(lambda: running(local_slurm) == len(jobs), "all jobs to run", BEGIN_S)
        yield "bare_placements_per_s", len(jobs) / (time.monotonic() - began_s), "jobs/s"
        local_slurm.run("scancel", "--user=root", timeout_s=120)
        local_slurm.wait_for(lambda: running(local_slurm) == 0, "the cluster to be empty", BEGIN_S)
        local_slurm.wait_for(lambda: local_slurm.node_states() == {"idle"}, "all nodes to be idle", BEGIN_S)
        placing, jobs = controller(slurm, conf, folder / "placing"), submit(local_slurm, size.placed, 8)
        began_s = time.monotonic()
        while running(local_slurm) < len(jobs):
            placing.cycle()
        yield "placements_per_s", len(jobs) / (time.monotonic() - began_s), "jobs/s"
        began_s = time.monotonic()
        submit(local_slurm, size.jobs, 8)
        yield "sbatch_per_s", size.jobs / (time.monotonic() - began_s), "jobs/s"
        cycling = controller(slurm, conf, folder / "cycling")
        cycling.cycle()
        began_s, used_s = time.monotonic(), cpu_s(local_slurm)
        yield from cycles(cycling, lambda: None)
        yield "slurmctld_share", (cpu_s(local_slurm) - used_s) / (time.monotonic() - began_s), "of one core"

        def come_and_go() -> None:
            submit(local_slurm, 1, 8)
            waiting = local_slurm.run("squeue", "-h", "-t", "PENDING", "-S", "i", "-o", "%i").split()
            local_slurm.run("scancel", waiting[0])

        yield from (
            (f"changing_{figure}", value, unit) for figure, value, unit in cycles(cycling, come_and_go)
        )


def cpu_s(local_slurm: LocalSlurm) -> float:
    """Processor time that slurmctld has used, seconds."""
    return processor_s(int((local_slurm.spec.folder / "run" / "slurmctld.pid").read_text()))


def processor_s(pid: int, children: bool = False) -> float:
    """Processor time of a process, seconds; if asked, with that of its children that have ended."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11 : 15 if children else 13])) / os.sysconf("SC_CLK_TCK")


@click.command()
@click.option("--nodes", default=1024, show_default=True, help="Nodes, each a slurmd of 3.6 MB.")
@click.option("--jobs", default=5000, show_default=True, help="Held jobs that wait.")
@click.option("--placed", default=1000, show_default=True, help="Jobs placed at once, on a node each.")
@click.option("--imagined", is_flag=True, help="Only the figures that need no Slurm and no root.")
def main(nodes: int, jobs: int, placed: int, imagined: bool) -> None:
    """Measure the controller on a private cluster of this machine; needs Slurm's packages and root."""
    size = BenchSize(nodes, jobs, min(placed, nodes))
    for name, value, unit in imagined_cycles(size) if imagined else measure(size):
        said = {"name": f"slurm.{nodes}.{jobs}.{name}", "value": round(value, 4), "unit": unit}
        click.echo(json.dumps(said))


if __name__ == "__main__":
    main()
