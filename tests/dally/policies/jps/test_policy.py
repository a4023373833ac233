"""JPS on cases small enough to compute by hand: sizes, types, admission, and moves that pay."""

from dataclasses import replace

import numpy as np
import pytest

from dally.cluster.load import load_cluster
from dally.jobs.job import Job, JobKind
from dally.plan import Plan
from dally.policies.jps.instance import WorkerDemands
from dally.policies.jps.rerun import Rerun
from dally.policies.registry import parse_policy
from dally.profiles.costs import CostModel
from dally.profiles.files import load_profiles
from dally.state import ClusterState
from dally.testing.worlds import Result, racks, simulate
from tests.dally.policies.events import job, times

GAVEL = load_profiles("gavel")
"""Seconds of compute on a K80 and a V100: resnet-50 0.809 and 0.128, a3c 0.291 and 0.139."""


def elastic(name: str, gpus: int, duration_s: float, submit_s: float = 0.0, most: int = 8) -> Job:
    return replace(job(name, gpus, duration_s, submit_s), kind=JobKind.ELASTIC, min_gpus=1, max_gpus=most)


def held(result: Result, name: str) -> list[dict[str, int]]:
    """The GPUs of each start and move of a job, by machine."""
    changes = ("start", "migrate", "resize")
    return [each["gpus"] for each in result.events if each["event"] in changes and each["job"] == name]


def test_a_lone_elastic_job_gets_all_it_can_use() -> None:
    result = simulate("jps", racks([[8]]), [elastic("a", 2, 800.0, most=4)])
    assert held(result, "a") == [{"r0m0": 4}]
    assert result.by_job["a"].run_s == pytest.approx(400)
    assert result.by_job["a"].held_gpu_s == pytest.approx(1600)


def test_a_job_gets_at_most_the_size_at_which_it_is_fastest() -> None:
    """Four GPUs of one machine train it four times as fast as one; eight reduce over the slow network."""
    lone = replace(elastic("a", 1, 4000.0), model="resnet-18")
    result = simulate("jps", load_cluster("hadar-60"), [lone], profiles=GAVEL)
    [place] = held(result, "a")
    assert [*place.values()] == [4]


def test_a_job_that_the_match_gives_gpus_of_a_type_that_it_does_not_accept_waits_on() -> None:
    state = ClusterState(topology := racks([[1, 1]], ("a", "b")), costs := CostModel(topology))
    both = state.submit(job("both", 1, 100.0), 0.0)
    choosy = state.submit(replace(job("choosy", 1, 100.0), gpu_type="a"), 0.0)
    rerun = Rerun(state, WorkerDemands(costs), lambda _: np.array([[1, 0], [0, 1]]), 0.0, 0.0)
    assert rerun.best([both, choosy], [])[0].places.keys() == {"both"}


def test_sizes_go_by_the_square_root_of_the_work() -> None:
    """Work 1 and 4: of 6 GPUs the sum 1/k + 4/(6 - k) is least for k = 2."""
    result = simulate("jps", racks([[6]]), [elastic("a", 1, 1000.0), elastic("b", 1, 4000.0)])
    assert held(result, "a")[0] == {"r0m0": 2}
    assert held(result, "b")[0] == {"r0m0": 4}


def test_who_runs_gives_up_gpus_to_a_newcomer_and_takes_them_back_when_it_ends() -> None:
    """At 100 s a has 3600 GPU-seconds left, b 400: they get 3 and 1. At 500 s b ends, a has 2409 left."""
    result = simulate("jps", racks([[4]]), [elastic("a", 1, 4000.0), elastic("b", 1, 400.0, 100.0)])
    assert held(result, "a") == [{"r0m0": 4}, {"r0m0": 3}, {"r0m0": 4}]
    assert held(result, "b") == [{"r0m0": 1}]
    assert times(result, "a", "resize") == [100.0, 500.0]
    assert result.by_job["a"].end_s == pytest.approx(500 + 3 + 2409 / 4)


def test_an_elastic_job_grows_beside_what_it_has() -> None:
    """The machine of 8 comes free at 1000 s. On it alone a would need a checkpoint."""
    jobs = [job("wide", 8, 1000.0), elastic("a", 2, 40_000.0, 1.0, most=4)]
    result = simulate("jps", racks([[8, 2]]), jobs)
    assert held(result, "a") == [{"r0m1": 2}, {"r0m0": 2, "r0m1": 2}]
    assert times(result, "a", "resize") == [1000.0]


def test_who_is_nearly_done_keeps_its_gpus() -> None:
    """At 990 s a has 10 s left; with one GPU it would need 40 s and a restart, so that b had three now."""
    result = simulate("jps", racks([[4]]), [elastic("a", 1, 4000.0), elastic("b", 1, 3600.0, 990.0)])
    assert held(result, "a") == [{"r0m0": 4}]
    assert times(result, "b") == [1000.0]


def test_an_elastic_job_keeps_its_share_on_each_machine() -> None:
    """By speed alone it would get 3 and 1; only 2 and 2 are shares of two."""
    wide = replace(elastic("a", 4, 900.0), min_gpus=4, max_gpus=4, gpus_per_machine=2)
    result = simulate("jps", racks([[3, 3]], ("k80", "v100")), [wide], profiles=GAVEL)
    assert held(result, "a") == [{"r0m0": 2, "r0m1": 2}]


def test_least_work_is_admitted_first() -> None:
    """Work is GPUs by time: 2 * 300 is less than 1 * 1000."""
    jobs = [job("first", 2, 100), job("long", 1, 1000.0, 1), job("wide", 2, 300.0, 2)]
    result = simulate("jps", racks([[2]]), jobs)
    assert (times(result, "wide"), times(result, "long")) == ([100.0], [400.0])


def test_a_gang_that_does_not_fit_lets_others_start() -> None:
    jobs = [job("first", 2, 500), job("wide", 3, 10, 1), job("long", 1, 1000, 2)]
    result = simulate("jps", racks([[3]]), jobs)
    assert times(result, "long") == [2.0]
    assert times(result, "wide") == [1002.0]


def typed(name: str, model: str, gpus: int, duration_s: float, submit_s: float = 0.0) -> Job:
    return job(name, gpus, duration_s, submit_s, model)


K80_AND_V100 = racks([[1, 1]], ("k80", "v100"))
"""Machine r0m0 is a K80, r0m1 a V100."""


@pytest.mark.parametrize("assign", ["hungarian", "price-ascent"])
def test_who_gains_more_gets_the_faster_type(assign: str) -> None:
    """A K80 costs a3c 2.1 times its time and resnet-50 6.3 times; the order of arrival does not count."""
    jobs = [typed("weak", "a3c", 1, 5000), typed("strong", "resnet-50", 1, 5000)]
    result = simulate(f"jps:assign={assign}", K80_AND_V100, jobs, profiles=GAVEL)
    assert held(result, "strong") == [{"r0m1": 1}]
    assert held(result, "weak")[0] == {"r0m0": 1}


def test_who_runs_moves_to_a_faster_type_that_comes_free_if_that_pays() -> None:
    """The a3c is on the K80 until the V100 is free; with 3 s left it is not worth the restart of 7 s."""
    jobs = [typed("on-v100", "resnet-50", 1, 2000), typed("on-k80", "a3c", 1, 5000)]
    result = simulate("jps", K80_AND_V100, jobs, profiles=GAVEL)
    assert held(result, "on-k80") == [{"r0m0": 1}, {"r0m1": 1}]
    assert times(result, "on-k80", "migrate") == [2000.0]
    short = [jobs[0], replace(jobs[1], duration_s=2000 / 2.087 + 3)]
    result = simulate("jps", K80_AND_V100, short, profiles=GAVEL)
    assert held(result, "on-k80") == [{"r0m0": 1}]


def test_who_must_not_be_preempted_never_moves() -> None:
    jobs = [
        typed("on-v100", "resnet-50", 1, 2000),
        replace(typed("on-k80", "a3c", 1, 5000), preemptible=False),
    ]
    result = simulate("jps", K80_AND_V100, jobs, profiles=GAVEL)
    assert held(result, "on-k80") == [{"r0m0": 1}]


def test_a_scattered_gang_moves_together_when_it_can() -> None:
    """Two of its GPUs are on another machine until the first two jobs end at once."""
    authors = load_profiles("dally")
    jobs = [job("a", 3, 1000), job("b", 3, 1000), job("wide", 2, 9000, 1, "mobilenetv3")]
    result = simulate("jps", racks([[4, 4]]), jobs, profiles=authors)
    assert [len(place) for place in held(result, "wide")] == [2, 1]
    assert times(result, "wide", "migrate") == [1000.0]


def test_reasons_name_what_is_saved() -> None:
    """Waiting, b would have begun after 900 s, so it gains those; a takes 303 s longer."""
    result = simulate("jps", racks([[4]]), [elastic("a", 1, 4000.0), elastic("b", 1, 400.0, 100.0)])
    [shrinks, _] = [event["reason"] for event in result.events if event["event"] == "resize"]
    assert shrinks == (
        "3 a GPUs at slowdown 0.333: 20 min 3 s to its end, 3 s of resize counted, instead of 15 min; "
        "all concerned end 9 min 57 s sooner in sum"
    )


def test_draws_differ_by_rerun_and_are_kept_over_a_restart() -> None:
    topology = racks([[8]])
    state = ClusterState(topology, CostModel(topology))
    policy = parse_policy("jps:search=sampled,markets=3").build(state)
    policy.submitted(state.submit(elastic("a", 1, 100.0), 0.0), 0.0)
    policy.plan_applied(Plan(), state, 0.0)
    assert policy.snapshot()["reruns"] == 1
    policy.plan_applied(Plan(), state, 1.0)
    assert policy.snapshot()["reruns"] == 1, "nothing happened"
    again = parse_policy("jps:search=sampled").build(ClusterState(topology, CostModel(topology)))
    again.restore(policy.snapshot())
    assert again.snapshot()["reruns"] == 1


@pytest.mark.parametrize("search", ["guided", "sampled"])
@pytest.mark.parametrize("beta", [0.0, 0.5])
def test_every_search_ends_every_job(search: str, beta: float) -> None:
    jobs = [elastic(f"e{n}", 1 + n % 3, 2000.0, n * 150.0) for n in range(8)]
    jobs += [typed(f"r{n}", "lm", 2, 1000.0, n * 400.0) for n in range(4)]
    ordered = sorted(jobs, key=lambda each: each.submit_s)
    topology = racks([[2, 2], [4, 4]], ("k80", "v100"))
    result = simulate(f"jps:search={search},beta={beta},alpha=0.3", topology, ordered, profiles=GAVEL)
    assert {record.status for record in result.outcome.records} == {"COMPLETED"}
