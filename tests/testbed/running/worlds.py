"""A small cluster, profiles and jobs for the tests of real runs."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from dally.cluster.toml_file import read_toml
from dally.cluster.topology import Topology
from dally.jobs.job import Job
from dally.profiles.files import ProfileSet, write_profiles
from dally.profiles.schema import (
    SCHEMA,
    Bucket,
    Compute,
    Env,
    Model,
    Point,
    PointShape,
    Profile,
    ProfileMode,
    Provenance,
    Timing,
)
from testbed.running.folder import RunInputs
from testbed.running.job_plan import plan_jobs

CLUSTER = """
name = "lab"
[[levels]]
name = "machine"
uplink = { bandwidth_bps = 1e9, latency_s = 5e-6 }
[[levels]]
name = "rack"
uplink = { bandwidth_bps = 200e6, latency_s = 5e-6 }
[[machines]]
names = "r[1-2]h[1-2]"
gpus = 2
gpu_type = "h100"
fabric = { bandwidth_bps = 1e12, latency_s = 1e-6 }
[[switches]]
name = "r1"
machines = "r1h[1-2]"
[[switches]]
name = "r2"
machines = "r2h[1-2]"
[[switches]]
name = "core"
switches = "r[1-2]"
"""
TFLOPS = {"h100": 60.0}
COMPUTE_S = 0.1
MACHINE_S = 0.125


def topology() -> Topology:
    """Two racks of two machines of two GPUs."""
    return read_toml(CLUSTER, "cluster.toml", "lab")


def typed(**gpu_types: str) -> Topology:
    """The same with GPUs of a type in each rack."""
    plain = topology()
    racks = [plain.domains[path[1]].name for path in plain.ancestors]
    machines = zip(plain.machines, racks, strict=True)
    return replace(
        plain, machines=tuple(replace(machine, gpu_type=gpu_types[rack]) for machine, rack in machines)
    )


def profile(name: str = "mobilenetv3") -> Profile:
    """0.1 s of computing, 0.125 s an iteration of two GPUs of a machine."""
    pair = Point(PointShape(1, 2, "blocked"), None, (), Timing(MACHINE_S, None, None, 9), None, None)
    return Profile(
        SCHEMA,
        Provenance(ProfileMode.EMULATED, "a test", "none", "1", "now"),
        Env(),
        Model(name, 1000, "fp32", 4000, 16, "sgd", (Bucket(4000, 0.05),), None),
        Compute(0.04, 0.06, None, 0.03, None),
        {"machine": (pair,)},
    )


def profiles(*names: str) -> ProfileSet:
    """Such profiles of some models."""
    return ProfileSet("tests", tuple(profile(name) for name in names or ("mobilenetv3",)))


def write_profile_folder(folder: Path) -> str:
    """The same in a folder; its path."""
    write_profiles(profiles().profiles, folder)
    return str(folder)


def job(job_id: str = "a", gpus: int = 2, duration_s: float = 5.0, submit_s: float = 0.0, **more: Any) -> Job:
    """A job of MobileNetV3."""
    return Job(job_id, submit_s, gpus, duration_s, **{"model": "mobilenetv3", **more})


def inputs(*jobs: Job) -> RunInputs:
    """The inputs of a run of some jobs."""
    plans = plan_jobs(jobs or (job(),), topology(), profiles())
    return RunInputs(plans, topology(), profiles())
