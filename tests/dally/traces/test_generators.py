import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from math import log
from statistics import fmean, pstdev

import pytest

from dally.errors import InputError
from dally.jobs.job import Job
from dally.scheduling.likeness import stem
from dally.traces import GENERATORS, load_trace, summarize
from dally.traces.generators import generate
from dally.traces.summary import percentile


def gaps_s(jobs: Sequence[Job]) -> list[float]:
    times = [job.submit_s for job in jobs]
    return [later - earlier for earlier, later in pairwise(times)]


@pytest.mark.parametrize("name", GENERATORS)
def test_the_same_seed_gives_the_same_bytes_and_another_seed_others(name: str) -> None:
    assert load_trace(name, seed=7).sha256 == load_trace(name, seed=7).sha256
    assert load_trace(name, seed=7).sha256 != load_trace(name, seed=8).sha256


def test_seeded_output_does_not_change_between_versions() -> None:
    jobs = load_trace("bursty:jobs=4", seed=1).jobs
    assert [(job.job_id, job.submit_s, job.gpus, job.duration_s) for job in jobs] == [
        ("bursty-000000", 0, 8, 2143),
        ("bursty-000001", 34, 8, 2142),
        ("bursty-000002", 183, 4, 2238),
        ("bursty-000003", 397, 1, 4945),
    ]


@pytest.mark.parametrize("seed", range(5))
def test_dally_batch_has_the_published_counts_and_gpu_hours(seed: int) -> None:
    jobs = load_trace("dally-batch", seed=seed).jobs
    assert {job.submit_s for job in jobs} == {0}
    assert Counter(job.gpus for job in jobs) == {
        1: 270, 2: 13, 4: 52, 8: 109, 16: 42, 32: 11, 40: 1, 48: 1, 56: 1
    }  # fmt: skip
    assert Counter(job.model for job in jobs) == {
        "mobilenetv3": 125, "bert-large": 125, "resnet50": 125, "alexnet": 53, "resnet18": 38, "vgg11": 34
    }  # fmt: skip
    assert sum(job.gpus * job.duration_s for job in jobs) / 3600 == pytest.approx(13_054, rel=1e-3)


@pytest.mark.parametrize("seed", range(5))
def test_dally_batch_durations_have_the_published_percentiles(seed: int) -> None:
    durations_s = sorted(job.duration_s for job in load_trace("dally-batch", seed=seed).jobs)
    assert percentile(durations_s, 50) == pytest.approx(14_400, rel=0.15)
    assert percentile(durations_s, 95) == pytest.approx(203_000, rel=0.2)
    assert durations_s[-1] <= 762_000


@pytest.mark.parametrize("seed", range(5))
def test_dally_poisson_has_the_published_counts_gap_and_gpu_hours(seed: int) -> None:
    workload = load_trace("dally-poisson", seed=seed)
    assert Counter(job.gpus for job in workload.jobs) == {
        2: 41, 4: 96, 8: 191, 16: 56, 32: 23, 40: 2, 48: 1, 56: 1
    }  # fmt: skip
    assert Counter(job.model for job in workload.jobs) == {
        "mobilenetv3": 125, "bert-large": 125, "resnet50": 125, "alexnet": 29, "vgg11": 4, "resnet18": 3
    }  # fmt: skip
    assert summarize(workload).gpu_hours == pytest.approx(13_413, rel=1e-3)
    assert fmean(gaps_s(workload.jobs)) == pytest.approx(1453, abs=0.1)
    assert summarize(workload).gap_cv == pytest.approx(1, abs=0.2)


@pytest.mark.parametrize(
    ("name", "mu", "sigma", "gap_s", "cv", "one_gpu"),
    [
        ("philly-like", 7.15, 2.44, 64, 2.7, 0.87),
        ("venus-like", 5.95, 2.85, 162, 3.9, 0.55),
        ("lingjun-like", 6.12, 2.83, 551, 4.1, 0.093),
        ("poisson", 8.2, 1.5, 600, 1.0, 0.5),
    ],
)
def test_a_fitted_workload_has_the_published_statistics(
    name: str, mu: float, sigma: float, gap_s: float, cv: float, one_gpu: float
) -> None:
    jobs = [*generate(f"{name}:jobs=20000,max_s=1e12", 1)]
    logs = [math.log(job.duration_s) for job in jobs]
    gaps = gaps_s(jobs)
    assert fmean(logs) == pytest.approx(mu, abs=0.06)
    assert pstdev(logs) == pytest.approx(sigma, rel=0.03)
    assert fmean(gaps) == pytest.approx(gap_s, rel=0.06)
    assert pstdev(gaps) / fmean(gaps) == pytest.approx(cv, rel=0.08)
    assert sum(job.gpus == 1 for job in jobs) / 20_000 == pytest.approx(one_gpu, abs=0.01)


def test_eight_gpu_jobs_of_philly_follow_their_own_fit() -> None:
    logs = [
        math.log(job.duration_s) for job in generate("philly-like:jobs=30000,max_s=1e12", 0) if job.gpus == 8
    ]
    assert fmean(logs) == pytest.approx(9.01, abs=0.15)
    assert pstdev(logs) == pytest.approx(3.04, rel=0.05)


def test_a_longer_workload_begins_with_the_shorter_one() -> None:
    assert generate("venus-like:jobs=200", 3)[:100] == generate("venus-like:jobs=100", 3)


def test_the_load_knob_sets_the_offered_load() -> None:
    workload = load_trace("philly-like:jobs=2000,load=0.8,cluster_gpus=256", seed=3)
    work = sum(job.gpus * job.duration_s for job in workload.jobs)
    assert work / (256 * workload.jobs[-1].submit_s) == pytest.approx(0.8, rel=1e-3)


def test_knobs_replace_the_defaults() -> None:
    jobs = load_trace("batch:jobs=300,gpus=2:1/8:3,mu=5,sigma=0,max_s=100").jobs
    assert {job.duration_s for job in jobs} == {100}
    assert {job.submit_s for job in jobs} == {0}
    assert sum(job.gpus == 8 for job in jobs) / 300 == pytest.approx(0.75, abs=0.08)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("philly-lik", "no trace file 'philly-lik', and no generator of that name; generators: dally-batch"),
        ("batch:size=3", "unknown knob 'size'; knobs: jobs, gpus, mu, sigma, max_s"),
        ("dally-batch:jobs=3", "unknown knob 'jobs'; knobs: none"),
        ("batch:jobs", "'jobs' is no knob, must be like name=value"),
        ("batch:", "'' is no knob"),
        ("batch:jobs=1,jobs=2", "knob jobs is given twice"),
        ("batch:jobs=0", "jobs is '0', must be a number from 1 to"),
        ("batch:jobs=1.5", "jobs is '1.5', must be a whole number"),
        ("batch:mu=nan", "mu is 'nan', must be a number from -20 to 50"),
        ("batch:max_s=inf", "max_s is 'inf', must be a number at least 1"),
        ("bursty:cv=0.5", "cv is '0.5', must be a number from 1 to 100"),
        ("batch:gpus=8:x", "gpus is 'x', must be a number"),
        ("batch:gpus=8/8", "gpus: 8 GPUs given twice"),
        ("poisson:load=0.5", "load and cluster_gpus go together"),
        ("poisson:load=0.5,cluster_gpus=8,gap_s=3", "load and gap_s exclude each other"),
        ("poisson:load=0.5,cluster_gpus=8,jobs=1", "load needs at least 2 jobs"),
    ],
)
def test_a_wrong_specification_is_an_error_that_lists_what_is_valid(spec: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        load_trace(spec)
    assert message in str(caught.value)


def test_gavels_jobs_have_its_sizes_and_lengths() -> None:
    jobs = load_trace("gavel:jobs=20000,gap_s=1000", seed=4).jobs
    shares = Counter(job.gpus for job in jobs)
    for gpus, share in ((1, 0.7), (2, 0.1), (4, 0.15), (8, 0.05)):
        assert shares[gpus] / len(jobs) == pytest.approx(share, abs=0.01)
    assert sum(job.duration_s > 60_000 for job in jobs) / len(jobs) == pytest.approx(0.2, abs=0.01)
    assert min(job.duration_s for job in jobs) >= round(60 * 10**1.5)
    assert max(job.duration_s for job in jobs) <= 600_000
    assert fmean(job.duration_s for job in jobs) == pytest.approx(60_361, rel=0.04)
    assert jobs[-1].submit_s / len(jobs) == pytest.approx(1000, rel=0.03)
    assert {job.model for job in jobs if job.gpus > 1} == {"resnet-18", "resnet-50", "transformer", "lm"}
    assert len({job.model for job in jobs}) == 7


def test_gavels_jobs_may_come_all_at_once_and_on_one_gpu_each() -> None:
    jobs = load_trace("gavel:jobs=50,gap_s=0,gpus=1", seed=4).jobs
    assert {(job.submit_s, job.gpus) for job in jobs} == {(0, 1)}


def test_hadars_jobs_are_of_its_four_classes() -> None:
    jobs = load_trace("hadar:jobs=8000", seed=4).jobs
    assert {job.submit_s for job in jobs} == {0}
    counts = Counter(job.model for job in jobs)
    of = {"resnet-18": "S", "cyclegan": "M", "lm": "L", "transformer": "L", "resnet-50": "XL"}
    by_class: Counter[str] = Counter()
    for model, count in counts.items():
        by_class[of[str(model)]] += count
    assert all(count / len(jobs) == pytest.approx(0.25, abs=0.02) for count in by_class.values())
    bounds_h = {"S": (0, 1), "M": (1, 10), "L": (10, 50), "XL": (60, 100)}
    for job in jobs:
        least, most = bounds_h[of[str(job.model)]]
        assert least - 0.01 <= job.gpus * job.duration_s / 3600 <= most + 0.2  # 60 s at least on 8 GPUs
    assert {job.gpus for job in jobs if job.model == "cyclegan"} == {1}


def test_jobs_of_a_user_and_of_a_name_are_alike_and_all_together_as_without() -> None:
    told = load_trace("venus-like:jobs=4000,users=40,names=5", seed=3).jobs
    untold = load_trace("venus-like:jobs=4000", seed=3).jobs

    def logs(jobs: Iterable[Job]) -> list[float]:
        return [log(job.duration_s) for job in jobs]

    def spread_within(key: Callable[[Job], object]) -> float:
        groups = defaultdict(list)
        for job in told:
            groups[key(job)].append(log(job.duration_s))
        return fmean(pstdev(group) for group in groups.values() if len(group) > 20)

    whole = pstdev(logs(told))
    assert [job.gpus for job in told] == [job.gpus for job in untold]
    assert whole == pytest.approx(pstdev(logs(untold)), rel=0.2)
    by_user = spread_within(lambda job: job.user)
    by_name = spread_within(lambda job: (job.user, stem(job.job_name)))
    assert by_name < 0.7 * by_user < 0.9 * whole
    assert len({job.user for job in told}) == 40
    assert len({job.job_name for job in told}) == 4000 > len({stem(job.job_name) for job in told}) == 5


def test_a_longer_workload_with_people_begins_with_the_shorter_one() -> None:
    knobs = "users=9,names=3"
    assert generate(f"poisson:jobs=30,{knobs}", 1)[:10] == list(generate(f"poisson:jobs=10,{knobs}", 1))


def test_names_need_users() -> None:
    with pytest.raises(InputError, match="names needs users"):
        generate("poisson:names=3", 1)
