"""Constants found from measured steps."""

from dataclasses import replace

import pytest

from dally.errors import InputError
from dally.jobs.parallelism import Parallelism
from dally.profiles.parallel.constants_fit import fit_constants
from dally.profiles.parallel.gpu_specs import GPUS
from dally.profiles.parallel.rank_groups import whole_machines
from dally.profiles.parallel.step_constants import USUAL, StepConstants
from dally.profiles.parallel.training_step import BatchSizes, TrainingStep
from dally.profiles.parallel.transformer import gpt

TRUE = replace(USUAL, matmul=0.5, memory=0.25, network=0.4, latency_s=8e-5)
PLANS = ("dp=32", "tp=2,dp=16", "tp=4,dp=8", "tp=8,dp=4", "tp=8,pp=4", "tp=4,pp=4,dp=2", "pp=8,dp=4")


def steps(hidden: int) -> list[TrainingStep]:
    return [
        TrainingStep(
            gpt(32, hidden, hidden // 128),
            plan,
            BatchSizes(64, micro, 2048),
            GPUS["a100"],
            whole_machines(plan.gpus, 8),
        )
        for plan in map(Parallelism.parse, PLANS)
        for micro in (1, 2)
    ]


def measure(each: list[TrainingStep], constants: StepConstants = TRUE) -> list[tuple[TrainingStep, float]]:
    return [(step, step.seconds(constants)) for step in each]


def test_constants_fitted_to_one_size_predict_another() -> None:
    found = fit_constants(measure(steps(4096)))
    for step, seconds in measure(steps(6144)):
        assert step.seconds(found) == pytest.approx(seconds, rel=0.05)
        assert step.seconds(USUAL) != pytest.approx(seconds, rel=0.05)


def test_one_bad_row_moves_little() -> None:
    rows = measure(steps(4096))
    found = fit_constants([(rows[0][0], 2 * rows[0][1]), *rows[1:]])
    for step, seconds in measure(steps(6144)):
        assert step.seconds(found) == pytest.approx(seconds, rel=0.1)


def test_one_measured_step_is_met_and_moves_the_others_with_it() -> None:
    one, *others = measure(steps(4096))
    found = fit_constants([one])
    assert abs(one[0].seconds(found) / one[1] - 1) < abs(one[0].seconds(USUAL) / one[1] - 1) / 3
    off = [
        sum(abs(step.seconds(constants) / seconds - 1) for step, seconds in others)
        for constants in (found, USUAL)
    ]
    assert off[0] < off[1]


def test_what_the_rows_tell_nothing_of_stays_usual() -> None:
    alone = [step for step in steps(4096) if step.plan.pp == 1]
    assert fit_constants(measure(alone)).hop_s == pytest.approx(USUAL.hop_s, rel=1e-3)


@pytest.mark.parametrize("seconds", [0.0, -1.0, float("nan"), float("inf")])
def test_times_that_cannot_be_are_refused(seconds: float) -> None:
    with pytest.raises(InputError, match=r"a measured step took .* s, must be a positive number"):
        fit_constants([(steps(4096)[0], seconds)])
    with pytest.raises(InputError, match="no measured step"):
        fit_constants([])
