from collections.abc import Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slurm_plugin.client.orders import Order, Rehold, ReleaseOnNodes, Requeue, Reserve, Signal
from slurm_plugin.client.slurm import SlurmJob, SlurmUnavailableError, State
from tests.slurm_plugin.fake import FakeSlurm
from tests.slurm_plugin.fake_cluster import REQUEUE_DELAY_S
from tests.slurm_plugin.fake_job import FakeNode, SubmitSpec
from tests.slurm_plugin.fake_reservations import FENCE_S

NODES = [FakeNode(f"n{number}") for number in range(1, 5)]
FULL = SubmitSpec(gpus_per_node=8, run_time_s=10)


def find(slurm: FakeSlurm, job_id: str) -> SlurmJob:
    return next(job for job in slurm.jobs() if job.job_id == job_id)


def test_time_moves_only_when_told_and_events_come_at_exact_times() -> None:
    slurm = FakeSlurm(NODES)
    job_id = slurm.submit(FULL)
    slurm.advance(3)
    slurm.run([ReleaseOnNodes(job_id, ("n2",))])
    assert (find(slurm, job_id).start_s, slurm.now_s, slurm.next_event_s) == (3, 3, 13)
    slurm.advance(12.999)
    assert find(slurm, job_id).state is State.RUNNING
    slurm.advance(13)
    assert (find(slurm, job_id).state_name, slurm.now_s) == ("COMPLETED", 13)


def test_an_injected_clock_moves_time() -> None:
    now = [0.0]
    slurm = FakeSlurm(NODES, clock=lambda: now[0])
    job_id = slurm.submit(SubmitSpec(held=False, run_time_s=10))
    now[0] = 11
    assert find(slurm, job_id).state is State.ENDED


def test_the_run_time_may_depend_on_where_a_job_runs() -> None:
    def run_time_s(gpus: Mapping[str, int]) -> float:
        return 100.0 * len(gpus)

    slurm = FakeSlurm(NODES)
    job_id = slurm.submit(SubmitSpec(gpus=8, run_time_s=run_time_s))
    slurm.run([ReleaseOnNodes(job_id, ("n1", "n3"))])
    slurm.advance(199)
    assert find(slurm, job_id).gpus == {"n1": 7, "n3": 1}
    slurm.advance(200)
    assert find(slurm, job_id).state is State.ENDED


def test_nodes_that_become_free_go_to_the_job_released_first() -> None:
    slurm = FakeSlurm(NODES[:1])
    jobs = [slurm.submit(FULL) for _ in range(3)]
    slurm.run([ReleaseOnNodes(job_id, ("n1",)) for job_id in (jobs[1], jobs[2], jobs[0])])
    slurm.advance(10)
    assert [find(slurm, job_id).state for job_id in jobs] == [State.PENDING, State.ENDED, State.RUNNING]
    slurm.advance(20)
    assert find(slurm, jobs[0]).start_s == 20


def test_a_start_takes_as_long_as_it_is_told_to() -> None:
    slurm = FakeSlurm(NODES, start_delay_s=2)
    job_id = slurm.submit(FULL)
    slurm.run([ReleaseOnNodes(job_id, ("n1",))])
    slurm.advance(1.9)
    assert find(slurm, job_id).state is State.PENDING
    slurm.advance(5)
    assert find(slurm, job_id).start_s == 2


def test_a_job_at_its_time_limit_is_stopped() -> None:
    slurm = FakeSlurm(NODES)
    job_id = slurm.submit(SubmitSpec(held=False, run_time_s=10, time_limit_s=4))
    slurm.advance(4)
    assert find(slurm, job_id).state_name == "TIMEOUT"


def test_a_job_whose_node_failed_starts_again_after_a_while_and_the_old_end_is_void() -> None:
    slurm = FakeSlurm(NODES)
    job_id = slurm.submit(SubmitSpec(held=False, gpus_per_node=8, run_time_s=200))
    slurm.advance(5)
    slurm.set_node("n1", "down")
    assert find(slurm, job_id).restarts == 1
    slurm.advance(5 + REQUEUE_DELAY_S)
    assert find(slurm, job_id).start_s == 5 + REQUEUE_DELAY_S
    slurm.advance(205)
    assert find(slurm, job_id).state is State.RUNNING
    slurm.advance(5 + REQUEUE_DELAY_S + 200)
    assert find(slurm, job_id).state is State.ENDED


def test_a_job_that_must_not_be_requeued_ends_with_its_node() -> None:
    slurm = FakeSlurm(NODES)
    job_id = slurm.submit(SubmitSpec(held=False, requeue=False))
    slurm.set_node("n1", "down")
    assert find(slurm, job_id).state_name == "NODE_FAIL"


def test_a_node_that_is_resumed_takes_its_waiting_job() -> None:
    slurm = FakeSlurm(NODES)
    slurm.set_node("n1", "drain")
    job_id = slurm.submit(FULL)
    slurm.run([ReleaseOnNodes(job_id, ("n1",))])
    slurm.advance(50)
    slurm.set_node("n1")
    assert find(slurm, job_id).start_s == 50


def test_a_job_that_is_completing_holds_its_nodes() -> None:
    slurm = FakeSlurm(NODES[:1], completing_s=3)
    first, second = slurm.submit(FULL), slurm.submit(FULL)
    slurm.run([ReleaseOnNodes(first, ("n1",)), Requeue(first), ReleaseOnNodes(second, ("n1",))])
    assert (find(slurm, first).state, find(slurm, first).nodes) == (State.COMPLETING, ("n1",))
    assert find(slurm, second).reason == "Resources"
    slurm.advance(3)
    assert (find(slurm, first).state, find(slurm, second).state) == (State.PENDING, State.RUNNING)


def test_a_list_longer_than_the_job_is_a_bad_constraint() -> None:
    slurm = FakeSlurm(NODES)
    job_id = slurm.submit(FULL)
    slurm.update(job_id, required_nodes=("n1", "n2"))
    slurm.release(job_id)
    assert find(slurm, job_id).reason == "BadConstraints"
    slurm.run([Rehold(job_id), ReleaseOnNodes(job_id, ("n1",))])
    assert find(slurm, job_id).state is State.RUNNING


def test_fences_end_after_a_minute_and_let_others_in() -> None:
    slurm = FakeSlurm(NODES)
    job_id = slurm.submit(FULL)
    slurm.run([Reserve("f", ("n1",), "bob"), ReleaseOnNodes(job_id, ("n1",))])
    assert find(slurm, job_id).reason == "ReqNodeNotAvail"
    slurm.advance(FENCE_S)
    assert slurm.reservations() == ()
    assert find(slurm, job_id).start_s == FENCE_S


def test_signals_are_kept_for_the_test_to_see() -> None:
    slurm = FakeSlurm(NODES)
    job_id = slurm.submit(SubmitSpec(held=False))
    slurm.advance(2)
    slurm.run([Signal(job_id, "USR1")])
    assert slurm.signals == [(2, job_id, "USR1")]


def test_orders_for_a_job_are_refused_on_demand() -> None:
    slurm = FakeSlurm(NODES)
    first, second = slurm.submit(FULL), slurm.submit(FULL)
    slurm.refuse[first] = "not today"
    assert slurm.run([ReleaseOnNodes(first, ("n1",)), ReleaseOnNodes(second, ("n2",))]) == ("not today", None)
    assert find(slurm, first).state is State.PENDING


def test_slurm_breaks_between_two_orders_on_demand() -> None:
    slurm = FakeSlurm(NODES)
    jobs = [slurm.submit(FULL) for _ in range(2)]
    slurm.breaks_after = 1
    with pytest.raises(SlurmUnavailableError):
        slurm.run([ReleaseOnNodes(jobs[0], ("n1",)), ReleaseOnNodes(jobs[1], ("n2",))])
    assert [find(slurm, job_id).state for job_id in jobs] == [State.RUNNING, State.PENDING]


def test_ended_jobs_are_forgotten_in_the_end() -> None:
    slurm = FakeSlurm(NODES, remember_s=100)
    slurm.submit(SubmitSpec(held=False, run_time_s=10))
    slurm.advance(109)
    assert len(slurm.jobs()) == 1
    slurm.advance(110)
    assert slurm.jobs() == ()
    assert slurm.next_event_s is None


JOBS = st.builds(
    SubmitSpec,
    gpus_per_node=st.integers(0, 8),
    run_time_s=st.sampled_from([1.0, 5.0, 400.0]),
    held=st.booleans(),
    requeue=st.booleans(),
) | st.builds(SubmitSpec, gpus=st.integers(1, 20), run_time_s=st.just(3.0))
NAMES = st.sampled_from([node.name for node in NODES])
NUMBERS = st.integers(1, 8).map(str)
ORDERS = st.one_of(
    st.builds(ReleaseOnNodes, NUMBERS, st.lists(NAMES, min_size=1, max_size=3, unique=True).map(tuple)),
    st.builds(Rehold, NUMBERS),
    st.builds(Requeue, NUMBERS),
)


@settings(max_examples=150, deadline=None)
@given(specs=st.lists(JOBS, min_size=1, max_size=8), days=st.lists(st.lists(ORDERS, max_size=4), max_size=8))
def test_no_gpu_is_given_twice_and_no_job_is_lost(specs: list[SubmitSpec], days: list[list[Order]]) -> None:
    slurm = FakeSlurm(NODES, completing_s=1, remember_s=1e9)
    jobs = {slurm.submit(spec): spec for spec in specs}
    for day, orders in enumerate(days):
        slurm.run(orders)
        slurm.advance(3.0 * day)
        shown = {job.job_id: job for job in slurm.jobs()}
        assert shown.keys() == jobs.keys()
        for node in slurm.nodes():
            assert sum(job.gpus.get(node.name, 0) for job in shown.values()) <= node.gpus_used <= node.gpus
        for job_id, job in shown.items():
            if job.state is State.RUNNING and jobs[job_id].gpus:
                assert sum(job.gpus.values()) == jobs[job_id].gpus
