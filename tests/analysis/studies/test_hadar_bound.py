"""Hadar against the optimum: the program is right on instances solved by hand, and the bound holds."""

import pytest

from analysis.studies.hadar_bound import (
    BoundInstance,
    BoundResult,
    SlotJob,
    draw,
    optimum,
    run_hadar,
    summary,
)

SAME = {"fast": 1.0}


def test_the_optimum_of_one_job_is_to_run_it_at_once_on_its_fastest_type() -> None:
    job = SlotJob(arrival=1, gpus=1, work=2.0, speeds={"fast": 1.0, "slow": 0.5})
    assert optimum(BoundInstance(((1, "slow"), (1, "fast")), (job,))) == pytest.approx(1.0)
    assert optimum(BoundInstance(((1, "slow"),), (job,))) == pytest.approx(0.5)


def test_the_optimum_lets_the_job_wait_that_loses_least_by_it() -> None:
    """One GPU: 1 slot then 3 gives 1 + 3/4; 3 slots then 1 gives 1 + 1/4."""
    jobs = tuple(SlotJob(0, 1, work, SAME) for work in (3.0, 1.0))
    assert optimum(BoundInstance(((1, "fast"),), jobs)) == pytest.approx(1.75)


def test_a_gang_over_two_types_goes_at_the_pace_of_the_slower() -> None:
    job = SlotJob(0, 2, 2.0, {"fast": 1.0, "slow": 0.5})
    assert optimum(BoundInstance(((1, "fast"), (1, "slow")), (job,))) == pytest.approx(2 / 4)


def test_hadar_alone_does_the_same() -> None:
    job = SlotJob(0, 2, 2.0, {"fast": 1.0, "slow": 0.5})
    assert run_hadar(BoundInstance(((1, "fast"), (1, "slow")), (job,)))[0] == pytest.approx(2 / 4)


@pytest.mark.slow
def test_hadar_reaches_what_its_bound_guarantees() -> None:
    for instance in (draw(seed, jobs=3) for seed in range(5)):
        best = optimum(instance)
        for policy in ("hadar", "hadar:exact=0"):
            result = BoundResult(*run_hadar(instance, policy), best)
            assert result.holds
            assert 0.5 < result.ratio <= 1 + 1e-6


def test_the_summary_counts_what_holds_and_what_is_optimal() -> None:
    told = summary([BoundResult(1.0, 5.0, 1.0), BoundResult(0.5, 5.0, 2.0)])
    assert told["guaranteed, mean"] == pytest.approx(0.1)
    assert told["ratio, mean"] == pytest.approx(0.625)
    assert (told["instances"], told["bound holds"], told["optimal"]) == (2, 2, 1)
