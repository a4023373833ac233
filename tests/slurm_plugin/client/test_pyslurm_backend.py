from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from slurm_plugin.client.job_json import Records
from slurm_plugin.client.orders import Order, Rehold, ReleaseOnNodes, ReleaseToSlurm, Requeue, Reserve, Signal
from slurm_plugin.client.pyslurm_backend import REREAD_S, PyslurmSlurm
from slurm_plugin.client.slurm import (
    Hold,
    Reservation,
    SlurmJob,
    SlurmNode,
    SlurmUnavailableError,
    State,
)
from tests.slurm_plugin.client.pyslurm_rig import PyslurmRig, ScriptedSlurm
from tests.slurm_plugin.fake import FakeSlurm
from tests.slurm_plugin.fake_job import FakeNode, SubmitSpec
from tests.slurm_plugin.mock_pyslurm import UNKNOWN_NODE, mock_pyslurm, records_of

HELD = SlurmJob(
    "17",
    1e9,
    State.PENDING,
    "PENDING",
    reason="JobHeldUser",
    hold=Hold.USER,
    user="alice",
    partition="fast,slow",
    comment="dally:model=vgg11 mine",
    min_nodes=2,
    tres_per_job="gres:gpu:h100:16",
    time_limit_s=3600.0,
)
RUNNING = SlurmJob(
    "18", 1e9, State.RUNNING, "RUNNING", nodes=("n1", "n2"), gpus={"n1": 8, "n2": 4}, start_s=2e9, restarts=1
)
ENDED = SlurmJob("19", 1e9, State.ENDED, "FAILED", exit_code=137, start_s=2e9)
LEFT = replace(ENDED, nodes=("n1",), gpus={"n1": 8})
TASKS = tuple(replace(HELD, job_id=f"20_{task}", array_id="20", min_nodes=1) for task in (0, 3, 4, 5))
FENCE = Reserve("dally-f1", ("n1", "n2"), "alice")


def test_jobs_are_what_the_command_line_shows() -> None:
    jobs = (HELD, RUNNING, ENDED, *TASKS)
    assert PyslurmRig(*jobs).slurm.jobs() == jobs


def test_changes_of_known_jobs_are_seen_without_a_command() -> None:
    rig = PyslurmRig(HELD, RUNNING)
    rig.slurm.jobs()
    started = replace(
        HELD,
        state=State.RUNNING,
        state_name="RUNNING",
        reason="",
        hold=Hold.NONE,
        partition="fast",
        min_nodes=1,
        required_nodes=("n3",),
        reservation="dally-f1",
        begin_s=2e9,
        start_s=2e9,
        nodes=("n3",),
        gpus={"n3": 8},
        restarts=1,
    )
    rig.change(started)
    assert rig.slurm.jobs() == (started,)
    assert rig.commands.reads == 1


def test_a_new_job_is_read_by_command() -> None:
    rig = PyslurmRig(HELD)
    rig.slurm.jobs()
    rig.change(HELD, RUNNING)
    assert rig.slurm.jobs() == (HELD, RUNNING)
    assert rig.commands.reads == 2


def test_the_exit_code_of_a_job_that_ended_is_read_by_command() -> None:
    rig = PyslurmRig(replace(RUNNING, job_id=ENDED.job_id))
    rig.slurm.jobs()
    rig.change(ENDED)
    assert rig.slurm.jobs() == (ENDED,)


def test_a_job_that_has_left_is_not_shown_again() -> None:
    rig = PyslurmRig(HELD, RUNNING)
    rig.slurm.jobs()
    rig.change(RUNNING)
    assert rig.slurm.jobs() == (RUNNING,)


def test_a_number_given_twice_is_a_new_job() -> None:
    rig = PyslurmRig(HELD)
    rig.slurm.jobs()
    again = replace(HELD, submit_s=2e9, tres_per_job="gres:gpu:h100:8")
    rig.change(again)
    assert rig.slurm.jobs() == (again,)


@pytest.mark.parametrize("later_s", [REREAD_S, -1.0])
def test_requests_are_read_again_after_a_while_and_when_the_clock_steps_back(later_s: float) -> None:
    rig = PyslurmRig(HELD)
    rig.slurm.jobs()
    changed = replace(HELD, tres_per_job="gres:gpu:h100:8")
    rig.change(changed)
    rig.now_s += later_s
    assert rig.slurm.jobs() == (changed,)


def test_a_task_that_was_touched_keeps_its_number_in_the_array() -> None:
    first, third, *others = TASKS
    jobs = (replace(first, required_nodes=("n1",)), replace(third, restarts=2), *others)
    assert PyslurmRig(*jobs).slurm.jobs() == jobs


@pytest.mark.parametrize(
    ("reason", "hold"),
    [
        ("JobHeldAdmin", Hold.ADMIN),
        ("JobHeldUser", Hold.USER),
        ("Resources", Hold.NONE),
        ("", Hold.NONE),
    ],
)
def test_who_holds_a_job_is_told_apart(reason: str, hold: Hold) -> None:
    job = replace(HELD, reason=reason, hold=hold)
    assert PyslurmRig(job).slurm.jobs() == (job,)


def test_who_holds_a_job_with_a_description_is_what_commands_say() -> None:
    requeued = replace(HELD, requeued_held=True)
    rig = PyslurmRig(requeued)
    assert rig.slurm.jobs() == (requeued,)
    by_administrator = replace(requeued, reason="JobHeldAdmin", hold=Hold.ADMIN)
    rig.change(by_administrator)
    rig.now_s += REREAD_S
    assert rig.slurm.jobs() == (by_administrator,)


def test_a_job_with_a_description_is_released_by_commands_which_look_who_holds_it() -> None:
    rig = PyslurmRig(replace(HELD, requeued_held=True))
    rig.commands.refusal = "an administrator holds it"
    assert rig.slurm.run([ReleaseOnNodes("17", ("n1", "n2"))]) == ("an administrator holds it",)
    assert rig.cluster.ran == []


def test_task_0_that_runs_is_not_taken_for_what_is_left_of_its_array() -> None:
    left = replace(ENDED, job_id="20", array_id="20", state_name="CANCELLED")
    task = replace(RUNNING, job_id="20_0", array_id="20")
    assert PyslurmRig(left, task).slurm.jobs() == (left, task)
    rig = PyslurmRig(*TASKS)
    rig.slurm.jobs()
    rig.change(left, task)
    assert rig.slurm.jobs() == (left, task)


def test_what_is_left_of_a_cancelled_array_is_read_once() -> None:
    left = replace(ENDED, job_id="20", array_id="20", state_name="CANCELLED")
    rig = PyslurmRig(HELD, *TASKS)
    rig.slurm.jobs()
    rig.change(HELD, left)
    rig.commands.all_jobs = (HELD,)  # commands no longer show it
    for _ in range(5):
        assert rig.slurm.jobs() == (HELD,)
    assert rig.commands.reads == 2


@pytest.mark.parametrize("change", [{"time_limit_s": 60.0}, {"qos": "long"}, {"excluded_nodes": ("n9",)}])
def test_sizes_and_limits_that_pyslurm_shows_are_those_of_now(change: dict[str, Any]) -> None:
    rig = PyslurmRig(HELD)
    rig.slurm.jobs()
    changed = replace(HELD, **change)
    rig.change(changed)
    assert rig.slurm.jobs() == (changed,)


def test_a_reservation_that_is_there_already_is_refused() -> None:
    rig = PyslurmRig()
    assert rig.slurm.run([FENCE, FENCE]) == (None, "Duplicate reservation name")
    assert rig.slurm.run([FENCE]) == ("Duplicate reservation name",)
    assert rig.cluster.ran == [(FENCE,)]


def test_a_reservation_lasts_as_long_as_asked_for() -> None:
    rig = PyslurmRig()
    rig.slurm.run([replace(FENCE, minutes=7)])
    assert rig.cluster.ran == [(replace(FENCE, minutes=7),)]


@pytest.mark.parametrize(
    ("name", "state"),
    [
        ("CONFIGURING", State.RUNNING),
        ("COMPLETING", State.COMPLETING),
        ("SUSPENDED", State.SUSPENDED),
        ("OUT_OF_MEMORY", State.ENDED),
        ("HIBERNATED", State.UNKNOWN),
    ],
)
def test_each_state_is_told_and_an_unknown_one_harms_nothing(name: str, state: State) -> None:
    (job,) = PyslurmRig(replace(RUNNING, state_name=name)).slurm.jobs()
    assert (job.state, job.state_name) == (state, name)


@pytest.mark.parametrize("left", ["afterok:12(unfulfilled)", "singleton(unfulfilled)", "expand:3"])
def test_dependencies_are_shown_until_nothing_is_left(left: str) -> None:
    job = replace(HELD, dependency=left)
    rig = PyslurmRig(job)
    assert rig.slurm.jobs() == (job,)
    rig.change(HELD)
    assert rig.slurm.jobs() == (HELD,)
    assert rig.commands.reads == 1


def test_a_node_list_that_cannot_be_read_harms_nothing() -> None:
    (job,) = PyslurmRig(replace(HELD, required_nodes=("n1", "n1"))).slurm.jobs()
    assert job.required_nodes == ()


def test_gpus_in_use_are_counted_from_the_jobs_that_hold_them() -> None:
    rig = PyslurmRig(RUNNING, replace(RUNNING, job_id="21", gpus={"n1": 1}, state_name="SUSPENDED"), LEFT)
    rig.cluster.all_nodes = tuple(
        SlurmNode(name, True, "mixed", 8, 0, ("main",), gres="gpu:h100:8") for name in ("n1", "n3")
    )
    n1, n3 = rig.slurm.nodes()
    assert (n1.gpus, n1.gres, n1.gpus_used, n1.partitions) == (8, "gpu:h100:8", 9, ("main",))
    assert n3.gpus_used == 0


@pytest.mark.parametrize(
    ("state", "available"),
    [
        ("idle", True),
        ("mixed+planned", True),
        ("allocated+reserved", True),
        ("idle+drain", False),
        ("idle+not_responding", False),
        ("down", False),
        ("haunted", False),
    ],
)
def test_a_node_is_available_if_nothing_speaks_against_it(state: str, available: bool) -> None:
    rig = PyslurmRig()
    rig.cluster.all_nodes = (SlurmNode("n1", available, state, 0, 0, ()),)
    assert rig.slurm.nodes() == rig.cluster.all_nodes


def test_reservations_are_shown_with_their_nodes_one_by_one() -> None:
    rig = PyslurmRig()
    rig.cluster.all_reservations = rig.commands.all_reservations = (
        Reservation("night", ("n1", "n2"), 1.0, 2.0, maintenance=True),
        Reservation("none", (), 0.0, 9.0),
    )
    assert rig.slurm.reservations() == rig.cluster.all_reservations


def test_what_reservations_leave_open_is_asked_of_commands_once() -> None:
    rig = PyslurmRig()
    flexible = Reservation("flexible", ("n1",), 1.0, 9.0, cpus=4.0, bounds_jobs=False)
    rig.cluster.all_reservations = rig.commands.all_reservations = (flexible,)
    assert rig.slurm.reservations() == (flexible,)
    rig.commands.down = True
    assert rig.slurm.reservations() == (flexible,)
    longer = replace(flexible, end_s=20.0)
    rig.cluster.all_reservations = (longer,)
    with pytest.raises(SlurmUnavailableError):
        rig.slurm.reservations()
    rig.commands = rig.slurm._commands = ScriptedSlurm(all_reservations=(longer,))
    assert rig.slurm.reservations() == (longer,)
    rig.cluster.all_reservations = ()
    assert rig.slurm.reservations() == ()


@pytest.mark.parametrize("reservation", [None, "dally-f1"])
def test_a_placement_needs_no_command(reservation: str | None) -> None:
    rig = PyslurmRig(HELD)
    order = ReleaseOnNodes("17", ("n1", "n2"), reservation)
    assert rig.slurm.run([order]) == (None,)
    assert (rig.cluster.ran, rig.commands.ran) == ([(order,)], [])


@pytest.mark.parametrize(
    ("job", "order", "max_nodes"),
    [
        (HELD, ReleaseOnNodes("17", ("n1",)), 2),
        (HELD, ReleaseOnNodes("17", ("n1", "n2")), 4),
        (HELD, ReleaseOnNodes("17", ("n1", "n2"), tasks=2), 2),
        (replace(HELD, reservation="dally-f0"), ReleaseOnNodes("17", ("n1", "n2")), 2),
        (TASKS[1], ReleaseOnNodes("20_3", ("n1",)), 1),
        (replace(TASKS[1], restarts=1), ReleaseOnNodes("20_3", ("n1",)), 1),
        (HELD, ReleaseOnNodes("99", ("n1", "n2")), 2),
        (HELD, Rehold("17"), 2),
        (HELD, ReleaseToSlurm("17", 2), 2),
        (RUNNING, Requeue("18"), 2),
        (RUNNING, Signal("18", "USR1"), 2),
    ],
)
def test_what_pyslurm_cannot_do_is_done_by_command(job: SlurmJob, order: Order, max_nodes: int) -> None:
    rig = PyslurmRig(job, max_nodes={job.job_id: max_nodes})
    rig.commands.refusal = "no"
    assert rig.slurm.run([order]) == ("no",)
    assert (rig.cluster.ran, rig.commands.ran) == ([], [(order,)])


def test_answers_come_in_the_order_of_the_orders_and_commands_in_as_few_calls_as_that_allows() -> None:
    rig = PyslurmRig(HELD, RUNNING)
    rig.commands.refusal = "no"
    place = ReleaseOnNodes("17", ("n1", "n2"))
    orders: list[Order] = [Rehold("1"), Requeue("2"), FENCE, place, Signal("18", "USR1")]
    assert rig.slurm.run(orders) == ("no", "no", None, None, "no")
    assert rig.cluster.ran == [(FENCE,), (place,)]
    assert rig.commands.ran == [tuple(orders[:2]), tuple(orders[4:])]


def test_a_refusal_is_one_line_and_keeps_nothing_else_from_being_done() -> None:
    rig = PyslurmRig(HELD)
    rig.cluster.refusal = "Requested nodes\n are busy"
    orders = [ReleaseOnNodes("17", ("n1", "n2")), ReleaseOnNodes("17", ("n3", "n4"))]
    assert rig.slurm.run(orders) == ("Requested nodes are busy",) * 2


def test_a_job_whose_nodes_are_refused_is_not_released() -> None:
    rig = PyslurmRig(HELD)
    assert rig.slurm.run([ReleaseOnNodes("17", ("n1", UNKNOWN_NODE))]) == ("Invalid node name specified",)
    assert rig.cluster.ran == []


def test_an_order_that_is_no_number_and_no_name_does_not_keep_others_from_being_done() -> None:
    rig = PyslurmRig(HELD)
    strange = replace(FENCE, name="a b")
    assert rig.slurm.run([strange, FENCE]) == ("'a b' is no reservation name", None)
    assert rig.slurm.run([strange]) == ("'a b' is no reservation name",)


def test_a_fence_stands_although_an_old_error_is_reported_with_it() -> None:
    rig = PyslurmRig(stale_errno=2)
    assert rig.slurm.run([FENCE]) == (None,)


def test_a_job_that_has_ended_holds_no_gpus() -> None:
    assert PyslurmRig(LEFT).slurm.jobs() == (replace(LEFT, gpus={}),)


def test_a_fence_of_another_user_is_not_taken_for_ours() -> None:
    rig = PyslurmRig()
    rig.slurm.run([FENCE])
    rig.cluster.refusal = "Duplicate reservation name"
    assert rig.slurm.run([replace(FENCE, user="bob")]) == ("Duplicate reservation name",)


@pytest.mark.parametrize("present", [Reservation("another", FENCE.nodes, 0.0, 9.0), None])
def test_a_fence_that_is_refused_is_reported(present: Reservation | None) -> None:
    rig = PyslurmRig()
    rig.cluster.refusal = "Requested nodes are busy"
    rig.cluster.all_reservations = (present,) if present else ()
    assert rig.slurm.run([FENCE]) == ("Requested nodes are busy",)


@pytest.mark.parametrize("ask", ["jobs", "nodes", "reservations"])
def test_no_answer_to_a_question_is_told_from_an_empty_cluster(ask: str) -> None:
    rig = PyslurmRig()
    rig.cluster.down = True
    with pytest.raises(SlurmUnavailableError, match="Unable to contact slurm controller"):
        getattr(rig.slurm, ask)()


@pytest.mark.parametrize("order", [FENCE, ReleaseOnNodes("17", ("n1", "n2"))])
def test_no_answer_to_an_order_is_told_from_a_refusal(order: Order) -> None:
    rig = PyslurmRig(HELD)
    rig.cluster.ignores_orders = True
    with pytest.raises(SlurmUnavailableError):
        rig.slurm.run([order])


def test_an_error_of_the_system_is_no_refusal() -> None:
    rig = PyslurmRig(stale_errno=111)
    rig.cluster.forgets = True
    with pytest.raises(SlurmUnavailableError):
        rig.slurm.run([FENCE])


def test_a_job_s_life_looks_as_it_does_without_pyslurm() -> None:
    fake = FakeSlurm([FakeNode(f"n{number}") for number in range(1, 5)])

    class FakeCommands(ScriptedSlurm):
        def records(self) -> Records:
            return records_of(fake.jobs())

        def reservations(self) -> tuple[Reservation, ...]:
            return fake.reservations()

        def run(self, orders: Sequence[Order]) -> tuple[str | None, ...]:
            return fake.run(orders)

    slurm = PyslurmSlurm(mock_pyslurm(fake), FakeCommands(), lambda: 3e9 + fake.now_s)
    fake.submit(SubmitSpec(nodes=2, gpus_per_node=8, run_time_s=60.0, exit_code=3))
    fake.submit(SubmitSpec(gpus=4, array=(0, 2, 3)))
    steps: list[Order] = [
        FENCE,
        ReleaseOnNodes("1", ("n1", "n2"), "dally-f1"),
        ReleaseOnNodes("2_2", ("n3",)),
        Requeue("1"),
    ]
    steps += [Rehold("1"), ReleaseOnNodes("1", ("n3", "n4")), ReleaseToSlurm("1", 2), Signal("2_2", "USR1")]
    for step in steps:
        slurm.run([step])
        fake.advance(fake.now_s + 20)
        assert slurm.jobs() == fake.jobs()
        assert slurm.nodes() == fake.nodes()
        assert slurm.reservations() == fake.reservations()
