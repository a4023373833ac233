"""Measures the controller on a large private Slurm cluster: one JSON object a line."""

import json
import os
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median

import click

from dally.cluster import load_cluster
from slurm_plugin.client.command_line import CommandLine
from slurm_plugin.client.slurm import ReleaseOnNodes, Slurm
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
CYCLES = 5
MARK = encode(Request(model="resnet50"))
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


def cycles(one: Controller) -> tuple[Figure, Figure]:
    """Cycles over a full cluster and a long queue, as close together as the daemon would have them."""
    observed, whole = [], []
    for _ in range(CYCLES):
        one.cycle()
        observed.append(one.stats.observe_s)
        whole.append(one.stats.cycle_s)
        time.sleep(max(2.0, 3 * one.stats.observe_s))
    return ("cycle_s", median(whole), "s"), ("observe_s", median(observed), "s")


def imagined_cycles(size: BenchSize) -> Iterator[Figure]:
    """The same over a Slurm in memory: what is left is the controller's own work."""
    with tempfile.TemporaryDirectory() as name:
        spec = large_spec(Path(name), size.nodes)
        (spec.folder / "slurm.conf").write_text(slurm_conf(spec), encoding="utf-8")
        (spec.folder / "topology.conf").write_text(topology_conf(spec), encoding="utf-8")
        slurm = FakeSlurm([FakeNode(node, spec.gpus) for node in spec.node_names()], time.time)
        for _ in range(size.nodes + size.jobs):
            slurm.submit(SubmitSpec(gpus_per_node=spec.gpus, comment=MARK))
        one = controller(slurm, spec.folder, spec.folder / "journal")
        one.cycle()
        yield from ((f"imagined_{figure}", value, unit) for figure, value, unit in cycles(one))


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
        yield from cycles(cycling)
        yield "slurmctld_share", (cpu_s(local_slurm) - used_s) / (time.monotonic() - began_s), "of one core"


def cpu_s(local_slurm: LocalSlurm) -> float:
    """Processor time that slurmctld has used, seconds."""
    pid = (local_slurm.spec.folder / "run" / "slurmctld.pid").read_text().strip()
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


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
