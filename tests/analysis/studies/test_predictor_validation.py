"""The predictor against the author's simulator and against Pollux's measurements."""

from pathlib import Path

import pytest

from analysis.studies.dally_slowdowns import DALLY_SLOWDOWNS, PER_GPU, dally_shapes, slowdowns
from analysis.studies.pollux_validation import (
    KNOWLEDGE,
    Validation,
    fit_pollux,
    pollux_formula,
    validate,
)
from dally.profiles.imports.dally import dally_profiles
from dally.profiles.imports.pollux import Measurement
from dally.profiles.iteration import predict

TABLES = Path(__file__).parents[4] / "shared" / "throughputs"


@pytest.mark.parametrize("model", sorted(DALLY_SLOWDOWNS))
def test_the_authors_latency_dominated_slowdowns_are_met_within_a_tenth(model: str) -> None:
    *_, two_racks, scattered = zip(DALLY_SLOWDOWNS[model], slowdowns(PER_GPU)[model], strict=True)
    for theirs, ours in (two_racks, scattered):
        assert ours == pytest.approx(theirs, rel=0.1)


@pytest.mark.parametrize("model", sorted(DALLY_SLOWDOWNS))
def test_the_authors_slowdowns_near_1_are_met_roughly(model: str) -> None:
    packed, two_machines, *_ = zip(DALLY_SLOWDOWNS[model], slowdowns(PER_GPU)[model], strict=True)
    for theirs, ours in (packed, two_machines):
        assert ours == pytest.approx(theirs, rel=0.15)


def test_scattered_mobilenet_waits_for_52_layers_of_30_steps_of_100_us() -> None:
    profile = next(each for each in dally_profiles() if each.model.name == "mobilenetv3")
    exposed_s = predict(profile, dally_shapes(PER_GPU)[3]).exposed_s
    assert exposed_s == pytest.approx(52 * 30 * 100e-6, rel=1e-3)


def test_pollux_formula_by_hand() -> None:
    formula = pollux_formula((1.0, 0.5, 0.3, 0.1, 3.0, 0.5, 2.0))
    assert formula(Measurement((1,), 2, 0.0)) == 2.0
    assert formula(Measurement((4,), 2, 0.0)) == pytest.approx((2.0**2 + 0.5**2) ** 0.5)
    assert formula(Measurement((2, 2), 4, 0.0)) == pytest.approx((3.0**2 + 4.0**2) ** 0.5)


def test_fitting_pollux_recovers_a_formula() -> None:
    truth = pollux_formula((0.2, 0.05, 0.1, 0.07, 1.2, 0.04, 2.0))
    shapes = [(gpus,) * nodes for nodes in (1, 2, 3, 4) for gpus in (1, 2, 4)]
    rows = [
        Measurement(shape, batch, truth(Measurement(shape, batch, 0.0)))
        for shape in shapes
        for batch in (4, 8, 12)
    ]
    fitted = fit_pollux(rows)
    assert max(abs(fitted(row) / row.step_s - 1) for row in rows) < 0.01


@pytest.fixture(scope="module")
def validations() -> tuple[Validation, ...]:
    return validate(TABLES / "pollux" / "traces")


@pytest.mark.trace
@pytest.mark.skipif(not TABLES.is_dir(), reason="no published tables in ../shared/throughputs")
class TestPolluxTables:
    def test_from_the_same_measurements_ours_is_never_worse_than_polluxs_form(
        self, validations: tuple[Validation, ...]
    ) -> None:
        for item in validations:
            for name in ("default run", "run of 12 shapes"):
                ours, pollux = item.ours[name], item.pollux[name]
                assert ours.near.mean < pollux.near.mean, (item.model, name)
                assert ours.far.mean <= pollux.far.mean + 0.005, (item.model, name)

    def test_placements_held_out_are_predicted_within_12_percent_from_12_shapes(
        self, validations: tuple[Validation, ...]
    ) -> None:
        for item in validations:
            assert item.ours["run of 12 shapes"].near.mean < 0.12
            assert item.ours["import"].near.mean < 0.10

    def test_pairs_of_placements_that_differ_by_more_than_noise_are_put_in_order(
        self, validations: tuple[Validation, ...]
    ) -> None:
        for item in validations:
            slightly, clearly = (
                order.right / order.pairs for order in item.ours["run of 12 shapes"].near_order.values()
            )
            assert clearly > 0.85
            assert slightly > item.again[1.1] - 0.15


def test_what_a_user_knows_is_one_profile_at_the_middle_batch() -> None:
    table = [
        Measurement(nodes, batch, 1.0)
        for nodes in ((1,), (4,), (1, 1), (2, 2), (1, 2))
        for batch in (8, 16, 32, 64)
    ]
    run, _, imported = (each.rows(table) for each in KNOWLEDGE)
    assert {(row.placement, row.local_batch) for row in run} == {("1", 32), ("1", 16), ("4", 32), ("11", 32)}
    assert [row.local_batch for row in imported if row.nodes == (1,)] == [8, 16, 32, 64]
    assert {row.local_batch for row in imported if row.nodes != (1,)} == {32}
