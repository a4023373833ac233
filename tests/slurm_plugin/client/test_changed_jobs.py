"""Looking at all jobs by lines shows what reading all of each would show, for less; also on real Slurm."""

from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from random import Random
from threading import Event

import pytest

from slurm_plugin.client.changed_jobs import REASONS_S, REREAD_LOOKS
from slurm_plugin.client.command_line import CommandLine
from slurm_plugin.client.job_json import in_order
from slurm_plugin.client.orders import ReleaseOnNodes, Requeue
from slurm_plugin.client.slurm import Hold, SlurmJob, State
from slurm_plugin.local_cluster.local_slurm import LocalSlurm
from tests.slurm_plugin.client.test_contract import ALICE, NODE_JOB, start
from tests.slurm_plugin.client.text_slurm import TextSlurm
from tests.slurm_plugin.contract import RealWorld, find, run_one, wait_state
from tests.slurm_plugin.fake_job import SubmitSpec

VERSIONS = ((22, 5), (24, 11), (25, 11), (26, 5))


def held(job_id: str, **values: object) -> SlurmJob:
    job = SlurmJob(
        job_id, 1e9, State.PENDING, "PENDING", "JobHeldUser", Hold.USER, "alice", tres_per_node="gres:gpu:2"
    )
    return replace(job, **values)  # type: ignore[arg-type]


def running(job: SlurmJob, *nodes: str) -> SlurmJob:
    on_nodes = {"nodes": nodes, "gpus": dict.fromkeys(nodes, 2), "start_s": 2e9}
    return replace(job, state=State.RUNNING, state_name="RUNNING", reason="", hold=Hold.NONE, **on_nodes)  # type: ignore[arg-type]


def settled(slurm: TextSlurm) -> Callable[[], tuple[SlurmJob, ...]]:
    """A look at a cluster that has been seen before."""
    changed = slurm.changed_jobs()

    def look() -> tuple[SlurmJob, ...]:
        return in_order(changed.look())

    for _ in range(2):
        assert look() == slurm.jobs()
    slurm.shown, slurm.full = [], 0
    return look


def cluster(*jobs: SlurmJob, version: tuple[int, int] = (22, 5)) -> TextSlurm:
    slurm = TextSlurm(version)
    slurm.put(*jobs)
    return slurm


def test_a_cluster_that_stays_as_it_is_costs_lines_only() -> None:
    slurm = cluster(*(held(str(number)) for number in range(17, 22)), running(held("7"), "n1"))
    look = settled(slurm)
    for _ in range(4):
        assert look() == slurm.jobs()
    assert (slurm.shown, slurm.full) == ([], 0)


def test_only_new_and_changed_jobs_are_read_in_detail() -> None:
    slurm = cluster(*(held(str(number)) for number in range(17, 22)), running(held("7"), "n1"))
    look = settled(slurm)
    slurm.put(held("30", excluded_nodes=("n3",), memory_per_cpu_mb=50), running(held("18"), "n1", "n2"))
    del slurm.records[17]
    assert look() == slurm.jobs()
    assert (slurm.shown, slurm.full) == ([[18, 30]], 0)


def test_a_job_whose_line_says_what_it_said_is_the_same_object() -> None:
    slurm = cluster(held("10"), held("11"))
    look = settled(slurm)
    before = look()
    slurm.put(held("11", nice=5))
    after = look()
    assert after[0] is before[0]
    assert after[1].nice == 5


def test_a_job_that_is_read_anew_and_is_as_it_was_is_the_same_object() -> None:
    slurm = cluster(held("10"))
    look = settled(slurm)
    (before,) = look()
    for _ in range(min(REREAD_LOOKS)):
        (after,) = look()
        assert after is before
    assert slurm.shown == [[10]]


@pytest.mark.parametrize(
    "hidden", [{"excluded_nodes": ("n3",)}, {"memory_per_cpu_mb": 100, "memory_per_node_mb": 0}]
)
def test_what_no_line_shows_of_a_waiting_job_is_seen_after_some_looks(hidden: dict[str, object]) -> None:
    slurm = cluster(held("10", memory_per_node_mb=100))
    look = settled(slurm)
    slurm.put(held("10", **{"memory_per_node_mb": 100, **hidden}))
    for _ in range(min(REREAD_LOOKS)):
        found = look()
    assert found == slurm.jobs()
    assert slurm.shown == [[10]]


def test_of_many_waiting_jobs_a_few_are_read_anew_at_each_look() -> None:
    slurm = cluster(*(held(str(number)) for number in range(1, 401)))
    look = settled(slurm)
    for _ in range(80):
        look()
    assert sorted(number for numbers in slurm.shown for number in numbers) == [*range(1, 401)]
    assert {len(numbers) for numbers in slurm.shown} == {5}


def test_a_job_read_anew_beside_squeue_is_read_again_if_its_line_has_changed() -> None:
    slurm = cluster(held("10"))
    changed, squeue = slurm.changed_jobs(), slurm.squeue
    while slurm.lines < 9:  # the tenth look is this job's turn
        changed.look()
    slurm.shown, answered = [], Event()

    def show_jobs(numbers: Sequence[int]) -> list[str]:
        said = slurm.show_jobs(numbers)
        answered.set()
        return said

    def late_squeue(columns: str, has_all: Callable[[], object]) -> str:
        assert answered.wait(10.0)
        slurm.put(held("10", features="ib", excluded_nodes=("n3",)))
        return squeue(columns, has_all)

    changed._show_jobs, changed._squeue = show_jobs, late_squeue
    assert in_order(changed.look()) == slurm.jobs()
    assert slurm.shown == [[10], [10]]


def test_words_of_dally_and_of_users_make_no_job_be_read_anew() -> None:
    numbers = [str(number) for number in range(10, 1000)]
    slurm = cluster(*map(held, numbers))
    look = settled(slurm)
    slurm.put(held("10", admin_comment="Dally: waits for GPUs"))
    slurm.put(*(held(each, comment=each, job_name=each, nice=7) for each in numbers[1:]))
    assert look() == slurm.jobs()
    assert [len(some) for some in slurm.shown] == [5]  # those whose turn it is
    assert slurm.full == 0


@pytest.mark.parametrize("version", VERSIONS)
def test_every_field_of_a_job_is_shown(version: tuple[int, int]) -> None:
    job = SlurmJob(
        "17_3",
        1e9,
        State.RUNNING,
        "RUNNING",
        "Priority",
        user="alice",
        account="physics",
        job_name="a name",
        qos="long",
        nice=-7,
        licenses="matlab:2",
        memory_per_node_mb=100,
        memory_per_gpu_mb=10,
        partition="gpu",
        comment="words",
        admin_comment="more words",
        min_nodes=2,
        tasks=4,
        tasks_per_node=2,
        cpus_per_task=3,
        cpus_per_node=6,
        cpus_per_gpu=5,
        tmp_disk_mb=500,
        tres_per_job="gres:gpu:4",
        tres_per_node="gres:gpu:2",
        tres_per_task="gres:gpu:1",
        tres_per_socket="gres:gpu:1",
        required_nodes=("n1", "n2"),
        excluded_nodes=("n3",),
        features="ib",
        reservation="night",
        exclusive=True,
        switches=1,
        heterogeneous=True,
        dependency="afterany:3",
        begin_s=1e9,
        deadline_s=3e9,
        time_limit_s=93_784.0,
        start_s=2e9,
        nodes=("n1", "n2"),
        gpus={"n1": 2, "n2": 1},
        requeue=False,
        restarts=1,
        exit_code=137,
        array_id="17",
        array_throttle=2,
        tres={"cpu": 6.0, "node": 2.0},
    )
    by_cpu = replace(job, memory_per_node_mb=0, memory_per_cpu_mb=100, job_id="17_4")
    waits = replace(held("18"), reason="JobHeldUser", max_nodes=2)
    tried = [job, by_cpu, waits, replace(held("19"), whole_blocks=True, requeued_held=True)]
    if version >= (25, 5):
        spreads = replace(held("20"), segment=2, spreads_segments=True)
        tried += [spreads, replace(held("21"), segment=1, consolidates_segments=True)]
    plain = SlurmJob("", 0.0, State.UNKNOWN)
    for each in fields(SlurmJob):
        if version < (25, 5) and "segment" in each.name:
            continue
        values = [getattr(one, each.name) for one in tried]
        assert any(value != getattr(plain, each.name) for value in values), f"{each.name} is not tried"
    slurm = cluster(*tried, version=version)
    look = settled(slurm)
    slurm.put(replace(job, comment="others"))
    slurm.put(replace(by_cpu, comment="others"))
    assert look() == slurm.jobs()
    assert slurm.full == 0


def test_a_job_cancelled_while_it_waited_has_tasks_like_any() -> None:
    slurm = cluster(held("10"))
    slurm.put(replace(held("11"), state=State.ENDED, state_name="CANCELLED", reason="", hold=Hold.NONE))
    changed = slurm.changed_jobs()
    for _ in range(3):
        assert in_order(changed.look()) == slurm.jobs()
    assert slurm.full == 1


@pytest.mark.parametrize("version", VERSIONS)
def test_alike_tasks_of_an_array_are_shown_one_by_one(version: tuple[int, int]) -> None:
    slurm = TextSlurm(version)
    tasks = tuple(held(f"17_{task}", array_id="17", array_throttle=2) for task in (0, 1, 4))
    slurm.records[17] = tasks
    look = settled(slurm)
    slurm.records = {17: tasks[1:], 18: (running(tasks[0], "n1"),)}
    assert look() == slurm.jobs()
    assert [job.job_id for job in look()] == ["17_0", "17_1", "17_4"]


def test_a_task_set_apart_that_is_gone_before_it_is_read_keeps_its_name() -> None:
    slurm = TextSlurm()
    tasks = tuple(held(f"17_{task}", array_id="17") for task in (0, 1))
    slurm.records[17] = tasks
    look = settled(slurm)
    slurm.records = {17: tasks[1:], 18: (running(tasks[0], "n1"),)}
    slurm.moves = [(18, ())]
    assert [job.job_id for job in look()] == ["17_0", "17_1"]


def test_jobs_are_shown_as_of_one_moment() -> None:
    slurm = cluster(running(held("7"), "n1"), held("10"))
    look = settled(slurm)
    before = slurm.jobs()
    slurm.put(held("10", comment="dally:"))
    shown = slurm.jobs()
    # Before scontrol answers, job 7 has ended and job 10 runs on the same GPUs.
    slurm.moves = [(7, ()), (10, (running(held("10", comment="dally:"), "n1"),))]
    assert look() == shown != before
    assert look() == slurm.jobs()


def test_a_job_that_runs_by_the_time_that_it_is_read_has_its_gpus_at_the_next_look() -> None:
    slurm = cluster(running(held("7"), "n1"), held("10"))
    look = settled(slurm)
    slurm.put(running(held("10"), "n2"))
    slurm.moves = [(10, (running(held("10"), "n3"),))]
    assert {job.job_id: job.nodes for job in look()}["10"] == ("n2",)
    slurm.put(running(held("10"), "n2"))
    assert look() == slurm.jobs()


def test_a_user_cannot_write_what_is_taken_for_another_field_or_job() -> None:
    slurm = cluster(running(held("7"), "n1"), held("10"))
    look = settled(slurm)
    forged = "x UserId=root(0) ExcNodeList=n1 NodeList=n2 NumNodes=1   Nodes=n9 CPU_IDs=0 Mem=0 GRES=gpu:9 "
    slurm.put(running(held("11", job_name=forged, comment="\n12|RUNNING\nJobId=7 JobName= UserId=x"), "n2"))
    slurm.put(held("12", comment="\n", job_name="\nJobId=12 JobName=", features="a NodeList=n9 "))
    assert look() == slurm.jobs()
    assert slurm.full == 0


def test_a_job_requeued_and_held_is_held_by_its_user_until_a_person_holds_it() -> None:
    slurm = cluster(held("10", restarts=1), held("11"))
    look = settled(slurm)
    requeued = held("10", restarts=2, requeued_held=True)
    slurm.put(requeued)
    assert look() == slurm.jobs()
    slurm.put(replace(requeued, reason="JobHeldAdmin", hold=Hold.ADMIN))
    slurm.now_s += REASONS_S
    assert look() == slurm.jobs()
    assert look() == slurm.jobs()


def test_a_job_held_for_its_exit_code_was_requeued_to_be_held() -> None:
    slurm = cluster(held("10", state_name="SPECIAL_EXIT", restarts=1, requeued_held=True))
    slurm.descriptions[10] = "JobHeldUser"
    assert settled(slurm)() == slurm.jobs()


def test_before_a_job_with_a_description_is_released_its_hold_is_looked_up() -> None:
    requeued = held("10", requeued_held=True)
    slurm = cluster(requeued, held("11"))
    changed = slurm.changed_jobs()
    changed.look()
    changed.look()
    slurm.put(replace(requeued, reason="JobHeldAdmin", hold=Hold.ADMIN))
    asked = slurm.full
    assert changed.held_by_administrator(["11"]) == set()
    assert slurm.full == asked
    assert changed.held_by_administrator(["10", "11"]) == {"10"}
    assert in_order(changed.look()) == slurm.jobs()


def test_a_description_that_says_no_reason_is_looked_up_once() -> None:
    waits = replace(held("10"), reason="Dependency", hold=Hold.NONE)
    slurm = cluster(held("11"))
    look = settled(slurm)
    slurm.put(waits)
    slurm.descriptions[10] = "of our own plugin: be patient"
    for _ in range(3):
        assert look() == slurm.jobs()
    assert slurm.full == 1


def test_where_scontrol_says_something_else_than_json_json_counts() -> None:
    slurm = cluster(held("10", excluded_nodes=("n3",)), held("11", excluded_nodes=("n3",)))
    changed = slurm.changed_jobs()
    show_jobs = slurm.show_jobs
    changed._show_jobs = lambda some: [said.replace("n3", "n4") for said in show_jobs(some)]
    for _ in range(3):
        assert in_order(changed.look()) == slurm.jobs()
    assert slurm.full == 3


def test_parts_of_a_heterogeneous_job_are_read_in_detail_once() -> None:
    slurm = cluster(held("10", heterogeneous=True), held("11"))
    look = settled(slurm)
    for _ in range(3):
        assert look() == slurm.jobs()
    assert (slurm.shown, slurm.full) == ([], 0)


def test_no_jobs_is_asked_for_twice() -> None:
    slurm = TextSlurm()
    assert slurm.changed_jobs().look() == {}
    assert slurm.full == 1


@pytest.mark.slow
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("seed", range(10))
def test_after_any_changes_the_view_is_what_reading_all_shows(seed: int, version: tuple[int, int]) -> None:
    random = Random(seed)
    slurm = cluster(
        *(held(str(number)) for number in range(10, 40)), running(held("7"), "n1"), version=version
    )
    look = settled(slurm)
    visible = _changes(random)
    for _ in range(40):
        for _ in range(random.choice((0, 1, 3))):
            _change(slurm, random, visible)
        shown = slurm.jobs()
        if random.random() < 0.3:
            other = random.choice([*slurm.records])
            slurm.moves = [(other, random.choice(((), (running(slurm.records[other][0], "n8"),))))]
        found = look()
        assert [replace(job, gpus={}) for job in found] == [replace(job, gpus={}) for job in shown]
    look()
    assert look() == slurm.jobs()


def _changes(random: Random) -> list[dict[str, object]]:
    """A change of each field that a line shows, of those that a waiting job has."""
    texts = (
        "user",
        "account",
        "job_name",
        "qos",
        "licenses",
        "partition",
        "comment",
        "admin_comment",
        "features",
    )
    counts = (
        "min_nodes",
        "tasks",
        "tasks_per_node",
        "cpus_per_task",
        "cpus_per_node",
        "cpus_per_gpu",
        "restarts",
    )
    assert {*texts, *counts} <= {each.name for each in fields(SlurmJob)}
    written: list[dict[str, object]] = [{name: f"{name}-{random.randrange(9)}"} for name in texts]
    counted: list[dict[str, object]] = [{name: random.randrange(2, 9)} for name in counts]
    return [
        *written,
        *counted,
        {"submit_s": 1e9 + random.randrange(9)},
        {"required_nodes": ("n4", "n5")},
        {"reservation": "dally-1"},
        {"exclusive": True},
        {"switches": 2},
        {"dependency": "afterok:3(unfulfilled)"},
        {"begin_s": 1e9 + 9},
        {"time_limit_s": 90_061.0},
        {"requeue": False},
        {"tres_per_job": "gres:gpu:h100:4"},
        {"memory_per_node_mb": 100},
        {"memory_per_gpu_mb": 10},
        {"reason": "Resources", "hold": Hold.NONE},
    ]


def _change(slurm: TextSlurm, random: Random, visible: list[dict[str, object]]) -> None:
    number = random.choice([*slurm.records])
    (job,) = slurm.records[number]
    kind = random.randrange(5)
    if kind == 0:
        slurm.put(held(str(random.randrange(40, 90))))
    elif kind == 1 and len(slurm.records) > 5:
        del slurm.records[number]
    elif job.state is not State.PENDING:
        slurm.put(
            replace(job, state=State.ENDED, state_name="FAILED", gpus={}, exit_code=random.choice((3, 137)))
        )
    elif kind == 2:
        slurm.put(running(job, f"n{random.randrange(1, 9)}"))
    else:
        slurm.put(replace(job, **random.choice(visible)))  # type: ignore[arg-type]


@pytest.mark.slurm
def test_jobs_read_by_their_lines_are_what_json_shows(local_slurm: LocalSlurm) -> None:
    world, slurm = RealWorld(local_slurm), CommandLine(local_slurm.environment)

    def compare() -> None:
        world.wait(
            lambda: [*map(compared, slurm.jobs())] == [*map(compared, by_json(slurm))], "the same jobs"
        )

    try:
        compare()
        options = ("-H", "--parsable", "--output=/dev/null", "--wrap=sleep 600")
        for more in (
            (
                "-N2",
                "--ntasks-per-node=2",
                "-c3",
                "--gres=gpu:h100:2",
                "--mem=900",
                "-xn3",
                "-t90",
                "--exclusive",
            ),
            (
                "-J odd=1 NodeList=n9",
                "--comment=one\ntwo",
                "--gpus=8",
                "--cpus-per-gpu=1",
                "-t1-3:4",
                "--nice=5",
            ),
            ("--array=0-6:2%2", "--gpus-per-task=1", "-n3", "--mem-per-cpu=50", "-N1-3", "-p", "gpu,other"),
            ("--gres=gpu:1", ":", "-N2", "--gres=gpu:2"),
            ("-J(null)", "--comment=N/A", "--gpus=1", "-pother", "--begin=now+1hour"),
        ):
            local_slurm.run("sbatch", *more, *options, user=ALICE)
        compare()
        restarted = CommandLine(local_slurm.environment)
        restarted.jobs()
        assert restarted._changed_jobs._agreed == {False}
        (plain,) = (job.job_id for job in slurm.jobs() if job.exclusive)
        task = next(job.job_id for job in slurm.jobs() if job.array_throttle)
        start(world, NODE_JOB, "n4")
        done = start(world, SubmitSpec(user=ALICE, gpus_per_node=1, run_time_s=10.0, exit_code=3), "n5")
        local_slurm.run("sbatch", "-wn7", "--output=/dev/null", "--wrap=kill -9 $$", user=ALICE)
        local_slurm.run("scancel", local_slurm.run("sbatch", *options, user=ALICE).strip())
        world.slurm.run([ReleaseOnNodes(plain, ("n1", "n2")), ReleaseOnNodes(task, ("n6",))])
        wait_state(world, task, State.RUNNING)
        wait_state(world, done, State.ENDED)
        compare()
        world.slurm.run([Requeue(plain), Requeue(task)])
        world.wait(lambda: find(world, plain).restarts == 1, "it to be back")
        wait_state(world, plain, State.PENDING)
        compare()
        assert find(world, plain).hold is Hold.USER
        local_slurm.run("scontrol", "hold", plain)
        assert "JobHeldAdmin" in str(run_one(world, ReleaseOnNodes(plain, ("n1", "n2"))))
        assert find(world, plain).hold is Hold.ADMIN
        assert slurm._changed_jobs._agreed == {True, False}
    finally:
        world.clean()


def compared(job: SlurmJob) -> SlurmJob:
    """A job without what JSON of 22.05 does not tell."""
    return replace(job, cpus_per_task=1, switches=0)


def by_json(slurm: CommandLine) -> tuple[SlurmJob, ...]:
    return in_order(slurm.read_all_jobs())
