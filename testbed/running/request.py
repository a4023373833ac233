"""What a user asks for: a workload, profiles and scales, checked as a whole before anything starts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import resources
from pathlib import Path

from dally.cluster.topology import Topology
from dally.errors import InputError
from dally.profiles.emulated import of_types
from dally.profiles.files import load_profiles
from dally.profiles.schema import ProfileMode
from dally.traces import assign_models, load_trace
from testbed.running.batch import RunBatch
from testbed.running.folder import RunInputs
from testbed.running.job_plan import plan_jobs

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
    if not 0 <= request.scale < float("inf"):
        raise InputError(f"scale is {request.scale:g}, must be 0 or more")
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
    data = str(request.data.absolute()) if request.data else ""
    inputs = RunInputs(plans, topology, profiles)
    return RunBatch(out, inputs, facts, tflops, backend, request.timeout_s, data, request.companions)


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
