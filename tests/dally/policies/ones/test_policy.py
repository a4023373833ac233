"""ONES on cases small enough to follow: sizes that double, the gate, who is stopped, and what is kept."""

from dataclasses import replace

import numpy as np
import pytest

from dally.errors import InputError
from dally.jobs.job import Job, JobKind
from dally.plan import Plan
from dally.policies.ones.evolution import EvolutionStep, Generation
from dally.policies.ones.knobs import OnesKnobs
from dally.policies.ones.policy import Evolution
from dally.policies.registry import parse_policy
from dally.profiles.costs import CostModel
from dally.profiles.files import load_profiles
from dally.profiles.goodput import Batching
from dally.state import ClusterState
from dally.testing.worlds import Result, racks, simulate
from tests.dally.policies.events import job, times

POLLUX = load_profiles("pollux")


def elastic(name: str, gpus: int, duration_s: float, submit_s: float = 0.0, most: int = 8) -> Job:
    return replace(job(name, gpus, duration_s, submit_s), kind=JobKind.ELASTIC, min_gpus=1, max_gpus=most)


def sizes(result: Result, name: str) -> list[tuple[float, int]]:
    """When a job started or changed, and its GPUs from then on."""
    changes = ("start", "resize", "migrate")
    mine = [each for each in result.events if each["event"] in changes and each["job"] == name]
    return [(each["t"], sum(each["gpus"].values())) for each in mine]


def test_a_lone_elastic_job_doubles_its_gpus_after_each_epoch() -> None:
    """Epochs of 800 GPU-seconds, on one GPU, two, four; steps are every 10 s, a resize takes 3 s."""
    result = simulate("ones:first_size=least", racks([[8]]), [elastic("a", 2, 4000.0)])
    found = sizes(result, "a")
    assert [gpus for _, gpus in found] == [1, 2, 4, 8]
    assert [at_s for at_s, _ in found] == [0.0, 810.0, 1210.0, 1420.0]
    assert times(result, "a", "preempt") == []


def test_limits_that_wait_for_two_epochs_double_later() -> None:
    """An epoch of 800 s on one GPU: the limit doubles after the second, for the step after that."""
    result = simulate("ones:two_epochs=life,first_size=least", racks([[8]]), [elastic("a", 2, 4000.0)])
    assert [gpus for _, gpus in sizes(result, "a")][:2] == [1, 2]
    assert sizes(result, "a")[1][0] > 1600


@pytest.mark.parametrize(
    ("spec", "gpus"), [("ones", 2), ("ones:first_size=least", 1), ("ones:first_size=most", 8)]
)
def test_an_elastic_job_begins_with_what_it_asked_for_or_its_fewest_or_its_most(spec: str, gpus: int) -> None:
    result = simulate(spec, racks([[8]]), [elastic("a", 2, 4000.0)])
    assert sizes(result, "a")[0] == (0.0, gpus)


def test_a_job_has_at_most_four_times_what_it_asked_for() -> None:
    result = simulate("ones:first_size=least", racks([[16]]), [elastic("a", 1, 9000.0, most=16)])
    assert [gpus for _, gpus in sizes(result, "a")] == [1, 2, 4]


def test_new_jobs_start_at_once_on_free_gpus_though_nobody_may_move() -> None:
    jobs = [elastic("a", 2, 4000.0), elastic("b", 2, 4000.0, 100.0)]
    assert sizes(simulate("ones:first_size=least", racks([[8]]), jobs), "b")[0] == (100.0, 1)


def test_a_long_job_gives_way_to_a_short_one_after_an_epoch() -> None:
    """Rigid jobs on one machine: the first may be stopped once two of its epochs of 1000 s are done."""
    jobs = [job("long", 4, 10_000), *(job(f"short{number}", 4, 600, 10.0) for number in range(2))]
    result = simulate("ones", racks([[4]]), jobs)
    ends = [each["t"] for each in result.events if each["event"] == "end"]
    assert times(result, "long", "end") == ends[-1:]
    assert times(result, "long", "preempt")[0] >= 2000


def test_without_evolution_nobody_shrinks_for_newcomers() -> None:
    """The first has all eight GPUs when others come; with evolution it makes room after two epochs."""
    jobs = [elastic("a", 8, 4000.0), *(elastic(f"b{number}", 8, 400.0, 10.0) for number in range(3))]
    starts = {}
    for search in ("evolution", "padding"):
        result = simulate(f"ones:search={search}", racks([[8]]), jobs)
        starts[search] = min(times(result, f"b{number}")[0] for number in range(3))
    assert starts["evolution"] < 1000
    assert starts["padding"] == pytest.approx(4000, rel=0.01)


@pytest.mark.parametrize(("shrink", "limits"), [("widest", [4, 8]), ("all", [2, 8])])
def test_who_ran_longest_may_have_less_only_if_it_is_widest_unless_all_are_asked(
    shrink: str, limits: list[int]
) -> None:
    """The first ran 1000 s on 4 GPUs, the second 100 s on 8, half of the machine; the median is 550 s."""
    topology = racks([[16]])
    state = ClusterState(topology, CostModel(topology))
    policy = Evolution(OnesKnobs(shrink=shrink, scale_down=2.0), state)
    for name, gpus, start_s in (("a", 4, 0.0), ("b", 8, 900.0)):
        policy.submitted(state.submit(elastic(name, gpus, 9000.0, start_s, most=gpus), start_s), start_s)
        policy.started(state.start(name, ((0, gpus),), start_s, start_s, 1.0), start_s)
    generation = Generation(policy.genes, np.zeros((1, 2), np.int64), np.zeros(1))
    policy.plan_applied(Plan(memo=EvolutionStep(1000.0, [], [], generation)), state, 1000.0)
    known = policy.snapshot()["register"]["jobs"]
    assert [known[name]["limit"] for name in ("a", "b")] == limits


def test_who_must_not_be_preempted_keeps_its_gpus() -> None:
    lasting = replace(elastic("a", 2, 4000.0), preemptible=False)
    result = simulate("ones", racks([[2]]), [lasting, elastic("b", 2, 400.0, 10.0), job("c", 2, 400.0, 10.0)])
    assert sizes(result, "a") == [(0.0, 2)]
    assert times(result, "c") >= times(result, "a", "end")


def test_each_job_takes_only_gpus_that_it_accepts() -> None:
    """The second job can have only type b; nothing of the first candidate's order matters for that."""
    jobs = [replace(elastic("a", 2, 2000.0), gpu_type="a"), replace(job("b", 2, 500.0), gpu_type="b")]
    result = simulate("ones", racks([[4, 4]], ("a", "b")), jobs)
    starts = {each["job"]: each["gpus"] for each in result.events if each["event"] == "start"}
    assert starts == {"a": {"r0m0": 2}, "b": {"r0m1": 2}}


def test_shares_on_each_machine_stay_whole() -> None:
    wide = replace(elastic("a", 4, 4000.0), gpus_per_machine=2)
    result = simulate("ones", racks([[3, 3, 3]]), [wide])
    shares = [each["gpus"] for each in result.events if each["event"] in ("start", "resize", "migrate")]
    assert shares[0] == {"r0m0": 2, "r0m1": 2}
    assert all(set(share.values()) == {2} for share in shares)


def test_a_forked_job_starts_one_copy() -> None:
    forked = Job("a", 0.0, 2, 100.0, kind=JobKind.FORKED, max_copies=3)
    assert sizes(simulate("ones", racks([[2, 2, 2]]), [forked]), "a") == [(0.0, 2)]


@pytest.mark.parametrize(
    "knobs",
    [
        "gate=all",
        "predictor_input=raw",
        "two_epochs=stretch",
        "two_epochs=life",
        "first_size=least",
        "search=padding",
    ],
)
def test_each_variant_ends_all_jobs(knobs: str) -> None:
    jobs = [
        replace(elastic(f"j{number}", 2, 600.0, 60.0 * number), model=model)
        for number, model in enumerate(("bert", "cifar10", ""))
    ]
    result = simulate(f"ones:{knobs}", racks([[2, 2]], ("t4",)), jobs, profiles=POLLUX)
    assert {record.status for record in result.outcome.records} == {"COMPLETED"}


def test_the_batch_goes_with_the_gpus() -> None:
    assert Evolution.batching is Batching.LINEAR


def test_a_wait_is_said_with_its_reason() -> None:
    result = simulate("ones", racks([[2]]), [job("a", 2, 500), job("b", 2, 500, 1.0)])
    waits = [each for each in result.events if each["event"] == "wait"]
    assert (waits[0]["job"], waits[0]["t"]) == ("b", 1.0)
    assert waits[0]["reason"].startswith("wants 2 GPUs or more, 0 free")


def test_what_it_has_learnt_survives_a_restart() -> None:
    """Candidates, limits and the guess of progress go on; the next decision is the same."""
    topology = racks([[4, 4]])
    states = [ClusterState(topology, CostModel(topology)) for _ in range(2)]
    before, after = (parse_policy("ones").build(state) for state in states)
    request = elastic("a", 2, 4000.0)
    before.submitted(states[0].submit(request, 0.0), 0.0)
    before.plan_applied(before.decide(states[0], 0.0), states[0], 0.0)
    after.restore(before.snapshot())
    assert after.snapshot() == before.snapshot()
    after.submitted(states[1].submit(request, 0.0), 0.0)
    assert after.decide(states[1], 5.0) == before.decide(states[0], 5.0)


@pytest.mark.parametrize("wrong", ["candidates=1", "remove=1.5", "interval_s=0"])
def test_knobs_out_of_range_are_refused(wrong: str) -> None:
    with pytest.raises(InputError, match=wrong.partition("=")[0]):
        parse_policy(f"ones:{wrong}")
