"""The jobs of Gavel's published simulations are drawn as its authors drew them."""

from itertools import islice
from statistics import fmean

import pytest

from analysis.studies.gavel_published import CONFIGURATIONS, PUBLISHED, WINDOW, GavelSetting, draw_jobs
from dally.policies.registry import parse_policy
from dally.profiles.files import ProfileSet
from dally.profiles.imports.gavel import GPU_TYPES
from dally.testing.worlds import racks

ALIKE = {(entry, gpus): 1.0 for entry, _ in CONFIGURATIONS for gpus in (1, 2, 4, 8)}
SETTING = GavelSetting(racks([[1]]), ProfileSet("none", ()), dict.fromkeys(GPU_TYPES, ALIKE))


def test_the_jobs_that_count_have_the_lengths_of_the_published_streams() -> None:
    """On V100s they take 16.87 h; with nearly no load the published completion time is 17.29 h."""
    jobs = [job for seed in range(3) for job in [*islice(draw_jobs(SETTING, seed, 1.0), WINDOW.stop)][4000:]]
    assert fmean(job.duration_s for job in jobs) / 3600 == pytest.approx(16.867, abs=0.001)


def test_only_models_with_gangs_have_several_gpus_and_arrivals_are_at_the_rate() -> None:
    jobs = [*islice(draw_jobs(SETTING, 0, 2.0), 3000)]
    gangs = dict(CONFIGURATIONS)
    assert all(gangs[job.model] for job in jobs if job.gpus > 1)
    assert jobs[-1].submit_s / 3600 == pytest.approx(1500, rel=0.05)


@pytest.mark.parametrize("policy", PUBLISHED)
def test_every_published_policy_is_one_of_ours(policy: str) -> None:
    objective, _, aware = policy.partition(":")
    parse_policy(f"gavel:objective={objective},{aware},spare=in-order")
