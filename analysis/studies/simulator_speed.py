"""Measures the simulator's speed: each figure from a process of its own, one JSON object a line."""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from analysis.studies.common import StudyCommand
from dally.cluster.toml_file import read_toml
from dally.cluster.topology import Topology
from dally.errors import DallyError
from dally.jobs.job import Job, JobKind
from dally.plan import Plan
from dally.policies.registry import parse_policy, policy_names
from dally.profiles.costs import CostModel
from dally.profiles.files import ProfileSet, load_profiles
from dally.profiles.goodput import Batching
from dally.runs.records import NoEvents
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

Line = dict[str, Any]
"""A figure: name, value and unit."""


def measure(name: str, policy: str, trace: str, cluster: str, *options: str) -> Iterator[Line]:
    """Simulate in a process of its own and measure its speed and memory from outside.

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
    jobs = facts["summary"]["jobs"]
    for figure, value, unit in (
        ("wall_s", wall_s, "s"),
        ("jobs_per_s", jobs / wall_s, "jobs/s"),
        ("moments_per_s", facts["moments"] / wall_s, "moments/s"),
        ("wall_ms_per_job", 1000 * wall_s / jobs, "ms/job"),
        ("peak_mib", usage.ru_maxrss / 1024, "MiB"),
    ):
        yield {"name": f"{name}.{figure}", "value": round(value, 4), "unit": unit}


def philly(traces: Path, policies: tuple[str, ...], *options: str) -> Iterator[Line]:
    """The steady slice of Philly on Philly's machines, under each policy."""
    begin, end = map(str, PHILLY_SLICE_S)
    span = ("--from-s", begin, "--to-s", end, "--min-duration-s", "1")
    name = "".join(["simulate.philly", *options]).replace("--", "-")
    for policy in policies:
        trace, machines = traces / "philly.csv.gz", traces / "philly_cluster_machine_list.csv"
        yield from measure(f"{name}.{policy}", policy, str(trace), str(machines), *span, *_MODELS, *options)


def shared_links(traces: Path, policies: tuple[str, ...]) -> Iterator[Line]:
    """Philly where jobs that share links slow each other; not under policies that let batches vary."""
    fixed = [name for name in policies if parse_policy(name).policy.batching is Batching.FIXED]
    yield from philly(traces, tuple(fixed), "--contention")


def million(traces: Path, policies: tuple[str, ...]) -> Iterator[Line]:
    """A million jobs on 100,032 GPUs."""
    yield from _generated("million", policies, 1_000_000, gpus=100_032)


def more_jobs(traces: Path, policies: tuple[str, ...]) -> Iterator[Line]:
    """1, 3 and 10 times the jobs on the same cluster at the same load: cost per job should stay."""
    for scale in _SCALES:
        yield from _generated(f"jobs-x{scale}", policies, 10_000 * scale, gpus=1280)


def larger_cluster(traces: Path, policies: tuple[str, ...]) -> Iterator[Line]:
    """The same number of jobs on 1, 3 and 10 times the GPUs at the same load."""
    for scale in _SCALES:
        yield from _generated(f"cluster-x{scale}", policies, 20_000, gpus=1280 * scale)


def _generated(name: str, policies: tuple[str, ...], jobs: int, gpus: int) -> Iterator[Line]:
    with tempfile.TemporaryDirectory() as folder:
        cluster = Path(folder) / "cluster.toml"
        cluster.write_text(_cluster(gpus), encoding="utf-8")
        trace = f"philly-like:jobs={jobs},load=0.9,cluster_gpus={gpus}"
        for policy in policies:
            yield from measure(f"simulate.{name}.{policy}", policy, trace, str(cluster), *_MODELS)


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


class TimedScheduler(Scheduler):
    """Takes the time of the decisions that count, in seconds of this process."""

    def __init__(self, state: ClusterState, policy: str, waiting: int) -> None:
        super().__init__(state, parse_policy(policy).build(state))
        self.decided_s: list[float] = []
        self.spent_s = 0.0
        self._waiting = waiting

    def decide(self, now: float) -> Plan:
        """Decide, and keep how long that took."""
        began_s = time.process_time()
        plan = super().decide(now)
        took_s = time.process_time() - began_s
        self.spent_s += took_s
        if len(self.state.waiting) >= self._waiting:
            self.decided_s.append(took_s)
        return plan


def decision_times_s(
    policy: str,
    jobs: Sequence[Job],
    topology: Topology,
    profiles: ProfileSet,
    decisions: int,
    waiting: int = 0,
) -> list[float]:
    """How long the first decisions take at which so many jobs wait, seconds of this process."""
    batching = parse_policy(policy).policy.batching
    state = ClusterState(topology, CostModel(topology, profiles, batching=batching))
    scheduler = TimedScheduler(state, policy, waiting)

    def timed_enough() -> bool:
        return len(scheduler.decided_s) >= decisions or scheduler.spent_s > _MOST_DECIDING_S

    Engine(scheduler, jobs, NoEvents(), stop=timed_enough).run()
    return scheduler.decided_s


def three_types(traces: Path, policies: tuple[str, ...]) -> Iterator[Line]:
    """500 jobs at once that ask for 1.8 times the 1,000 GPUs of three types."""
    jobs = load_trace("gavel:jobs=500,gap_s=0,gpus=1:3/2:2/4:3/8:2", seed=1).jobs
    yield from _deciding("decide", policies, jobs, _THREE_TYPES, "gavel")


def crowd(traces: Path, policies: tuple[str, ...]) -> Iterator[Line]:
    """1,000 to 3,000 jobs run on 10,000 GPUs; more come than end. The time is taken once 10,000 wait."""
    trace = "philly-like:jobs=30000,gap_s=0.5,mu=9,sigma=1,gpus=1:20/4:20/8:30/16:20/32:10"
    jobs = assign_models(load_trace(trace, seed=1).jobs, MIX, seed=1)
    yield from _deciding("decide-crowd", policies, jobs, _cluster(10_048), "realistic", waiting=10_000)


def elastic(traces: Path, policies: tuple[str, ...]) -> Iterator[Line]:
    """800 elastic jobs within a quarter of an hour on 1,024 GPUs; each may have 64."""
    trace = "philly-like:jobs=800,gap_s=1,mu=10,sigma=1,gpus=1:60/2:20/4:20"
    mix = "cifar10=0.4,imagenet=0.2,bert=0.2,deepspeech2=0.2"
    rigid = assign_models(load_trace(trace, seed=1).jobs, mix, seed=1)
    jobs = [replace(job, kind=JobKind.ELASTIC, min_gpus=1, max_gpus=64) for job in rigid]
    cluster = _cluster(1024).replace("gpus = 8", 'gpus = 8\ngpu_type = "t4"')
    yield from _deciding("decide-elastic", policies, jobs, cluster, "pollux")


def _deciding(
    name: str,
    policies: tuple[str, ...],
    jobs: Sequence[Job],
    cluster: str,
    profiles: str,
    waiting: int = 0,
) -> Iterator[Line]:
    """How long decisions take under pressure, at the first 1,000 moments at which so many jobs wait."""
    topology, known = read_toml(cluster, name, name), load_profiles(profiles)
    for policy in policies:
        times_s = decision_times_s(policy, jobs, topology, known, _MOMENTS, waiting)
        yield {"name": f"{name}.{policy}.moments", "value": len(times_s), "unit": "decisions"}
        if ordered_ms := sorted(1000 * time_s for time_s in times_s):
            places = {"p50": len(times_s) // 2, "p99": len(times_s) * 99 // 100, "most": -1}
            for figure, place in places.items():
                value = round(ordered_ms[place], 3)
                yield {"name": f"{name}.{policy}.{figure}_ms", "value": value, "unit": "ms"}


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

_GROUPS: Mapping[str, Callable[[Path, tuple[str, ...]], Iterator[Line]]] = {
    "philly": philly,
    "philly-contention": shared_links,
    "million": million,
    "jobs": more_jobs,
    "cluster": larger_cluster,
    "decide": three_types,
    "decide-crowd": crowd,
    "decide-elastic": elastic,
}


@click.command(cls=StudyCommand)
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
    for group in groups or _GROUPS:
        for line in _GROUPS[group](traces, policies or tuple(policy_names())):
            click.echo(json.dumps(line))
            if most_ms is not None and line["name"].endswith(".p99_ms") and line["value"] > most_ms:
                slow.append(f"{line['name']} is {line['value']} ms")
    if slow:
        raise DallyError(f"slower than {most_ms:g} ms: {', '.join(slow)}")


if __name__ == "__main__":
    main()
