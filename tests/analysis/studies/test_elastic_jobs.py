"""Jobs like those of the artifact of ONES: their mix, their passes, the load that they make."""

from collections import Counter
from statistics import fmean, stdev

import pytest

from analysis.studies.elastic_jobs import KINDS, artifact_profiles, draw_artifact_jobs, ones_profiles
from dally.errors import InputError
from dally.jobs.job import Job

PROFILES = ones_profiles()


def draw(count: int = 400, gpus: int = 64, load: float = 1.1, seed: int = 1) -> tuple[Job, ...]:
    return draw_artifact_jobs(count, gpus, load, seed, PROFILES)


def test_each_kind_is_equally_frequent() -> None:
    jobs = draw()
    assert Counter(job.gpus for job in jobs) == {16: 160, 4: 120, 2: 80, 8: 40}
    assert Counter((job.model, job.epoch_samples) for job in jobs)["imagenet", 20_000] == 80
    assert len(KINDS) == 20


def test_passes_vary_from_job_to_job_around_the_medians_of_the_artifact() -> None:
    jobs = draw(8000)
    for model, mean, spread in (("imagenet", 47, 0.49), ("cifar10", 36, 0.44), ("bert", 5, 0.1)):
        epochs = [job.epochs or 0 for job in jobs if job.model == model]
        assert fmean(epochs) == pytest.approx(mean, rel=0.03)
        assert stdev(epochs) / fmean(epochs) == pytest.approx(spread, rel=0.2)


@pytest.mark.parametrize(("gpus", "load"), [(64, 1.1), (16, 1.1), (64, 0.5)])
def test_the_load_is_what_is_asked_for(gpus: int, load: float) -> None:
    jobs = draw(8000, gpus, load)
    asked = sum(job.gpus * job.duration_s for job in jobs)
    assert asked / jobs[-1].submit_s / gpus == pytest.approx(load, rel=0.05)
    assert jobs[-1].submit_s / 8000 == pytest.approx(30 * 64 / gpus, rel=0.05)


def test_jobs_repeat_by_seed() -> None:
    assert draw(50) == draw(50)
    assert draw(50) != draw(50, seed=2)


def test_a_cluster_too_small_is_refused() -> None:
    with pytest.raises(InputError, match=r"8 GPUs are too few: jobs of .* ask for"):
        draw(20, gpus=8)


def test_resizes_cost_what_companions_do() -> None:
    assert {each.restart.resize_s for each in artifact_profiles().profiles} == {0.4}
