"""An elastic job grows and shrinks by its companions, over the fake Slurm: it is never stopped for that."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from dally.errors import InputError
from dally.testing.worlds import racks
from slurm_plugin.client.slurm import Hold, Reservation
from slurm_plugin.controller.journal import read_events
from slurm_plugin.request import Request, encode
from tests.slurm_plugin.controller.test_crashes import (
    NODES,
    Story,
    cut_off,
    kill,
    orders,
    settled,
    struck,
    told,
)
from tests.slurm_plugin.fake_job import SubmitSpec
from tests.slurm_plugin.worlds import FakeSite

FOUR = racks([[1, 1, 1, 1]])
LIMIT_S = 60_000.0


@pytest.fixture
def site(tmp_path: Path) -> FakeSite:
    """Four nodes of a GPU under a policy that sizes all jobs as soon as one comes or goes; two are down."""
    site = FakeSite(tmp_path, FOUR, "elastic-scaling:interval_s=10")
    for node in ("r0m2", "r0m3"):
        site.slurm.set_node(node, "drain")
    return site


def open_all(site: FakeSite) -> None:
    """All nodes are up, and everybody has seen it."""
    for node in ("r0m2", "r0m3"):
        site.slurm.set_node(node)
    site.run_to(60)


def submit_rigid(site: FakeSite, gpus: int, run_time_s: float) -> str:
    return site.submit("", gpus_per_task=1, tasks=gpus, run_time_s=run_time_s, time_limit_s=5e4)


def submit_elastic(site: FakeSite, run_time_s: float = 1000.0, reservation: str = "") -> str:
    """A job of 1 to 4 GPUs, asked for as one."""
    spec = SubmitSpec(
        comment=encode(Request("", "USR1", 20, 1, 4)),
        gpus_per_task=1,
        checkpoint_exit_s=1.0,
        run_time_s=run_time_s,
        time_limit_s=LIMIT_S,
        reservation=reservation,
    )
    return site.slurm.submit(spec)


def submit_companion(site: FakeSite, of: str, user: str = "alice", reservation: str = "") -> str:
    """It leaves within a second of its signal."""
    spec = SubmitSpec(
        comment=encode(Request(signal="USR2", companion_of=of)),
        gpus_per_task=1,
        checkpoint_exit_s=1.0,
        time_limit_s=60.0,
        user=user,
        reservation=reservation,
    )
    return site.slurm.submit(spec)


def sizes(site: FakeSite, *jobs: str) -> list[int]:
    return [sum(site.nodes(job).values()) for job in jobs]


def test_a_job_grows_and_shrinks_without_being_stopped(site: FakeSite) -> None:
    job = submit_elastic(site)
    mate, second = submit_companion(site, job), submit_companion(site, job)
    site.run_to(10)
    assert sizes(site, job, mate) == [2, 0], "it waits till there is room"
    open_all(site)
    assert sizes(site, job, mate) == [2, 2]
    assert sum(site.managed(job).gpus.values()) == 4
    other = submit_rigid(site, 1, 50.0)
    site.run_to(80)
    assert sum(sizes(site, mate, second)) == sizes(site, other)[0] == 1, "it left, and one joined on the rest"
    site.run_to(200)
    assert sum(site.managed(job).gpus.values()) == sum(sizes(site, job, mate, second)) == 4
    assert site.managed(job).restarts == 0
    assert site.events("stop", "preempt", "fail", "order_refused") == []
    assert len(site.events("resize")) == len(site.events("companion_joins", "companion_leaves"))


@pytest.mark.parametrize("named", ["course", ""])
def test_a_companion_joins_in_the_reservation_of_its_job(site: FakeSite, named: str) -> None:
    everywhere = tuple(machine.name for machine in FOUR.machines)
    site.slurm.reserve(Reservation("course", everywhere, 0.0, 2000.0), "alice")
    job = submit_elastic(site, reservation="course")
    mate = submit_companion(site, job, reservation=named)
    site.run_to(10)
    site.submit("", gpus_per_task=1, tasks=4, reservation="course")  # while it waits, the nodes are given out
    open_all(site)
    assert sizes(site, job, mate) == [2, 2]
    assert {each.reservation for each in site.slurm.jobs()} == {"course"}


def test_its_resizes_say_why(site: FakeSite) -> None:
    job = submit_elastic(site)
    submit_companion(site, job)
    site.run_to(10)
    open_all(site)
    (event,) = [each for each in read_events(site.folder) if each["event"] == "resize"]
    assert "4 GPUs at slowdown" in event["reason"]
    assert sum(event["gpus"].values()) == 4


def test_a_job_whose_own_gpus_are_wanted_is_stopped_as_one_without_companions(site: FakeSite) -> None:
    job = submit_elastic(site)
    submit_companion(site, job)
    site.run_to(10)
    other = submit_rigid(site, 1, 500.0)
    site.run_to(30)
    assert sizes(site, job, other) == [1, 1]
    assert site.events("stop") == [("stop", job)]


def test_companions_end_with_their_job(site: FakeSite) -> None:
    job = submit_elastic(site, 100.0)
    running, waiting = submit_companion(site, job), submit_companion(site, job)
    site.run_to(10)
    open_all(site)
    assert sizes(site, running, waiting) == [2, 0]
    site.slurm.cancel(job)
    site.slurm.cancel(running)  # its ranks end as those of its job do
    site.run_to(70)
    assert [site.states()[each] for each in (job, waiting)] == ["CANCELLED", "CANCELLED"]
    assert site.controller.scheduler.state.free.total() == 4


def test_a_companion_that_has_ended_in_order_waits_for_its_job_to_run_again(site: FakeSite) -> None:
    """As when its job was asked for its checkpoint, and all ranks have ended."""
    job = submit_elastic(site)
    mate = submit_companion(site, job)
    site.run_to(10)
    open_all(site)
    site.slurm.requeue(job)
    site.run_to(60.5)
    assert site.states()[mate] == "RUNNING", "it is leaving"
    site.run_to(100)
    assert sizes(site, job, mate) == [2, 2], "it joined again"


def test_nobody_is_joined_or_ended_by_jobs_of_others(site: FakeSite) -> None:
    job = submit_elastic(site)
    mate = submit_companion(site, job, user="bob")
    site.run_to(10)
    open_all(site)
    assert site.states()[mate] == "CANCELLED"
    assert site.events("stop") == [("stop", job)], "resized by checkpoint and requeue"


def test_a_companion_that_does_not_start_is_held_again_and_its_gpus_are_for_others(site: FakeSite) -> None:
    job = submit_elastic(site)
    mate = submit_companion(site, job)
    site.run_to(10)
    site.slurm.start_delay_s = 1e6
    open_all(site)
    (shown,) = [each for each in site.slurm.jobs() if each.job_id == mate]
    assert (shown.hold, shown.required_nodes) == (Hold.USER, ())
    assert site.controller.scheduler.state.free.total() == 2
    assert sum(site.managed(job).gpus.values()) == 2


def test_a_new_controller_goes_on_with_them(site: FakeSite) -> None:
    job = submit_elastic(site)
    mate = submit_companion(site, job)
    site.run_to(10)
    site.restart()
    open_all(site)
    site.restart()
    site.run_to(70)
    assert sizes(site, job, mate) == [2, 2]
    assert len(site.events("resize")) == 1


def test_a_companion_needs_a_signal_and_the_number_of_a_job() -> None:
    with pytest.raises(InputError, match="needs a checkpoint signal"):
        Request(companion_of="17")
    with pytest.raises(InputError, match="companion-of is 'mine', must be the number of a job"):
        Request(signal="USR2", companion_of="mine")


def change_nodes(state: str) -> Callable[[FakeSite], object]:
    """Two of four nodes are drained, or are there again."""
    return lambda site: [*map(partial(site.slurm.set_node, state=state), NODES[2:])]


def start_all(site: FakeSite) -> None:
    """The elastic job, and two companions whose ranks end when those of the job do."""
    asked = encode(Request("", "USR1", 20, 8, 32))
    spec = SubmitSpec(comment=asked, gpus_per_task=1, tasks=8, checkpoint_exit_s=1.0, run_time_s=300.0)
    site.slurm.submit(replace(spec, time_limit_s=6e4))
    comment = encode(Request(signal="USR2", companion_of="1"))
    mate = SubmitSpec(comment=comment, gpus_per_task=1, checkpoint_exit_s=1.0, run_time_s=400.0)
    for _ in COMPANIONS:
        site.slurm.submit(mate)


COMPANIONS = ("2", "3")
STORY = Story(
    (
        (0.0, change_nodes("drain")),
        (0.0, start_all),
        (30.0, change_nodes("")),
        (100.0, lambda site: site.submit(gpus_per_node=8, run_time_s=50.0)),
    ),
    {"policy": "elastic-scaling:interval_s=10"},
)


@pytest.mark.slow
@pytest.mark.parametrize("strike", [kill, cut_off(0), cut_off(1)], ids=["killed", "cut off", "cut off later"])
def test_disturbed_anywhere_all_jobs_end_as_if_undisturbed(
    tmp_path: Path, strike: Callable[[FakeSite], None]
) -> None:
    """How often the companion came and went, and whether it ran at the end, may differ."""

    def ends(site: FakeSite) -> dict[str, tuple[str, int]]:
        assert settled(site)
        found = site.outcome()
        assert {found.pop(each)[0] for each in COMPANIONS} <= {"COMPLETED", "CANCELLED"}
        return found

    count = [0]

    def at(name: str) -> None:
        count[0] += orders(name)

    undisturbed = told(STORY, tmp_path, lambda site: at)
    assert undisturbed.events("companion_joins", "companion_leaves")
    assert undisturbed.outcome()["1"] == ("COMPLETED", 0)
    for step in range(1, count[0] + 1):
        with TemporaryDirectory() as folder:
            site = told(STORY, Path(folder), struck(step, strike), 15.0 * (step % 2))
            assert ends(site) == ends(undisturbed), f"disturbed at step {step} of {count[0]}"
