"""DRL: sizes grow by the network's choices, one step after another, and it has learnt what helps."""

from dataclasses import replace
from importlib import resources

import numpy as np
import pytest

from analysis.studies.drl_training import WIDTHS, mean_jct_s, workload
from dally.jobs.job import Job, JobKind
from dally.policies.common.gpu_pool import Pool
from dally.policies.drl.policy import FEATURES, WEIGHTS, Allotment, Drl, DrlKnobs, PolicyNetwork, trained
from dally.policies.registry import parse_policy
from dally.profiles.costs import CostModel
from dally.state import ClusterState, JobState
from dally.testing.worlds import racks, simulate
from tests.dally.policies.events import job, times

HELD_OUT = (21, 22)
"""Seeds of workloads that it was neither trained nor picked on."""


def elastic(name: str, gpus: int, duration_s: float, submit_s: float = 0.0, most: int = 8) -> Job:
    return replace(job(name, gpus, duration_s, submit_s), kind=JobKind.ELASTIC, min_gpus=1, max_gpus=most)


def preferring(*weights: tuple[int, float]) -> PolicyNetwork:
    """A network of one layer that goes by some of the features."""
    column = np.zeros((FEATURES, 1))
    for feature, weight in weights:
        column[feature] = weight
    return PolicyNetwork([(column, np.zeros(1))])


NOBODY, GPUS, LEFT_S = 0, 3, 7
"""Features: whether it is nobody's step; log2 of a job's GPUs; log of its seconds left."""


def sizes(net: PolicyNetwork, jobs: list[Job], gpus: int) -> list[int]:
    """What the jobs get when all arrive at once."""
    topology = racks([[gpus]])
    state = ClusterState(topology, CostModel(topology))
    policy = Drl(DrlKnobs(), state, net)
    states = [state.submit(each, 0.0) for each in jobs]
    found = policy.allocate(states, Pool(gpus, {"a": gpus}), 0.0)
    return [found[each.job_id].gpus for each in jobs]


def test_each_has_its_least_and_the_network_says_who_gets_more() -> None:
    jobs = [elastic("short", 1, 100.0), elastic("long", 1, 9000.0)]
    assert sizes(preferring((LEFT_S, 1.0), (NOBODY, -99.0)), jobs, 4) == [1, 3]
    assert sizes(preferring((LEFT_S, -1.0), (NOBODY, -99.0)), jobs, 4) == [3, 1]
    assert sizes(preferring((GPUS, -1.0), (NOBODY, -99.0)), jobs, 4) == [2, 2]


def test_it_may_leave_gpus_idle() -> None:
    assert sizes(preferring((NOBODY, 99.0)), [elastic("a", 2, 100.0)], 4) == [1]


def test_nobody_gets_more_than_it_can_use() -> None:
    assert sizes(preferring((NOBODY, -99.0)), [elastic("a", 1, 100.0, most=3), job("b", 2, 50.0)], 8) == [
        3,
        2,
    ]


def test_steps_pass_sizes_that_are_no_faster_and_gpus_of_other_types() -> None:
    """Of three free GPUs one is of the type that b accepts; a is faster on 4 than on 2, but not on 3."""
    first, second = elastic("a", 1, 100.0), replace(elastic("b", 1, 100.0), gpu_type="a")
    states = [JobState(each, place, 0.0) for place, each in enumerate((first, second))]
    speeds = [np.array([0.0, 1.0, 2.0, 1.5, 3.0]), np.array([0.0, 1.0, 1.9, 2.7, 3.5])]
    allotment = Allotment(states, speeds, Pool(5, {"a": 2, "b": 3}), 0.0)
    assert allotment.sizes == [1, 1]
    first_step, second_step, nobody = allotment.choices().tolist()
    assert (allotment.owner(first_step), allotment.owner(second_step), allotment.owner(nobody)) == (0, 1, 2)
    assert allotment.take(second_step)
    assert allotment.sizes == [1, 2]
    assert allotment.owner(int(allotment.choices()[0])) == 0
    assert len(allotment.choices()) == 2, "there is no other GPU of type a"
    assert allotment.take(int(allotment.choices()[0]))
    assert allotment.sizes == [2, 2]
    assert len(allotment.choices()) == 1, "a's next step takes two"
    assert not allotment.take(int(allotment.choices()[0]))


def test_what_the_network_sees() -> None:
    waiting = JobState(elastic("a", 1, 800.0, 10.0, most=4), 0, 10.0)
    rows = Allotment([waiting], [np.array([0.0, 1.0, 1.5])], Pool(4, {"a": 4}), 109.0).rows
    expected = [0, 1 / 4, np.log(1 / 4), 0, 0, np.log2(1.5), np.log(1 / 3), np.log(800), np.log(100)]
    assert rows[0] == pytest.approx(expected)
    assert rows[-1] == pytest.approx([1, 1, np.log(1 / 4), *[0] * 6])
    assert rows.shape == (1 + 5, FEATURES)


def test_newcomers_start_at_the_next_interval_and_who_runs_is_not_stopped() -> None:
    jobs = [elastic("a", 1, 4000.0), elastic("b", 1, 400.0, 11.0), job("rigid", 4, 50.0, 12.0)]
    result = simulate("drl", racks([[4]]), jobs)
    assert times(result, "b") == [20.0]
    assert not times(result, "a", "preempt")
    assert times(result, "rigid")[0] > 400
    assert times(simulate("drl:interval_s=60", racks([[4]]), jobs), "b") == [60.0]


def test_a_start_says_that_the_network_chose() -> None:
    result = simulate("drl", racks([[4]]), [elastic("a", 1, 100.0)])
    [start] = [each for each in result.events if each["event"] == "start"]
    assert start["reason"].endswith("the network's choice, among 1 job on 4 GPUs")


def test_a_network_survives_being_written() -> None:
    drawn = PolicyNetwork.drawn(WIDTHS, np.random.default_rng(1))
    rows = np.random.default_rng(2).normal(size=(5, FEATURES))
    assert PolicyNetwork.loaded(drawn.dumped()).scores(rows) == pytest.approx(
        drawn.scores(rows), rel=1e-3, abs=1e-3
    )


def test_the_weights_are_small_and_fit() -> None:
    text = (resources.files("dally.policies.drl") / WEIGHTS).read_text(encoding="utf-8")
    assert len(text) < 200_000
    assert [weights.shape[0] for weights, _ in trained().layers] == [*WIDTHS[:-1]]


@pytest.mark.slow
def test_what_it_has_learnt_helps_on_jobs_that_it_has_not_seen() -> None:
    """Beside two networks that have learnt nothing; jobs are those of the artifact of ONES."""
    unseen = [workload(seed) for seed in HELD_OUT]
    learnt_s = mean_jct_s(trained(), unseen)
    drawn = (PolicyNetwork.drawn(WIDTHS, np.random.default_rng(seed)) for seed in (0, 1))
    assert all(learnt_s < 0.9 * mean_jct_s(net, unseen) for net in drawn)


def test_it_is_asked_for_by_name() -> None:
    spec = parse_policy("drl:interval_s=30")
    assert (spec.policy, spec.knobs) == (Drl, DrlKnobs(30.0))
