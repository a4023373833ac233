"""What a user orders: a workload, profiles and scales, read and checked as a whole before anything starts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import resources
from pathlib import Path

from dally.cluster.topology import Topology
from dally.errors import InputError
from dally.profiles.emulated import of_types
from dally.profiles.files import ProfileSet, load_profiles
from dally.profiles.schema import ProfileMode
from dally.traces import Workload, assign_models, load_trace
from testbed.running.campaign import Campaign
from testbed.running.folder import RunInputs
from testbed.running.work import plan_work

EMULATED_TFLOPS = 1.0
"""Speed of the pretended GPU of the shipped set `testbed`."""

PROFILE_SET = "testbed"


@dataclass(frozen=True, slots=True)
class RunRequest:
    """An order for runs.

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


def plan_campaign(order: RunRequest, topology: Topology, out: Path) -> Campaign:
    """What is to be run on a cluster.

    Raises:
        InputError: Something in the order is wrong, or does not go together.
        CapacityError: The cluster is too small for a job.
    """
    measured = load_profiles(order.profiles)
    tflops, backend = _compute(order, measured, topology.gpu_types)
    profiles = _of_types(order, measured)
    if not 0 <= order.scale < float("inf"):
        raise InputError(f"scale is {order.scale:g}, must be 0 or more")
    workload = _workload(order)
    jobs = workload.jobs
    if order.model_mix is not None:
        jobs = assign_models(jobs, order.model_mix, order.seed)
    scaled = [replace(job, submit_s=job.submit_s * order.scale) for job in jobs]
    works = plan_work(scaled, topology, profiles, order.duration_scale)
    facts = {
        "seed": order.seed,
        "trace": {"source": order.workload, "format": workload.format, "sha256": workload.sha256},
        "arrival_scale": order.scale,
        "duration_scale": order.duration_scale,
        "profiles": order.profiles,
        "model_mix": order.model_mix,
        **({"data": order.data.name} if order.data else {}),
    }
    if order.companions and not order.data:
        raise InputError("--companions are ranks of real trainings; name their samples with --data")
    data = str(order.data.absolute()) if order.data else ""
    inputs = RunInputs(works, topology, profiles)
    return Campaign(out, inputs, facts, tflops, backend, order.timeout_s, data, order.companions)


def _workload(order: RunRequest) -> Workload:
    if order.workload not in named_workloads():
        return load_trace(order.workload, seed=order.seed, trace_format=order.trace_format)
    file = resources.files("testbed.running") / "workloads" / f"{order.workload}.csv"
    with resources.as_file(file) as path:
        return load_trace(path)


def _of_types(order: RunRequest, profiles: ProfileSet) -> ProfileSet:
    """The profiles that hold for GPUs of several speeds; those that name no type are of `EMULATED_TFLOPS`."""
    if not isinstance(order.emulate, Mapping) or all(each.env.gpu_type for each in profiles.profiles):
        return profiles
    return of_types(profiles, {name: tflops / EMULATED_TFLOPS for name, tflops in order.emulate.items()})


def _compute(
    order: RunRequest, profiles: ProfileSet, gpu_types: Sequence[str]
) -> tuple[Mapping[str, float] | None, str]:
    """Speed of the pretended GPUs by type and what carries the collectives, as the profiles were measured."""
    emulated = ProfileMode.EMULATED in profiles.modes
    if emulated and len(profiles.modes) > 1:
        raise InputError(f"profiles {profiles.name} are emulated and others; a run needs one or the other")
    if order.emulate is not None and not emulated:
        modes = ", ".join(profiles.modes)
        raise InputError(f"--emulate needs profiles that are emulated; those of {profiles.name} are {modes}")
    if emulated:
        return _tflops(EMULATED_TFLOPS if order.emulate is None else order.emulate, gpu_types), "gloo"
    return None, "gloo" if profiles.modes == (ProfileMode.GLOO,) else "nccl"


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
