"""Measures the simulator's speed: each figure from a process of its own, one JSON object a line."""

import io
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import click

from dally.cluster import load_cluster
from dally.errors import DallyError
from dally.jobs.job import JobKind
from dally.plan import Plan
from dally.policies.registry import parse_policy, policy_names
from dally.profiles.costs import CostModel
from dally.profiles.files import load_profiles
from dally.profiles.goodput import Batching
from dally.runs.records import EventLog
from dally.scheduling.scheduler import Scheduler
from dally.state import ClusterState
from dally.traces import assign_models, load_trace
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


def philly(traces: Path, policies: tuple[str, ...], *options: str) -> Iterator[dict[str, object]]:
    """The steady slice of Philly on Philly's machines, under each policy."""
    begin, end = map(str, PHILLY_SLICE_S)
    span = ("--from-s", begin, "--to-s", end, "--min-duration-s", "1")
    name = "".join(["simulate.philly", *options]).replace("--", "-")
    for policy in policies:
        trace, machines = traces / "philly.csv.gz", traces / "philly_cluster_machine_list.csv"
        measured = measure(policy, str(trace), str(machines), *span, *_MODELS, *options)
        yield from lines(f"{name}.{policy}", measured)


def shared_links(traces: Path, policies: tuple[str, ...]) -> Iterator[dict[str, object]]:
    """The same, and jobs that share links slow each other; not under policies that let batches vary."""
    fixed = [name for name in policies if parse_policy(name).policy.batching is Batching.FIXED]
    yield from philly(traces, tuple(fixed), "--contention")


def million(traces: Path, policies: tuple[str, ...]) -> Iterator[dict[str, object]]:
    """A million jobs on 100,032 GPUs."""
    for policy in policies:
        yield from _generated(f"simulate.million.{policy}", policy, 1_000_000, gpus=100_032)


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


_MOMENTS = 1000
_MOST_DECIDING_S = 300.0
"""Seconds of deciding after which a policy is given up."""


@dataclass(frozen=True, slots=True)
class Pressed:
    """A workload that asks for more than its cluster has.

    Attributes:
        name: What its figures are called.
        cluster: The cluster file's text.
        profiles: A shipped set.
        trace: A generated workload.
        waiting: Decisions count while so many jobs wait, or more.
        model_mix: Models of jobs that name none.
        most_gpus: Jobs are elastic, on 1 to so many GPUs; None: as the trace has them.
    """

    name: str
    cluster: str
    profiles: str
    trace: str
    waiting: int = 0
    model_mix: str | None = None
    most_gpus: int | None = None


class TimedScheduler(Scheduler):
    """Takes the time of the decisions that count, in seconds of this process."""

    def __init__(self, state: ClusterState, policy: str, waiting: int) -> None:
        super().__init__(state, parse_policy(policy).build(state))
        self.decided_s: list[float] = []
        self._waiting, self._spent_s = waiting, 0.0

    def decide(self, now: float) -> Plan:
        """Decide, and note how long that took."""
        began_s = time.process_time()
        plan = super().decide(now)
        took_s = time.process_time() - began_s
        self._spent_s += took_s
        if len(self.state.waiting) >= self._waiting:
            self.decided_s.append(took_s)
        return plan

    def timed_enough(self) -> bool:
        """Whether that is enough of them, or of the time they take."""
        return len(self.decided_s) >= _MOMENTS or self._spent_s > _MOST_DECIDING_S


def deciding(pressed: Pressed, traces: Path, policies: tuple[str, ...]) -> Iterator[dict[str, object]]:
    """How long decisions take under pressure, at the first 1,000 moments that count."""
    with tempfile.TemporaryDirectory() as folder:
        cluster = Path(folder) / "cluster.toml"
        cluster.write_text(pressed.cluster, encoding="utf-8")
        topology, profiles = load_cluster(str(cluster)), load_profiles(pressed.profiles)
    jobs = load_trace(pressed.trace, seed=1).jobs
    if pressed.model_mix is not None:
        jobs = assign_models(jobs, pressed.model_mix, seed=1)
    if pressed.most_gpus is not None:
        jobs = [replace(job, kind=JobKind.ELASTIC, min_gpus=1, max_gpus=pressed.most_gpus) for job in jobs]
    for policy in policies:
        batching = parse_policy(policy).policy.batching
        state = ClusterState(topology, CostModel(topology, profiles, batching=batching))
        scheduler = TimedScheduler(state, policy, pressed.waiting)
        Engine(scheduler, jobs, EventLog(io.StringIO()), stop=scheduler.timed_enough).run()
        for figure, value, unit in _spread(scheduler.decided_s):
            yield {"name": f"{pressed.name}.{policy}.{figure}", "value": round(value, 3), "unit": unit}


def _spread(times_s: Sequence[float]) -> Iterator[tuple[str, float, str]]:
    yield "moments", len(times_s), "decisions"
    ordered_ms = sorted(1000 * time_s for time_s in times_s)
    if ordered_ms:
        yield "p50_ms", ordered_ms[len(ordered_ms) // 2], "ms"
        yield "p99_ms", ordered_ms[len(ordered_ms) * 99 // 100], "ms"
        yield "most_ms", ordered_ms[-1], "ms"


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

THREE_TYPES = Pressed("decide", _THREE_TYPES, "gavel", "gavel:jobs=500,gap_s=0,gpus=1:3/2:2/4:3/8:2")
"""500 jobs at once; they ask for 1.8 times the 1,000 GPUs."""

CROWD = Pressed(
    "decide-crowd",
    _cluster(10_048),
    "realistic",
    "philly-like:jobs=30000,gap_s=0.5,mu=9,sigma=1,gpus=1:20/4:20/8:30/16:20/32:10",
    waiting=10_000,
    model_mix=MIX,
)
"""1,000 to 3,000 jobs run on 10,000 GPUs; more come than end. The time is taken once 10,000 wait."""

ELASTIC = Pressed(
    "decide-elastic",
    _cluster(1024).replace("gpus = 8", 'gpus = 8\ngpu_type = "t4"'),
    "pollux",
    "philly-like:jobs=800,gap_s=1,mu=10,sigma=1,gpus=1:60/2:20/4:20",
    model_mix="cifar10=0.4,imagenet=0.2,bert=0.2,deepspeech2=0.2",
    most_gpus=64,
)
"""800 elastic jobs within a quarter of an hour on 1,024 GPUs; each may have 64."""

_GROUPS: Mapping[str, Callable[[Path, tuple[str, ...]], Iterator[dict[str, object]]]] = {
    "philly": philly,
    "philly-contention": shared_links,
    "million": million,
    "jobs": more_jobs,
    "cluster": larger_cluster,
    "decide": partial(deciding, THREE_TYPES),
    "decide-crowd": partial(deciding, CROWD),
    "decide-elastic": partial(deciding, ELASTIC),
}


@click.command()
@click.argument("groups", nargs=-1, type=click.Choice([*_GROUPS]))
@click.option("--policy", "policies", multiple=True, help="Only these policies; all without.")
@click.option(
    "--most-ms",
    type=float,
    help="Fail if 1 in 100 decisions of a policy took longer than this, milliseconds of processor time.",
)
@click.option(
    "--traces",
    type=click.Path(path_type=Path),
    default=Path("../shared/traces"),
    show_default=True,
    help="Folder of the Philly trace and machine list.",
)
def main(groups: tuple[str, ...], policies: tuple[str, ...], most_ms: float | None, traces: Path) -> None:
    """Measure speed and memory: each of GROUPS, or of all without."""
    slow: list[str] = []
    try:
        for group in groups or _GROUPS:
            for line in _GROUPS[group](traces, policies or tuple(policy_names())):
                click.echo(json.dumps(line))
                if most_ms is not None and _is_slow(line, most_ms):
                    slow.append(f"{line['name']} is {line['value']} ms")
    except DallyError as error:
        raise click.ClickException(str(error)) from error
    if slow:
        raise click.ClickException(f"slower than {most_ms:g} ms: {', '.join(slow)}")


def _is_slow(line: Mapping[str, Any], most_ms: float) -> bool:
    return str(line["name"]).endswith(".p99_ms") and line["value"] > most_ms


if __name__ == "__main__":
    main()
