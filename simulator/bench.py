"""Measures the simulator's speed: each figure from a process of its own, one JSON object a line."""

import io
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import click

from dally.clusters import load_cluster
from dally.costs import CostModel
from dally.cycle import Scheduler
from dally.errors import DallyError
from dally.plan import Plan
from dally.policies.registry import parse_policy, policy_names
from dally.profiles.files import load_profiles
from dally.records import EventLog
from dally.state import ClusterState
from dally.traces import load_trace
from simulator.engine import Engine
from simulator.scenario import folder_name

PHILLY_SLICE_S = (4062780, 10542780)
"""The steady part of the Philly trace, seconds of submission: 101,005 jobs."""

MIX = "resnet50=0.3,bert-large=0.25,vgg11=0.15,alexnet=0.1,resnet18=0.1,mobilenetv3=0.1"
_MODELS = ("--profiles", "realistic", "--model-mix", MIX)
_SCALES = (1, 3, 10)
_GPUS_PER_RACK = 64


@dataclass(frozen=True, slots=True)
class Measured:
    """One simulation as a process: wall time, peak memory, and what it did."""

    wall_s: float
    peak_mib: float
    jobs: int
    moments: int


def measure(policy: str, trace: str, cluster: str, *options: str) -> Measured:
    """Simulate in a process of its own and measure it from outside.

    Raises:
        DallyError: The simulation failed.
    """
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        arguments = ["--policy", policy, "--trace", trace, "--cluster", cluster, "--out", str(out), *options]
        began_s = time.monotonic()
        process = subprocess.Popen(
            [sys.executable, "-m", "dally", "simulate", "--json", *arguments], stdout=subprocess.DEVNULL
        )
        _, status, usage = os.wait4(process.pid, 0)
        wall_s = time.monotonic() - began_s
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            raise DallyError(f"dally simulate {' '.join(arguments)} failed, exit status {process.returncode}")
        facts = json.loads((out / folder_name(policy) / "run.json").read_text(encoding="utf-8"))
        return Measured(wall_s, usage.ru_maxrss / 1024, facts["summary"]["jobs"], facts["moments"])


def lines(name: str, measured: Measured) -> Iterator[dict[str, object]]:
    """The figures of one measurement."""
    for figure, value, unit in (
        ("wall_s", measured.wall_s, "s"),
        ("jobs_per_s", measured.jobs / measured.wall_s, "jobs/s"),
        ("moments_per_s", measured.moments / measured.wall_s, "moments/s"),
        ("wall_ms_per_job", 1000 * measured.wall_s / measured.jobs, "ms/job"),
        ("peak_mib", measured.peak_mib, "MiB"),
    ):
        yield {"name": f"{name}.{figure}", "value": round(value, 4), "unit": unit}


def philly(traces: Path, policies: tuple[str, ...]) -> Iterator[dict[str, object]]:
    """The steady slice of Philly on Philly's machines, under each policy."""
    begin, end = map(str, PHILLY_SLICE_S)
    span = ("--from-s", begin, "--to-s", end, "--min-duration-s", "1")
    for policy in policies:
        trace, machines = traces / "philly.csv.gz", traces / "philly_cluster_machine_list.csv"
        measured = measure(policy, str(trace), str(machines), *span, *_MODELS)
        yield from lines(f"simulate.philly.{policy}", measured)


def more_jobs(traces: Path, policies: tuple[str, ...]) -> Iterator[dict[str, object]]:
    """1, 3 and 10 times the jobs on the same cluster at the same load: cost per job should stay."""
    for policy in policies:
        for scale in _SCALES:
            yield from _generated(f"simulate.jobs-x{scale}.{policy}", policy, 10_000 * scale, gpus=1280)


def larger_cluster(traces: Path, policies: tuple[str, ...]) -> Iterator[dict[str, object]]:
    """The same number of jobs on 1, 3 and 10 times the GPUs at the same load."""
    for policy in policies:
        for scale in _SCALES:
            yield from _generated(f"simulate.cluster-x{scale}.{policy}", policy, 20_000, gpus=1280 * scale)


def _generated(name: str, policy: str, jobs: int, gpus: int) -> Iterator[dict[str, object]]:
    with tempfile.TemporaryDirectory() as folder:
        cluster = Path(folder) / "cluster.toml"
        cluster.write_text(_cluster(gpus), encoding="utf-8")
        trace = f"philly-like:jobs={jobs},load=0.9,cluster_gpus={gpus}"
        yield from lines(name, measure(policy, trace, str(cluster), *_MODELS))


def _cluster(gpus: int) -> str:
    return f"""name = "bench"
[[levels]]
name = "machine"
count = 8
gpus = 8
fabric = {{ bandwidth_bps = 2.4e12, latency_s = 1e-6 }}
uplink = {{ bandwidth_bps = 200e9, latency_s = 1e-6 }}
[[levels]]
name = "rack"
count = {gpus // _GPUS_PER_RACK}
uplink = {{ bandwidth_bps = 800e9, latency_s = 2e-6 }}
"""


PRESSED = "gavel:jobs=500,gap_s=0,gpus=1:3/2:2/4:3/8:2"
"""500 jobs at once; they ask for 1.8 times the 1,000 GPUs."""

_MOMENTS = 1000


class TimedScheduler(Scheduler):
    """Takes the time of each decision, in seconds of this process."""

    def __init__(self, state: ClusterState, policy: str) -> None:
        super().__init__(state, parse_policy(policy).build(state))
        self.decided_s: list[float] = []

    def decide(self, now: float) -> Plan:
        """Decide, and note how long that took."""
        began_s = time.process_time()
        plan = super().decide(now)
        self.decided_s.append(time.process_time() - began_s)
        return plan

    def timed_enough(self) -> bool:
        """Whether that is enough of them."""
        return len(self.decided_s) >= _MOMENTS


def deciding(traces: Path, policies: tuple[str, ...]) -> Iterator[dict[str, object]]:
    """How long decisions take with 500 jobs on 1,000 GPUs of three types, at the first 1,000 moments."""
    with tempfile.TemporaryDirectory() as folder:
        cluster = Path(folder) / "cluster.toml"
        cluster.write_text(_THREE_TYPES, encoding="utf-8")
        topology, profiles = load_cluster(str(cluster)), load_profiles("gavel")
    jobs = load_trace(PRESSED, seed=1).jobs
    for policy in policies:
        batching = parse_policy(policy).policy.batching
        state = ClusterState(topology, CostModel(topology, profiles, batching=batching))
        scheduler = TimedScheduler(state, policy)
        Engine(scheduler, jobs, EventLog(io.StringIO()), stop=scheduler.timed_enough).run()
        for figure, value in _spread(scheduler.decided_s):
            yield {"name": f"decide.{policy}.{figure}", "value": round(1000 * value, 3), "unit": "ms"}


def _spread(times_s: Sequence[float]) -> Iterator[tuple[str, float]]:
    ordered = sorted(times_s)
    yield "p50_ms", ordered[len(ordered) // 2]
    yield "p99_ms", ordered[len(ordered) * 99 // 100]
    yield "most_ms", ordered[-1]


_THREE_TYPES = """name = "three-types"
[[levels]]
name = "machine"
gpus = 8
fabric = { bandwidth_bps = 1.2e12, latency_s = 1e-6 }
uplink = { bandwidth_bps = 100e9, latency_s = 1e-6 }
[[machines]]
names = "v100-[1-42]"
gpu_type = "v100"
[[machines]]
names = "p100-[1-42]"
gpu_type = "p100"
[[machines]]
names = "k80-[1-41]"
gpu_type = "k80"
[[switches]]
name = "switch"
machines = "v100-[1-42],p100-[1-42],k80-[1-41]"
"""

_GROUPS = {"philly": philly, "jobs": more_jobs, "cluster": larger_cluster, "decide": deciding}


@click.command()
@click.argument("groups", nargs=-1, type=click.Choice([*_GROUPS]))
@click.option("--policy", "policies", multiple=True, help="Only these policies; all without.")
@click.option(
    "--traces",
    type=click.Path(path_type=Path),
    default=Path("../shared/traces"),
    show_default=True,
    help="Folder of the Philly trace and machine list.",
)
def main(groups: tuple[str, ...], policies: tuple[str, ...], traces: Path) -> None:
    """Measure speed and memory; GROUPS are philly, jobs and cluster (more of each), decide, or all."""
    try:
        for group in groups or _GROUPS:
            for line in _GROUPS[group](traces, policies or tuple(policy_names())):
                click.echo(json.dumps(line))
    except DallyError as error:
        raise click.ClickException(str(error)) from error


if __name__ == "__main__":
    main()
