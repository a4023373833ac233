"""What runs in a drill: six small jobs that want more GPUs than there are, and a made-up profile of them.

Nothing is measured in a drill, so the profile need not be true; the pretended GPU is slow enough that steps
last longer than this machine needs for them.
"""

from collections.abc import Sequence

from dally.cluster.topology import Topology
from dally.jobs.job import Job
from dally.profiles.files import ProfileSet
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
from testbed.persistent.shape import LocalClusterShape
from testbed.running.folder import RunInputs
from testbed.running.job_plan import plan_jobs

SHAPE = LocalClusterShape((2, 2), 2, 1e9, 500e6)
POLICY = "dally:lease_s=12"
"""Leases far below the jobs' lengths, so that jobs are stopped and requeued all the time."""

EMULATED_TFLOPS = 0.02
WIDE = "wide"
"""The first job; it needs more GPUs than a rack has, and has to give way to the others."""

_MODEL = "mobilenetv3"
_STEP_S = 0.3
_GRADIENT_BYTES = 10_171_424
_JOBS = (
    (WIDE, 5, 15.0, 0.0),
    ("two", 2, 15.0, 0.5),
    ("pair", 2, 15.0, 6.0),
    ("one", 1, 15.0, 7.0),
    ("other", 1, 15.0, 9.0),
    ("last", 2, 15.0, 11.0),
)
"""Job, GPUs, seconds, seconds of submission."""

JOBS = tuple(Job(name, submit_s, gpus, run_s, model=_MODEL) for name, gpus, run_s, submit_s in _JOBS)
"""The workload of every drill."""


def drill_inputs(topology: Topology, jobs: Sequence[Job] = JOBS) -> RunInputs:
    """Jobs of a drill on a cluster."""
    profiles = ProfileSet("drills", (_profile(),))
    return RunInputs(plan_jobs(jobs, topology, profiles), topology, profiles)


def _profile() -> Profile:
    pair = Point(PointShape(1, 2, "blocked"), None, (), Timing(_STEP_S, None, None, 1), None, None)
    buckets = (Bucket(_GRADIENT_BYTES, _STEP_S / 2),)
    return Profile(
        SCHEMA,
        Provenance(ProfileMode.EMULATED, "made up for drills", "none", "1", "1970-01-01T00:00:00Z"),
        Env(),
        Model(_MODEL, 2_542_856, "fp32", _GRADIENT_BYTES, 16, "sgd", buckets, None),
        Compute(_STEP_S / 3, _STEP_S / 2, None, _STEP_S / 3, None),
        {"machine": (pair,)},
    )
