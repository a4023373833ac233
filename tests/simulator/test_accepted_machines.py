"""Jobs that accept some machines only leave the others to the rest."""

import pytest

from dally.jobs.job import Job
from dally.testing import racks, simulate


@pytest.mark.parametrize(
    "policy", ["gandiva", "gavel", "hadar", "hadar-e", "jps", "ones", "optimus", "pollux", "slurm"]
)
def test_jobs_that_wait_for_one_machine_leave_the_other_to_those_behind(policy: str) -> None:
    first = frozenset({"r0m0"})
    jobs = [
        Job("long", 0, 8, 20_000, preemptible=False, machines=first),
        *(Job(name, 100, 8, 1000, machines=first) for name in ("next", "after")),
        Job("any", 200, 8, 3000),
    ]
    ends = simulate(policy, racks([[8, 8]]), jobs).by_job
    end_s = ends["any"].end_s
    assert end_s is not None
    assert end_s < 5000


@pytest.mark.parametrize("policy", ["fifo", "sjf", "srtf", "slurm:scheduler=builtin", "a-srpt"])
def test_jobs_that_wait_for_one_gpu_type_leave_the_others_to_those_behind(policy: str) -> None:
    jobs = [
        Job("runs", 0, 8, 20_000, preemptible=False, gpu_type="a100"),
        Job("waits", 100, 8, 1000, gpu_type="a100"),
        Job("other", 200, 8, 30_000, gpu_type="v100"),
    ]
    starts = simulate(policy, racks([[8, 8]], ("a100", "v100")), jobs).by_job
    assert (starts["waits"].start_s, starts["other"].start_s) == (20_000, 200)


@pytest.mark.parametrize("policy", ["a-srpt", "drl", "elastic-scaling", "fifo", "jps", "optimus", "sjf"])
def test_jobs_that_wait_for_large_machines_leave_the_small_ones_to_those_behind(policy: str) -> None:
    jobs = [
        Job("runs", 0, 8, 20_000, preemptible=False, gpus_per_machine=8),
        Job("waits", 100, 8, 1000, gpus_per_machine=8),
        Job("small", 200, 4, 30_000, gpus_per_machine=4),
        Job("other", 300, 4, 30_000, gpus_per_machine=4),
    ]
    starts = simulate(policy, racks([[8, 4, 4]]), jobs).by_job
    assert max(starts[name].start_s or 0.0 for name in ("small", "other")) < 1000
