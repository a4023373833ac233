"""What the controller relies on of any Slurm, tried on the fake and on a real one, by pyslurm where it is."""

import tempfile
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from slurm_plugin.client.orders import (
    Annotate,
    Cancel,
    Rehold,
    ReleaseOnNodes,
    ReleaseToSlurm,
    Requeue,
    Reserve,
    Signal,
    Unreserve,
)
from slurm_plugin.client.slurm import Hold, SlurmUnavailableError, State
from slurm_plugin.local_cluster.local_slurm import LocalSlurm
from slurm_plugin.local_cluster.slurm_files import LocalClusterSpec
from tests.slurm_plugin.contract import (
    FakeWorld,
    PyslurmWorld,
    RealWorld,
    SlurmWorld,
    find,
    is_held,
    run_one,
    wait_reason,
    wait_state,
)
from tests.slurm_plugin.fake import FakeSlurm
from tests.slurm_plugin.fake_job import FakeNode, SubmitSpec

ALICE, BOB = "dally-alice", "dally-bob"
REAL = {"real": RealWorld, **({"pyslurm": PyslurmWorld} if find_spec("pyslurm") else {})}
NODE_JOB = SubmitSpec(user=ALICE, gpus_per_node=8)
PAIR_JOB = SubmitSpec(user=ALICE, gpus_per_node=8, nodes=2)


@pytest.fixture(scope="module")
def one_slurm(users: tuple[str, ...]) -> Iterator[LocalSlurm]:
    types = ("h100", "h100", "h100", "k80")
    local_slurm = LocalSlurm(
        LocalClusterSpec(Path(tempfile.mkdtemp(prefix="dally-", dir="/tmp")), gpu_types=types)
    )
    local_slurm.start()
    yield local_slurm
    local_slurm.stop()


@pytest.fixture(params=["fake", *(pytest.param(name, marks=pytest.mark.slurm) for name in REAL)])
def world(request: pytest.FixtureRequest) -> Iterator[SlurmWorld]:
    if request.param == "fake":
        nodes = [
            FakeNode(f"n{number}", 8, ("gpu", "other"), "h100" if number < 7 else "k80")
            for number in range(1, 9)
        ]
        yield FakeWorld(FakeSlurm(nodes, completing_s=0.1))
        return
    real = REAL[request.param](request.getfixturevalue("one_slurm"))
    yield real
    real.clean()


def start(world: SlurmWorld, spec: SubmitSpec, *nodes: str) -> str:
    job_id = world.submit(spec)
    assert run_one(world, ReleaseOnNodes(job_id, nodes)) is None
    wait_state(world, job_id, State.RUNNING)
    return job_id


def test_a_held_job_shows_what_its_user_asked_for(world: SlurmWorld) -> None:
    job = find(world, world.submit(SubmitSpec(user=ALICE, nodes=2, gpus_per_node=4, comment="dally: hi")))
    assert (job.state, job.hold, job.reason) == (State.PENDING, Hold.USER, "JobHeldUser")
    assert (job.user, job.partition, job.comment) == (ALICE, "gpu", "dally: hi")
    assert (job.min_nodes, job.tres_per_node, job.nodes, job.gpus) == (2, "gres:gpu:4", (), {})
    assert job.start_s is None


def test_a_job_that_an_administrator_holds_shows_it(world: SlurmWorld) -> None:
    job_id = world.submit(NODE_JOB)
    world.hold(job_id)
    assert find(world, job_id).hold is Hold.ADMIN


def test_nodes_show_gpus_and_those_in_use(world: SlurmWorld) -> None:
    start(world, SubmitSpec(user=ALICE, gpus_per_node=3), "n2")
    nodes = world.slurm.nodes()
    assert [node.name for node in nodes] == [f"n{number}" for number in range(1, 9)]
    assert [(node.gpus, node.gpus_used) for node in nodes[:3]] == [(8, 0), (8, 3), (8, 0)]
    assert all(node.available and node.partitions == ("gpu", "other") for node in nodes)


def test_a_placed_job_starts_on_exactly_these_nodes(world: SlurmWorld) -> None:
    job = find(world, start(world, PAIR_JOB, "n7", "n3"))
    assert (job.gpus, job.hold) == ({"n3": 8, "n7": 8}, Hold.NONE)
    assert job.start_s is not None


def test_a_job_that_asks_for_gpus_altogether_gets_all_nodes_of_its_list(world: SlurmWorld) -> None:
    job = find(world, start(world, SubmitSpec(user=ALICE, gpus=12), "n5", "n6"))
    assert job.gpus == {"n5": 8, "n6": 4}


def test_jobs_share_a_node(world: SlurmWorld) -> None:
    first, second = (start(world, SubmitSpec(user=ALICE, gpus_per_node=4), "n1") for _ in range(2))
    assert find(world, first).gpus == find(world, second).gpus == {"n1": 4}


@pytest.mark.parametrize(
    ("nodes", "fence"),
    [(("n1", "nowhere"), None), (("n1", "n2"), "dally-nowhere")],
    ids=["unknown node", "unknown fence"],
)
def test_a_placement_that_slurm_refuses_leaves_the_job_held(
    world: SlurmWorld, nodes: tuple[str, ...], fence: str | None
) -> None:
    job_id = world.submit(PAIR_JOB)
    assert run_one(world, ReleaseOnNodes(job_id, nodes, fence))
    job = find(world, job_id)
    assert (job.state, job.hold) == (State.PENDING, Hold.USER)


def test_a_refused_order_does_not_keep_others_from_being_carried_out(world: SlurmWorld) -> None:
    first, second = world.submit(NODE_JOB), world.submit(NODE_JOB)
    answers = world.slurm.run(
        [
            ReleaseOnNodes(first, ("n1",)),
            ReleaseOnNodes("999999", ("n2",)),
            ReleaseOnNodes(second, ("n3",)),
            Requeue("999999"),
        ]
    )
    assert [answer is None for answer in answers] == [True, False, True, False]
    assert "Invalid job id" in str(answers[1])
    assert wait_state(world, first, State.RUNNING).nodes == ("n1",)
    assert wait_state(world, second, State.RUNNING).nodes == ("n3",)


def test_orders_for_a_job_that_runs_are_refused_and_leave_it_running(world: SlurmWorld) -> None:
    job_id = start(world, NODE_JOB, "n1")
    answers = world.slurm.run([ReleaseOnNodes(job_id, ("n2",)), ReleaseToSlurm(job_id, 1), Rehold(job_id)])
    assert all(answers)
    job = find(world, job_id)
    assert (job.state, job.nodes) == (State.RUNNING, ("n1",))


def test_a_job_placed_on_busy_nodes_waits_and_can_be_held_back(world: SlurmWorld) -> None:
    start(world, NODE_JOB, "n1")
    job_id = world.submit(NODE_JOB)
    assert run_one(world, ReleaseOnNodes(job_id, ("n1",))) is None
    job = wait_reason(world, job_id, "Resources")
    assert (job.state, job.hold, job.required_nodes) == (State.PENDING, Hold.NONE, ("n1",))
    assert run_one(world, Rehold(job_id)) is None
    assert is_held(find(world, job_id))


def test_a_job_placed_on_a_drained_node_waits(world: SlurmWorld) -> None:
    world.set_node("n1", "drain")
    assert [node.name for node in world.slurm.nodes() if not node.available] == ["n1"]
    job_id = world.submit(NODE_JOB)
    assert run_one(world, ReleaseOnNodes(job_id, ("n1",))) is None
    wait_reason(world, job_id, "ReqNodeNotAvail")


def test_a_requeued_job_is_held_with_its_old_nodes_and_a_new_submission(world: SlurmWorld) -> None:
    job_id = start(world, NODE_JOB, "n1")
    before = find(world, job_id)
    assert run_one(world, Requeue(job_id)) is None
    job = wait_state(world, job_id, State.PENDING)
    assert (job.hold, job.restarts, job.required_nodes, job.nodes) == (Hold.USER, 1, ("n1",), ())
    assert job.begin_s > job.submit_s >= before.submit_s
    assert job.start_s is None


def test_a_requeued_job_starts_at_once_where_it_is_placed(world: SlurmWorld) -> None:
    job_id = start(world, PAIR_JOB, "n1", "n2")
    run_one(world, Requeue(job_id))
    wait_state(world, job_id, State.PENDING)
    assert run_one(world, ReleaseOnNodes(job_id, ("n5", "n6"))) is None
    job = wait_state(world, job_id, State.RUNNING)
    assert (job.nodes, job.restarts) == (("n5", "n6"), 1)


def test_a_requeued_job_that_is_held_back_forgets_its_nodes_and_its_begin(world: SlurmWorld) -> None:
    job_id = start(world, NODE_JOB, "n1")
    run_one(world, Requeue(job_id))
    wait_state(world, job_id, State.PENDING)
    assert run_one(world, Rehold(job_id)) is None
    job = find(world, job_id)
    assert is_held(job)
    assert job.begin_s <= job.submit_s + 1


def test_a_job_that_completed_or_waits_is_not_requeued(world: SlurmWorld) -> None:
    done = world.submit(SubmitSpec(user=ALICE, held=False, run_time_s=0.1))
    waits = world.submit(NODE_JOB)
    wait_state(world, done, State.ENDED)
    world.slurm.run([Requeue(done), Requeue(waits)])
    assert find(world, done).state_name == "COMPLETED"
    assert is_held(find(world, waits))


def test_a_job_that_must_not_be_requeued_runs_on(world: SlurmWorld) -> None:
    spec = SubmitSpec(user=ALICE, gpus_per_node=8, requeue=False)
    job_id = start(world, spec, "n1")
    assert not find(world, job_id).requeue
    assert run_one(world, Requeue(job_id))
    assert find(world, job_id).state is State.RUNNING


def test_a_job_handed_back_runs_where_slurm_likes(world: SlurmWorld) -> None:
    job_id = world.submit(SubmitSpec(user=ALICE, gpus=4))
    run_one(world, Requeue(job_id))
    assert run_one(world, ReleaseToSlurm(job_id, 1)) is None
    job = wait_state(world, job_id, State.RUNNING)
    assert (len(job.nodes), sum(job.gpus.values()), job.required_nodes) == (1, 4, ())


def test_a_job_gets_more_nodes_and_fewer_than_it_asked_for(world: SlurmWorld) -> None:
    job_id = world.submit(SubmitSpec(user=ALICE, gpus_per_node=2, tasks_per_node=2))
    for nodes in (("n1", "n3", "n8"), ("n4",), ("n2", "n7")):
        assert run_one(world, ReleaseOnNodes(job_id, nodes, tasks=2 * len(nodes), exact=True)) is None
        job = wait_state(world, job_id, State.RUNNING)
        assert job.gpus == dict.fromkeys(nodes, 2)
        run_one(world, Requeue(job_id))
        job = wait_state(world, job_id, State.PENDING)
        assert (job.min_nodes, job.tasks, job.tasks_per_node) == (len(nodes), 2 * len(nodes), 2)


def test_a_job_that_is_handed_back_has_the_size_that_it_asked_for(world: SlurmWorld) -> None:
    job_id = world.submit(SubmitSpec(user=ALICE, gpus_per_node=2, tasks_per_node=2))
    run_one(world, ReleaseOnNodes(job_id, ("n1", "n3", "n8"), tasks=6, exact=True))
    wait_state(world, job_id, State.RUNNING)
    run_one(world, Requeue(job_id))
    wait_state(world, job_id, State.PENDING)
    assert run_one(world, ReleaseToSlurm(job_id, 1, tasks=2, exact=True)) is None
    job = wait_state(world, job_id, State.RUNNING)
    assert (len(job.nodes), job.tasks, sum(job.gpus.values())) == (1, 2, 2)


def test_a_job_with_gpus_by_task_gets_more_of_them_and_fewer(world: SlurmWorld) -> None:
    job_id = world.submit(SubmitSpec(user=ALICE, gpus_per_task=1, tasks=2))
    for tasks, gpus in ((10, {"n1": 8, "n7": 2}), (1, {"n3": 1}), (3, {"n2": 1, "n4": 1, "n8": 1})):
        assert run_one(world, ReleaseOnNodes(job_id, tuple(gpus), tasks=tasks)) is None
        assert wait_state(world, job_id, State.RUNNING).gpus == gpus
        run_one(world, Requeue(job_id))
        assert wait_state(world, job_id, State.PENDING).tasks == tasks
    assert run_one(world, ReleaseToSlurm(job_id, 1, tasks=2)) is None
    assert sum(wait_state(world, job_id, State.RUNNING).gpus.values()) == 2


def test_a_job_of_fewer_tasks_than_asked_for_starts_where_only_these_have_gpus(world: SlurmWorld) -> None:
    start(world, SubmitSpec(user=ALICE, gpus_per_node=7), "n1")
    job_id = world.submit(SubmitSpec(user=ALICE, gpus_per_task=1, tasks=2, gpu_type="h100"))
    asked = find(world, job_id)
    for tasks, gpus in ((1, {"n1": 1}), (5, {"n2": 5})):
        assert run_one(world, ReleaseOnNodes(job_id, tuple(gpus), tasks=tasks)) is None
        assert wait_state(world, job_id, State.RUNNING).gpus == gpus
        run_one(world, Requeue(job_id))
        job = wait_state(world, job_id, State.PENDING)
        assert (job.tasks, job.tres_per_job, job.tres_per_task) == (tasks, "", asked.tres_per_task)


def test_a_gang_lies_on_nodes_of_two_types(world: SlurmWorld) -> None:
    job_id = start(world, SubmitSpec(user=ALICE, gpus=12), "n6", "n7")
    assert find(world, job_id).gpus == {"n6": 8, "n7": 4}


def test_a_job_that_asks_for_a_type_shows_it_and_runs_there(world: SlurmWorld) -> None:
    job_id = world.submit(SubmitSpec(user=ALICE, gpus_per_node=3, gpu_type="k80"))
    assert find(world, job_id).tres_per_node == "gres:gpu:k80:3"
    assert run_one(world, ReleaseToSlurm(job_id, 1)) is None
    assert wait_state(world, job_id, State.RUNNING).gpus == {"n7": 3}


def test_a_job_that_is_released_by_hand_runs(world: SlurmWorld) -> None:
    job_id = world.submit(NODE_JOB)
    world.release(job_id)
    wait_state(world, job_id, State.RUNNING)


def test_a_fence_keeps_other_jobs_out(world: SlurmWorld) -> None:
    inside, outside = world.submit(NODE_JOB), world.submit(SubmitSpec(user=BOB, gpus_per_node=8))
    fence = Reserve("dally-1", ("n1", "n2"), ALICE)
    assert world.slurm.run([fence, ReleaseOnNodes(outside, ("n1",))]) == (None, None)
    wait_reason(world, outside, "ReqNodeNotAvail")
    assert run_one(world, ReleaseOnNodes(inside, ("n1",), "dally-1")) is None
    assert wait_state(world, inside, State.RUNNING).nodes == ("n1",)
    assert find(world, outside).state is State.PENDING


def test_jobs_of_two_fences_start_on_the_same_node(world: SlurmWorld) -> None:
    half = SubmitSpec(user=ALICE, gpus_per_node=4)
    first, second = world.submit(half), world.submit(SubmitSpec(user=BOB, gpus_per_node=4))
    fences = [Reserve("dally-1", ("n1",), ALICE), Reserve("dally-2", ("n1",), BOB)]
    placements = [ReleaseOnNodes(first, ("n1",), "dally-1"), ReleaseOnNodes(second, ("n1",), "dally-2")]
    assert not any(world.slurm.run([*fences, *placements]))
    wait_state(world, first, State.RUNNING)
    wait_state(world, second, State.RUNNING)


def test_a_job_back_in_the_queue_when_its_fence_ends_is_held_as_before(world: SlurmWorld) -> None:
    job_id = world.submit(NODE_JOB)
    fence = Reserve("dally-1", ("n1",), ALICE)
    assert world.slurm.run([fence, ReleaseOnNodes(job_id, ("n1",), fence.name)]) == (None, None)
    wait_state(world, job_id, State.RUNNING)
    run_one(world, Requeue(job_id))
    wait_state(world, job_id, State.PENDING)
    unfence = Unreserve(fence.name)
    world.wait(lambda: run_one(world, unfence) is None or not world.slurm.reservations(), "the fence to end")
    world.wait(lambda: not find(world, job_id).reservation, "the fence to be gone")
    job = find(world, job_id)
    assert (job.state, job.hold) == (State.PENDING, Hold.USER), job.state_name


def test_fences_show_as_reservations_and_names_are_used_once(world: SlurmWorld) -> None:
    fence = Reserve("dally-1", ("n1", "n2"), ALICE)
    assert run_one(world, fence) is None
    (shown,) = world.slurm.reservations()
    assert (shown.name, shown.nodes) == ("dally-1", ("n1", "n2"))
    assert shown.end_s - shown.start_s == 60
    assert "Duplicate" in str(run_one(world, fence))


def test_array_tasks_are_placed_one_by_one_within_their_throttle(world: SlurmWorld) -> None:
    array = world.submit(SubmitSpec(user=ALICE, gpus_per_node=8, array=(1, 3, 4), array_throttle=1))
    tasks = [job for job in world.slurm.jobs() if job.array_id == array]
    assert [task.job_id for task in tasks] == [f"{array}_1", f"{array}_3", f"{array}_4"]
    assert all(is_held(task) and task.array_throttle == 1 for task in tasks)
    assert not any(
        world.slurm.run([ReleaseOnNodes(f"{array}_3", ("n2",)), ReleaseOnNodes(f"{array}_4", ("n4",))])
    )
    assert wait_state(world, f"{array}_3", State.RUNNING).nodes == ("n2",)
    assert wait_reason(world, f"{array}_4", "JobArrayTaskLimit").required_nodes == ("n4",)
    assert is_held(find(world, f"{array}_1"))


def test_an_array_task_is_requeued_alone(world: SlurmWorld) -> None:
    array = world.submit(SubmitSpec(user=ALICE, gpus_per_node=8, array=(0, 1)))
    for task, node in ((f"{array}_0", "n1"), (f"{array}_1", "n2")):
        run_one(world, ReleaseOnNodes(task, (node,)))
        wait_state(world, task, State.RUNNING)
    assert run_one(world, Requeue(f"{array}_1")) is None
    assert wait_state(world, f"{array}_1", State.PENDING).hold is Hold.USER
    assert find(world, f"{array}_0").state is State.RUNNING


@pytest.mark.parametrize(("exit_code", "name"), [(0, "COMPLETED"), (3, "FAILED")])
def test_an_ended_job_is_remembered_with_its_exit_code(world: SlurmWorld, exit_code: int, name: str) -> None:
    spec = SubmitSpec(user=ALICE, gpus_per_node=8, run_time_s=0.1, exit_code=exit_code)
    job_id = world.submit(spec)
    run_one(world, ReleaseOnNodes(job_id, ("n1",)))
    job = wait_state(world, job_id, State.ENDED)
    assert (job.state_name, job.exit_code) == (name, exit_code)


def test_a_cancelled_job_ends(world: SlurmWorld) -> None:
    running, waiting = start(world, NODE_JOB, "n1"), world.submit(NODE_JOB)
    world.cancel(running)
    world.cancel(waiting)
    for job_id in (running, waiting):
        assert wait_state(world, job_id, State.ENDED).state_name == "CANCELLED"
    assert run_one(world, ReleaseOnNodes(waiting, ("n2",)))


def test_a_job_whose_node_fails_waits_for_it_unheld(world: SlurmWorld) -> None:
    job_id = start(world, PAIR_JOB, "n1", "n2")
    world.set_node("n2", "down")
    job = wait_state(world, job_id, State.PENDING)
    assert (job.hold, job.restarts, job.required_nodes) == (Hold.NONE, 1, ("n1", "n2"))
    assert run_one(world, Rehold(job_id)) is None
    assert is_held(find(world, job_id))


def test_a_signal_reaches_running_jobs_only(world: SlurmWorld) -> None:
    running, waiting = start(world, NODE_JOB, "n1"), world.submit(NODE_JOB)
    answers = world.slurm.run([Signal(running, "URG"), Signal(waiting, "TERM"), Signal("999999", "URG")])
    assert answers[:2] == (None, None)
    assert "Invalid job id" in str(answers[2])
    assert find(world, running).state is State.RUNNING
    assert is_held(find(world, waiting))


def test_only_a_job_that_waits_is_cancelled(world: SlurmWorld) -> None:
    running, waiting = start(world, NODE_JOB, "n1"), world.submit(NODE_JOB)
    assert world.slurm.run([Cancel(running), Cancel(waiting)]) == (None, None)
    assert wait_state(world, waiting, State.ENDED).state_name == "CANCELLED"
    assert find(world, running).state is State.RUNNING


def test_admin_comments_are_set_word_for_word(world: SlurmWorld) -> None:
    first, second, third = (world.submit(NODE_JOB) for _ in range(3))
    words = "dally:model=a%20b&x=1 Dally: waits, 3 of 8 GPUs (50 %) + one rack; -x=y"
    orders = [
        Annotate(first, words),
        Annotate(second, words),
        Annotate("999999", words),
        Annotate(third, "no"),
    ]
    answers = world.slurm.run([*orders, Annotate(third, "")])
    assert [answer is None for answer in answers] == [True, True, False, True, True]
    assert [find(world, job).admin_comment for job in (first, second, third)] == [words, words, ""]


def test_no_answer_is_no_empty_cluster(world: SlurmWorld) -> None:
    job_id = world.submit(NODE_JOB)
    world.stop_answering()
    try:
        for ask in (world.slurm.jobs, world.slurm.nodes, world.slurm.reservations):
            with pytest.raises(SlurmUnavailableError):
                ask()
        with pytest.raises(SlurmUnavailableError):
            world.slurm.run([Requeue(job_id)])
    finally:
        world.answer_again()
    assert is_held(find(world, job_id))
