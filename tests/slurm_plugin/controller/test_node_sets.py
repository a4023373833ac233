"""Which nodes a job may use by its own `--nodelist`, `--constraint=[a|b]` and `--switches`."""

from pathlib import Path
from typing import Any

import pytest

from dally.errors import InputError
from dally.testing.worlds import racks
from slurm_plugin.client.orders import ReleaseToSlurm
from slurm_plugin.client.slurm import Hold
from slurm_plugin.constraint import alternatives, satisfies
from slurm_plugin.controller.job_requests import release_order
from slurm_plugin.controller.managed_job import JobPhase
from slurm_plugin.request import Request, encode
from tests.slurm_plugin.fake_job import SubmitSpec
from tests.slurm_plugin.worlds import FakeSite

FOUR = racks([[4, 4], [4, 4]])
FEATURES = {"r0m0": ("a",), "r0m1": ("b",), "r1m0": ("a",), "r1m1": ("b",)}


def submit(site: FakeSite, request: Request, **spec: object) -> str:
    return site.slurm.submit(SubmitSpec(comment=encode(request), **spec))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("constraint", "each"),
    [
        ("a&b", ("a&b",)),
        ("[a|b]", ("a", "b")),
        ("ib&[a|b|c]", ("ib&a", "ib&b", "ib&c")),
        ("[a|b|a]", ("a", "b")),
    ],
)
def test_what_all_nodes_of_a_job_must_meet(constraint: str, each: tuple[str, ...]) -> None:
    assert alternatives(constraint) == each


@pytest.mark.parametrize("constraint", ["ib*2", "[a*2&b*1]", "[a|b]&[c|d]", "[a"])
def test_other_relations_between_nodes_are_not_judged(constraint: str) -> None:
    with pytest.raises(InputError, match="relates the nodes"):
        alternatives(constraint)


def test_a_constraint_of_parentheses_without_end_is_refused() -> None:
    with pytest.raises(InputError):
        satisfies(f"{'(' * 10_000}a{')' * 10_000}", frozenset("a"))


def test_a_job_gets_the_nodes_that_it_names(tmp_path: Path) -> None:
    site = FakeSite(tmp_path, FOUR, "fifo")
    job = submit(site, Request(nodes="r0m1,r1m0"), nodes=2, gpus_per_node=1)
    site.run_to(5)
    assert {*site.nodes(job)} == {"r0m1", "r1m0"}


@pytest.mark.parametrize("ran", [False, True], ids=["new", "ran-before"])
def test_a_waiting_job_gets_the_nodes_that_a_person_sets(tmp_path: Path, ran: bool) -> None:
    site = FakeSite(tmp_path, FOUR, "fifo")
    job = site.submit(gpus_per_node=4, run_time_s=500.0) if ran else ""
    site.run_to(5)
    others = [site.submit(gpus_per_node=4, run_time_s=9000.0) for _ in range(4 - ran)]
    site.run_to(20)
    if ran:
        for own in site.nodes(job):
            site.slurm.set_node(own, "drain")
        site.slurm.requeue(job)
    else:
        job = site.submit(gpus_per_node=4, run_time_s=50.0)
    site.run_to(60)
    (wanted,) = site.nodes(others[2])
    site.slurm.update(job, required_nodes=(wanted,))
    site.run_to(80)
    site.slurm.cancel(others[0])
    site.run_to(200)
    assert site.states()[job] == "PENDING"
    site.slurm.cancel(others[2])
    site.run_to(230)
    assert {*site.nodes(job)} == {wanted}
    assert not site.events("released", "start_failed")


def test_a_waiting_job_of_which_a_person_wants_more_nodes_than_it_needs_is_slurms(tmp_path: Path) -> None:
    site = FakeSite(tmp_path, FOUR, "fifo")
    for _ in range(4):
        site.submit(gpus_per_node=4, run_time_s=9000.0)
    job = site.submit(gpus_per_node=4)
    site.run_to(20)
    site.slurm.update(job, required_nodes=("r0m0", "r0m1"))
    site.run_to(40)
    (shown,) = (each for each in site.slurm.jobs() if each.job_id == job)
    assert (shown.hold, shown.required_nodes) == (Hold.NONE, ("r0m0", "r0m1"))


def test_a_job_that_names_fewer_nodes_than_it_needs_is_slurms_with_its_own_nodes(tmp_path: Path) -> None:
    site = FakeSite(tmp_path, FOUR, "fifo")
    request = Request(nodes="r0m1", switches=1)
    job = submit(site, request, nodes=2, gpus_per_node=1)
    site.slurm.update(job, required_nodes=("r0m1",))  # as sbatch told Slurm
    site.run_to(1)
    managed = site.managed(job)
    assert managed.phase.name is JobPhase.RELEASED
    shown = next(each for each in site.slurm.jobs() if each.job_id == job)
    order = release_order(shown, request, managed)
    assert order == ReleaseToSlurm(job, 2, nodes=("r0m1",), switches=1, switch_wait_s=300)


def test_a_job_that_is_handed_back_has_its_own_nodes_again(tmp_path: Path) -> None:
    site = FakeSite(tmp_path, FOUR, "fifo", partitions={"r0m1": ("gpu", "other")})
    job = submit(site, Request(nodes="r0m1"), gpus_per_node=1)
    site.run_to(5)
    site.slurm.requeue(job)
    site.slurm.hold(job, Hold.USER)
    site.slurm.update(job, partition="other")
    site.live(60)
    assert site.managed(job).phase.name is JobPhase.RELEASED
    assert {*site.nodes(job)} == {"r0m1"}
    assert site.events("released") == [("released", job)]


def test_all_nodes_of_a_job_have_the_same_one_of_its_features(tmp_path: Path) -> None:
    site = FakeSite(tmp_path, FOUR, "fifo", features=FEATURES)
    site.submit(nodes=1, gpus_per_node=4, constraint="a")
    site.run_to(1)
    job = site.submit(nodes=2, gpus_per_node=4, constraint="[a|b]")
    site.run_to(5)
    assert {*site.nodes(job)} == {"r0m1", "r1m1"}


def test_a_job_insists_on_its_switches_for_its_time(tmp_path: Path) -> None:
    site = FakeSite(tmp_path, FOUR, "fifo")
    for node in ("r0m0", "r1m0"):
        submit(site, Request(nodes=node), gpus_per_node=4)
    site.run_to(1)
    job = submit(site, Request(switches=1, switch_wait_s=60), nodes=2, gpus_per_node=4)
    site.run_to(50)
    assert site.states()[job] == "PENDING"
    site.live(70)
    assert {*site.nodes(job)} == {"r0m1", "r1m1"}


@pytest.mark.parametrize(
    ("request_", "spec", "options"),
    [
        (Request(switches=1, switch_wait_s=60), {"nodes": 3}, "--switches"),
        (Request(nodes="r0m0,r0m9"), {"nodes": 2}, "--nodelist"),
        (Request(), {"nodes": 2, "excluded": ("r0m0", "r0m1", "r1m0")}, "--exclude"),
    ],
)
def test_a_job_with_too_few_nodes_is_told_which_options_narrow_them(
    tmp_path: Path, request_: Request, spec: dict[str, Any], options: str
) -> None:
    site = FakeSite(tmp_path, FOUR, "fifo")
    job = submit(site, request_, gpus_per_node=4, **spec)
    site.run_to(30)
    assert site.managed(job).reason.endswith(f"memory that it asks for, with its {options}")


def test_a_hold_or_a_restart_does_not_make_a_job_wait_anew_for_its_switches(tmp_path: Path) -> None:
    site = FakeSite(tmp_path, FOUR, "fifo")
    for node in ("r0m0", "r1m0"):
        submit(site, Request(nodes=node), gpus_per_node=4)
    site.run_to(1)
    job = submit(site, Request(switches=1, switch_wait_s=60), nodes=2, gpus_per_node=4)
    site.run_to(10)
    site.slurm.hold(job)
    for node in ("r0m1", "r1m1"):
        site.slurm.set_node(node, "drain")  # else Slurm itself starts it as soon as it is released
    site.run_to(30)
    site.slurm.release(job)
    site.run_to(32)
    for node in ("r0m1", "r1m1"):
        site.slurm.set_node(node)
    site.live(70, [(40.0, FakeSite.restart)])
    assert {*site.nodes(job)} == {"r0m1", "r1m1"}


def test_a_job_waits_where_it_needs_only_jobs_to_leave_that_may_be_stopped(tmp_path: Path) -> None:
    site = FakeSite(tmp_path, FOUR, "srtf", features=FEATURES)
    others = [
        site.slurm.submit(SubmitSpec(held=False, gpus_per_node=4, constraint=feature)) for feature in "ab"
    ]
    site.run_to(1)
    assert [{*site.nodes(job)} for job in others] == [{"r0m0"}, {"r0m1"}]
    stoppable: dict[str, Any] = {
        "signal": "USR1",
        "checkpoint_exit_s": 1.0,
        "run_time_s": 5000.0,
        "time_limit_s": 9000.0,
    }
    for _ in range(2):
        site.submit(gpus_per_node=4, **stoppable)
    site.live(400)
    job = site.submit(nodes=2, gpus_per_node=4, constraint="[a|b]", run_time_s=10.0, time_limit_s=60.0)
    site.live(420)
    assert site.states()[job] == "PENDING"
    site.slurm.cancel(others[1])
    site.live(500)
    assert site.states()[job] == "COMPLETED"
