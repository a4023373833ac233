"""A job that cannot be is refused before anything is loaded or started."""

from dataclasses import replace
from pathlib import Path

import pytest

from dally.errors import InputError
from workloads.settings import Backend, Fork, Settings, TrainingJob


def test_wrong_settings_are_named() -> None:
    good = Settings(8)
    with pytest.raises(InputError, match="global_batch is 0, must be positive"):
        replace(good, global_batch=0)
    with pytest.raises(InputError, match="size is -1, must be positive"):
        replace(good, size=-1)
    with pytest.raises(InputError, match="emulated_flops is nan, must be positive"):
        replace(good, emulated_flops=float("nan"))
    for seed in (-1, 1 << 63):
        with pytest.raises(InputError, match=f"seed is {seed}, must be 0 or more and below 2"):
            replace(good, seed=seed)


def test_wrong_jobs_are_named(tmp_path: Path) -> None:
    good = TrainingJob("ncf", 10, Settings(8), Backend.GLOO)
    with pytest.raises(InputError, match="steps is 0, must be positive"):
        replace(good, steps=0)
    with pytest.raises(InputError, match="checkpoint_every needs a checkpoint file"):
        replace(good, checkpoint_every=5)
    with pytest.raises(InputError, match=r"job\.pt cannot be written: there is no folder .*nowhere"):
        replace(good, checkpoint=tmp_path / "nowhere" / "job.pt")
    with pytest.raises(InputError, match="shares has -1, must be positive numbers"):
        replace(good, shares=(1.0, -1.0))
    with pytest.raises(InputError, match="slot_s is inf, must be positive and at most 1200"):
        Fork(slot_s=float("inf"))


def test_what_is_given_by_rank_is_for_each_or_one_for_all() -> None:
    job = TrainingJob("ncf", 10, Settings(8), Backend.GLOO, emulated_flops=(1e12,), pace_s=(0.1, 0.2))
    assert [job.of_rank("emulated_flops", rank, 2) for rank in (0, 1)] == [1e12, 1e12]
    assert [job.of_rank("pace_s", rank, 2) for rank in (0, 1)] == [0.1, 0.2]
    assert replace(job, pace_s=None).of_rank("pace_s", 0, 2) is None
    with pytest.raises(InputError, match="pace_s are 2 and ranks 3, must be one for all or one for each"):
        job.of_rank("pace_s", 0, 3)


def test_checkpoints_are_due_at_intervals_and_at_the_end(tmp_path: Path) -> None:
    job = TrainingJob(
        "ncf", 10, Settings(8), Backend.GLOO, checkpoint=tmp_path / "job.pt", checkpoint_every=4
    )
    assert [step for step in range(1, 11) if job.saves_after(step)] == [4, 8, 10]
    assert [step for step in range(1, 11) if replace(job, checkpoint_every=None).saves_after(step)] == [10]
