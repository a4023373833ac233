"""Jobs of a trace become steps of training that last as long."""

from dataclasses import replace
from typing import Any

import pytest

from dally.errors import CapacityError, InputError
from dally.jobs.job import JobKind
from dally.profiles.emulated import of_types
from dally.profiles.files import ProfileSet
from testbed.running.job_plan import plan_jobs
from tests.testbed.running.worlds import COMPUTE_S, MACHINE_S, job, profiles, topology, typed


def test_a_job_gets_the_steps_that_fill_its_duration_at_the_best_placement() -> None:
    (plan,) = plan_jobs([job(gpus=2, duration_s=5.0)], topology(), profiles())
    assert (plan.steps, plan.iteration_s, plan.compute_s) == (40, MACHINE_S, COMPUTE_S)
    assert plan.job.duration_s == 40 * MACHINE_S


def test_the_global_batch_is_the_profiles_batch_on_every_gpu() -> None:
    (plan,) = plan_jobs([job(gpus=4)], topology(), profiles())
    assert plan.global_batch == 4 * 16


@pytest.mark.parametrize(("measured_in", "trains_in"), [(None, "fp32"), ("fp32", "fp32"), ("bf16", "bf16")])
def test_a_job_trains_in_the_precision_that_its_profile_was_measured_in(
    measured_in: str | None, trains_in: str
) -> None:
    (plan,) = plan_jobs([job()], topology(), profiles_in(measured_in))
    assert plan.precision == trains_in


def test_a_precision_in_which_nothing_here_trains_is_refused() -> None:
    with pytest.raises(
        InputError, match=r"job a trains mobilenetv3 in fp8, as its profile; valid: fp32, bf16"
    ):
        plan_jobs([job()], topology(), profiles_in("fp8"))


def profiles_in(precision: str | None) -> ProfileSet:
    (found,) = profiles().profiles
    return ProfileSet("tests", (replace(found, model=replace(found.model, precision=precision)),))


def test_durations_are_scaled_and_no_job_is_without_a_step() -> None:
    plans = plan_jobs([job(duration_s=5.0), job("b", duration_s=0.01)], topology(), profiles(), 0.5)
    assert [plan.steps for plan in plans] == [20, 1]


def test_what_was_planned_once_is_planned_the_same_again() -> None:
    plans = plan_jobs([job(duration_s=7.31, gpus=4)], topology(), profiles())
    assert plan_jobs([plan.job for plan in plans], topology(), profiles()) == plans


@pytest.mark.parametrize(("limit_s", "told_s"), [(None, 300.0), (90.0, 120.0), (3600.0, 3600.0)])
def test_the_limit_of_a_job_is_what_slurm_is_told_in_full_minutes(
    limit_s: float | None, told_s: float
) -> None:
    (plan,) = plan_jobs([job(duration_s=20.0, time_limit_s=limit_s)], topology(), profiles())
    assert plan.job.time_limit_s == told_s
    (long,) = plan_jobs([job(duration_s=50.0)], topology(), profiles())
    assert long.job.time_limit_s == 540.0, "ten times what its steps take"


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ("", "job a names no model; a job must train one of resnet18"),
        ("gpt9", "job a names the model gpt9; a job must train one of"),
        ("vgg11", "job a trains vgg11, of which tests has no profile; it has mobilenetv3"),
    ],
)
def test_a_job_whose_model_cannot_be_run_is_refused(model: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        plan_jobs([job(model=model)], topology(), profiles())


def test_a_batch_is_that_of_the_size_asked_for_and_of_one_copy() -> None:
    sizes: list[dict[str, Any]] = [
        {},
        {"kind": JobKind.FORKED, "max_copies": 3},
        {"kind": JobKind.ELASTIC, "max_gpus": 4},
    ]
    plans = plan_jobs([job(gpus=2, **size) for size in sizes], topology(), profiles())
    assert [plan.global_batch for plan in plans] == [2 * 16] * 3


def test_steps_are_those_of_the_fastest_gpu_type_that_a_job_accepts() -> None:
    cluster, known = typed(r1="k80", r2="v100"), of_types(profiles(), {"v100": 2.0, "k80": 0.5})
    plans = plan_jobs([job(gpus=1, duration_s=5.0), job("b", 1, 5.0, gpu_type="k80")], cluster, known)
    assert [plan.compute_s for plan in plans] == pytest.approx([COMPUTE_S / 2, COMPUTE_S * 2])
    assert [plan.steps for plan in plans] == [100, 25]


def test_a_job_larger_than_the_cluster_is_refused() -> None:
    with pytest.raises(CapacityError, match="16 GPUs"):
        plan_jobs([job(gpus=16)], topology(), profiles())
