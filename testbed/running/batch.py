"""The runs that a user asks for: a workload under one policy after the other, begun, resumed or done."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from importlib import resources
from math import fsum
from pathlib import Path
from tempfile import TemporaryDirectory

from dally.bounds import check_number
from dally.cluster import load_cluster
from dally.cluster.topology import Topology
from dally.errors import DallyError, InputError
from dally.policies.registry import PolicySpec, parse_policy
from dally.profiles.emulated import of_types
from dally.profiles.files import load_profiles
from dally.profiles.schema import ProfileMode
from dally.traces import assign_models, load_trace
from simulator.scenario import Run, folder_name
from slurm_plugin.local_cluster.cluster import Cluster, ClusterError
from testbed.running.collect import fetch, write_run_folder
from testbed.running.driver import Driver, RunProgress
from testbed.running.folder import (
    RunInputs,
    RunState,
    begin_run,
    new_name,
    read_inputs,
    read_state,
    write_state,
)
from testbed.running.job_plan import plan_jobs
from testbed.running.scheduler import FACT, read_scheduler
from testbed.running.submission import is_slurms_own

_CLUSTER_FILE = "cluster.toml"
_SLURM_FILES = ("slurm.conf", "gres.conf", "topology.conf", "topology.yaml")
_OVERLOAD = 20.0
_SLACK_S = 600.0

EMULATED_TFLOPS = 1.0
"""Speed of the pretended GPU of the shipped set `testbed`."""

PROFILE_SET = "testbed"


@dataclass(frozen=True, slots=True)
class RunRequest:
    """The runs that a user asks for.

    Attributes:
        workload: Name of a workload that comes with Dally, a trace file, or a generated workload.
        profiles: Folder of profiles, or a shipped set.
        emulate: Speed of the pretended GPUs in TFLOPS, of all or by type; None: what the profiles say.
        scale: Factor on submission times.
        duration_scale: Factor on durations.
        model_mix: Models for jobs that name none; None leaves them without.
        seed: Of generators and model mix.
        trace_format: Format of the trace file; None to recognise it.
        timeout_s: Longest time for one policy; None for far longer than the jobs should take.
        data: File of samples on which jobs train for real, the same path on all nodes; None: made up.
        companions: By so many each elastic job that does is resized; 0: by checkpoints.
    """

    workload: str
    profiles: str = PROFILE_SET
    emulate: float | Mapping[str, float] | None = None
    scale: float = 1.0
    duration_scale: float = 1.0
    model_mix: str | None = None
    seed: int = 0
    trace_format: str | None = None
    timeout_s: float | None = None
    data: Path | None = None
    companions: int = 0


@dataclass(frozen=True, slots=True)
class RunBatch:
    """What is run, the same for every policy.

    Attributes:
        out: Folder with a folder for each policy.
        inputs: Jobs, cluster and profiles.
        state: How each run begins, but for its name, its policy and its folder.
        timeout_s: Longest time for one policy; None for far longer than the jobs should take.
    """

    out: Path
    inputs: RunInputs
    state: RunState
    timeout_s: float | None = None

    @property
    def longest_s(self) -> float:
        """Longest time for one policy, seconds."""
        if self.timeout_s is not None:
            return self.timeout_s
        jobs = [plan.job for plan in self.inputs.plans]
        work_s = fsum(job.gpus * job.duration_s for job in jobs) / self.inputs.topology.gpus
        longest_s = max(job.duration_s for job in jobs)
        return max(job.submit_s for job in jobs) + _OVERLOAD * max(work_s, longest_s) + _SLACK_S


def named_workloads() -> tuple[str, ...]:
    """Names of the workloads that come with Dally, smallest first."""
    folder = resources.files("testbed.running") / "workloads"
    files = [item for item in folder.iterdir() if item.name.endswith(".csv")]
    return tuple(
        item.name.removesuffix(".csv") for item in sorted(files, key=lambda item: len(item.read_text()))
    )


def plan_batch(request: RunRequest, topology: Topology, out: Path) -> RunBatch:
    """What is to be run on a cluster.

    Raises:
        InputError: Something in the request is wrong, or does not go together.
        CapacityError: The cluster is too small for a job.
    """
    profiles = load_profiles(request.profiles)
    emulated, emulate = ProfileMode.EMULATED in profiles.modes, request.emulate
    if emulated and len(profiles.modes) > 1:
        raise InputError(f"profiles {profiles.name} are emulated and others; a run needs one or the other")
    if emulate is not None and not emulated:
        modes = ", ".join(profiles.modes)
        raise InputError(f"--emulate needs profiles that are emulated; those of {profiles.name} are {modes}")
    tflops, backend = None, "gloo"
    if emulated:
        tflops = _tflops(EMULATED_TFLOPS if emulate is None else emulate, topology.gpu_types)
    elif profiles.modes != (ProfileMode.GLOO,):
        backend = "nccl"
    if isinstance(emulate, Mapping) and not all(one.env.gpu_type for one in profiles.profiles):
        # Profiles that name no type are of GPUs of `EMULATED_TFLOPS`.
        profiles = of_types(profiles, {name: speed / EMULATED_TFLOPS for name, speed in emulate.items()})
    check_number("scale", request.scale, 0)
    if request.workload in named_workloads():
        file = resources.files("testbed.running") / "workloads" / f"{request.workload}.csv"
        with resources.as_file(file) as path:
            workload = load_trace(path)
    else:
        workload = load_trace(request.workload, seed=request.seed, trace_format=request.trace_format)
    jobs = workload.jobs
    if request.model_mix is not None:
        jobs = assign_models(jobs, request.model_mix, request.seed)
    scaled = [replace(job, submit_s=job.submit_s * request.scale) for job in jobs]
    plans = plan_jobs(scaled, topology, profiles, request.duration_scale)
    facts = {
        "seed": request.seed,
        "trace": {"source": request.workload, "format": workload.format, "sha256": workload.sha256},
        "arrival_scale": request.scale,
        "duration_scale": request.duration_scale,
        "profiles": request.profiles,
        "model_mix": request.model_mix,
        **({"data": request.data.name} if request.data else {}),
    }
    if request.companions and not request.data:
        raise InputError("--companions are ranks of real trainings; name their samples with --data")
    state = RunState(
        run="",
        policy="",
        base="",
        emulate_tflops=tflops,
        backend=backend,
        facts=facts,
        data=str(request.data.absolute()) if request.data else "",
        companions=request.companions,
    )
    return RunBatch(out, RunInputs(plans, topology, profiles), state, request.timeout_s)


def _tflops(asked: float | Mapping[str, float], gpu_types: Sequence[str]) -> Mapping[str, float]:
    """The speed of each type."""
    speeds = asked if isinstance(asked, Mapping) else dict.fromkeys(gpu_types, asked)
    if speeds.keys() != set(gpu_types):
        raise InputError(
            f"--emulate names {', '.join(speeds)}; the cluster has GPUs of {', '.join(gpu_types)}"
        )
    for tflops in speeds.values():
        if not 0 < tflops < float("inf"):
            raise InputError(f"--emulate is {tflops:g}, must be a positive number")
    return speeds


def check_policies(specs: Sequence[str]) -> list[PolicySpec]:
    """The policies of a batch, each once.

    Raises:
        InputError: One is wrong, or two have the same folder.
    """
    policies = [parse_policy(spec) for spec in dict.fromkeys(specs)]
    folders = [folder_name(policy.spec) for policy in policies]
    if len(set(folders)) < len(folders):
        raise InputError(f"policies {', '.join(specs)}: two of them have the same folder")
    return policies


def run_policy(
    cluster: Cluster,
    batch: RunBatch,
    policy: PolicySpec,
    stop: Callable[[], bool],
    on_progress: Callable[[str, RunProgress], None],
) -> Run:
    """Run the workload under one policy and make its run folder; what is done already is not done again.

    Args:
        cluster: Where it runs.
        batch: What is run.
        policy: The policy.
        stop: True ends it early; what was is then collected, marked incomplete.
        on_progress: Called with the policy and how far it is.

    Raises:
        InputError: Its folder holds something else.
        DallyError: The cluster or the controller failed; what was is collected.
    """
    folder = batch.out / folder_name(policy.spec)
    state = read_state(folder)
    if state is None:
        state = _begin(cluster, batch, policy, folder)
    elif read_inputs(folder).plans != batch.inputs.plans or state.policy != policy.spec:
        raise InputError(f"{folder} holds a run of another workload or policy; name another --out")
    elif state.origin_s is None:  # nothing was submitted yet
        state = replace(state, base=str(cluster.work / state.run), end_s=None, note="")
        write_state(folder, state)
    elif state.end_s is None and Path(state.base).parent != cluster.work:
        raise InputError(f"the run in {folder} was cut off with its cluster; name another --out")
    if state.end_s is None:
        driver = Driver(
            cluster, folder, state, batch.inputs, batch.longest_s, partial(on_progress, policy.spec)
        )
        try:
            driver.run(stop)
        except DallyError:
            with suppress(DallyError):
                collect_run(folder, cluster)
            raise
    return collect_run(folder, cluster)


def collect_run(folder: Path, cluster: Cluster | None) -> Run:
    """Make the run folder, from what the head node still has if it can be asked.

    Raises:
        InputError: There is no run in the folder, or its files are wrong.
    """
    state = read_state(folder)
    if state is not None and cluster is not None:
        with suppress(ClusterError):
            fetch(cluster, folder, state)
    return write_run_folder(folder)


def begun_runs(out: Path) -> list[Path]:
    """The folders of all runs in a folder, the earliest first.

    Raises:
        InputError: There is none.
    """
    found = [(state, path) for path in sorted(out.glob("*/")) if (state := read_state(path))]
    if not found:
        raise InputError(f"{out} holds no run of `dally testbed run`")
    return [path for _, path in sorted(found, key=lambda one: one[0].origin_s or float("inf"))]


def topology_of(cluster: Cluster, file: str | None) -> Topology:
    """The tree of a cluster: the file's, else that of cluster.toml beside slurm.conf, else Slurm's own.

    Raises:
        InputError: They are wrong.
    """
    if file is not None:
        return load_cluster(file)
    with TemporaryDirectory(prefix="dally-") as name:
        folder = Path(name)
        for known in (_CLUSTER_FILE, *_SLURM_FILES):
            with suppress(ClusterError):
                text = cluster.ask("cat", str(cluster.conf.parent / known))
                (folder / known).write_text(text, encoding="utf-8")
        exact = folder / _CLUSTER_FILE
        return load_cluster(exact if exact.exists() else folder)


def _begin(cluster: Cluster, batch: RunBatch, policy: PolicySpec, folder: Path) -> RunState:
    if folder.exists() and any(folder.iterdir()):
        raise InputError(f"{folder} holds something else than a run; name another --out")
    run = new_name(batch.out, policy.spec)
    settings = {FACT: read_scheduler(cluster)} if is_slurms_own(policy) else {}
    state = replace(
        batch.state,
        run=run,
        policy=policy.spec,
        base=str(cluster.work / run),
        facts={**batch.state.facts, **settings},
    )
    begin_run(folder, state, batch.inputs)
    return state
