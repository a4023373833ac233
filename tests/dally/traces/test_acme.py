"""Jobs like Kalos's have its published statistics, and plans that their GPUs can run."""

from collections import Counter, defaultdict
from statistics import fmean, median, quantiles

import pytest

from dally.errors import InputError
from dally.jobs.job import Job
from dally.profiles.parallel.transformer import read_model
from dally.traces.generators import generate

TYPES = ("evaluation", "pretraining", "debugging", "other")


@pytest.fixture(scope="module")
def jobs() -> list[Job]:
    return list(generate("kalos-like:jobs=60000", 1))


def of_type(jobs: list[Job], name: str) -> list[Job]:
    return [job for job in jobs if job.group == name]


def test_types_have_their_published_shares_of_jobs(jobs: list[Job]) -> None:
    counts = Counter(job.group for job in jobs)
    shares = [100 * counts[name] / len(jobs) for name in TYPES]
    assert shares == pytest.approx([92.82, 3.22, 2.70, 1.26], abs=0.25)


def test_types_have_about_their_published_shares_of_the_gpu_time(jobs: list[Job]) -> None:
    gpu_s: defaultdict[str, float] = defaultdict(float)
    for job in jobs:
        gpu_s[job.group] += job.gpus * job.duration_s
    shares = [100 * gpu_s[name] / sum(gpu_s.values()) for name in TYPES]
    assert shares == pytest.approx([0.42, 95.48, 1.59, 2.51], abs=2.0)


def test_gpus_of_all_jobs_are_as_published(jobs: list[Job]) -> None:
    for gpus, per_cent in ((1, 86.28), (8, 93.92), (64, 95.30), (255, 95.68), (511, 97.20), (1024, 100)):
        assert 100 * fmean(job.gpus <= gpus for job in jobs) == pytest.approx(per_cent, abs=0.3)
    assert fmean(job.gpus for job in jobs) == pytest.approx(26.77, rel=0.05)


@pytest.mark.parametrize(
    ("name", "quartiles", "least"),
    [("evaluation", [1, 1, 1], 1), ("pretraining", [256, 512, 512], 96), ("debugging", [32, 128, 512], 1)],
)
def test_gpus_of_a_type_have_the_published_quartiles(
    jobs: list[Job], name: str, quartiles: list[int], least: int
) -> None:
    gpus = [job.gpus for job in of_type(jobs, name)]
    assert quantiles(gpus, n=4) == quartiles
    assert min(gpus) == least


def test_durations_are_as_published(jobs: list[Job]) -> None:
    assert fmean(job.duration_s for job in jobs) == pytest.approx(1260, rel=0.08)
    assert median(job.duration_s for job in jobs) == pytest.approx(124, rel=0.03)
    for name, up_to in (
        ("evaluation", {32: 19.5, 256: 71.8, 4096: 98.1}),
        ("pretraining", {32: 4.2, 1024: 57.1, 65_536: 93.3, 2**20: 100.0}),
        ("debugging", {512: 70.8, 2048: 97.2}),
        ("other", {256: 46.4, 32_768: 90.0}),
    ):
        for seconds, per_cent in up_to.items():
            ended = fmean(job.duration_s <= seconds for job in of_type(jobs, name))
            assert 100 * ended == pytest.approx(per_cent, abs=4.0), (name, seconds)


def test_gaps_are_six_months_over_the_jobs_and_bursty(jobs: list[Job]) -> None:
    assert jobs[-1].submit_s / len(jobs) == pytest.approx(799, rel=0.05)


def test_what_trains_on_a_machine_or_more_has_a_known_model_and_a_plan_and_nothing_else_has(
    jobs: list[Job],
) -> None:
    for job in jobs:
        assert (job.plan is not None) == (job.group != "evaluation" and job.gpus >= 8)
    assert {read_model(job.model).layers for job in jobs if job.plan} >= {32, 80, 126, 48, 36, 94, 61}


def test_jobs_of_a_machine_and_more_ask_for_whole_machines(jobs: list[Job]) -> None:
    assert {job.gpus_per_machine for job in jobs if job.gpus >= 8} == {8}
    assert {job.gpus_per_machine for job in jobs if job.gpus < 8} == {None}


def test_plans_are_published_ones_with_more_replicas(jobs: list[Job]) -> None:
    plans = {(job.model, job.gpus, str(job.plan), job.batch) for job in jobs if job.plan}
    megatron = "tp=4,pp=8,dp=2,zero=1,vp=5,micro=1,sequence=8192"
    assert ("llama3-70b", 64, megatron, 256) in plans
    assert ("llama3-70b", 512, megatron.replace("dp=2", "dp=16"), 256) in plans
    assert ("llama3-8b", 8, "dp=8,zero=3,micro=2,sequence=8192", 16) in plans
    assert ("llama3-8b", 128, "dp=128,zero=3,micro=2,sequence=8192", 256) in plans


def test_on_a_smaller_cluster_jobs_of_several_machines_have_fewer_of_them(jobs: list[Job]) -> None:
    smaller = generate("kalos-like:jobs=20000,most_gpus=256", 1)
    for job, other in zip(jobs, smaller, strict=False):
        assert (other.duration_s, other.group) == (job.duration_s, job.group)
        assert other.gpus == (job.gpus if job.gpus <= 8 else max(8, 8 * round(job.gpus / 32)))
    assert max(job.gpus for job in smaller) == 256


def test_a_longer_workload_begins_with_the_shorter_one() -> None:
    assert list(generate("kalos-like:jobs=300", 3))[:100] == list(generate("kalos-like:jobs=100", 3))


def test_load_sets_the_pace() -> None:
    jobs = generate("kalos-like:jobs=3000,most_gpus=256,load=0.8,cluster_gpus=512", 3)
    work = sum(job.gpus * job.duration_s for job in jobs)
    assert work / (512 * jobs[-1].submit_s) == pytest.approx(0.8, rel=1e-3)


def test_on_nvl72_the_same_jobs_ask_for_machines_of_four_gpus() -> None:
    plain = list(generate("gb200-like:jobs=20000", 1))
    static = list(generate("gb200-like:jobs=20000,segments=static", 1))
    for job, other in zip(plain, static, strict=True):
        assert (other.submit_s, other.gpus, other.duration_s) == (job.submit_s, job.gpus, job.duration_s)
        assert (job.gpus_per_machine, job.segment) == (4 if job.gpus >= 4 else None, None)
    segments = {job.gpus: job.segment for job in static}
    assert segments == {
        **{1: None, 2: None, 8: 1, 16: 1, 32: 4, 64: 4, 96: 4},
        **{128: 16, 256: 16, 504: 14, 512: 16, 1024: 16},
    }


def test_segments_are_none_or_static() -> None:
    with pytest.raises(InputError, match="segments is '16', must be one of none, static"):
        generate("gb200-like:segments=16", 1)


@pytest.mark.parametrize(
    ("knobs", "message"),
    [
        ("most_gpus=4", "most_gpus is '4', must be a number from 8 to 1024"),
        ("load=0.5", "load and cluster_gpus go together"),
        ("load=0.5,cluster_gpus=8,gap_s=3", "load and gap_s exclude each other"),
        ("load=0.5,cluster_gpus=8,jobs=1", "load needs at least 2 jobs"),
        ("mu=3", "unknown knob 'mu'; knobs: jobs, most_gpus, gap_s, load, cluster_gpus, cv"),
    ],
)
def test_a_wrong_knob_is_an_error_that_says_what_is_valid(knobs: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        generate(f"kalos-like:{knobs}", 1)
    assert message in str(caught.value)
