"""Jobs that Slurm will not start, over the fake Slurm: they stop nobody, and find what they can have."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dally.policies.registry import policy_names
from dally.testing.worlds import racks
from slurm_plugin.client.block_topology import BlockTopology
from slurm_plugin.client.orders import Order, ReleaseToSlurm
from slurm_plugin.client.slurm import Hold, Partition, Reservation
from slurm_plugin.controller.failed_starts import asked_for
from slurm_plugin.controller.journal import read_events
from slurm_plugin.controller.managed_job import JobPhase
from slurm_plugin.controller.unavailable_gpus import is_claim
from tests.slurm_plugin.fake_job import SubmitSpec
from tests.slurm_plugin.worlds import FakeSite

FOUR = racks([[4, 4], [4, 4]])
HOUR_S = 3600.0


def busy(folder: Path, policy: str = "srtf", **settings: Any) -> tuple[FakeSite, list[str]]:
    """Four nodes of 4 GPUs, each with a checkpointing job of bob's."""
    site = FakeSite(folder, FOUR, policy, **settings)
    jobs = [training(site) for _ in range(4)]
    site.live(10)
    assert [site.states()[job] for job in jobs] == ["RUNNING"] * 4
    return site, jobs


def training(site: FakeSite, **more: Any) -> str:
    asked = {"gpus_per_node": 4, "user": "bob", "time_limit_s": HOUR_S, "checkpoint_exit_s": 1.0, **more}
    return site.submit("", "USR1", 20, **asked)


def short(site: FakeSite, **more: Any) -> str:
    """A job of a minute, for which policies that know it stop others."""
    return site.submit(**{"gpus_per_node": 4, "run_time_s": 30.0, "time_limit_s": 60.0, **more})


def stops(site: FakeSite) -> Counter[str]:
    """How often each job was asked for its checkpoint."""
    return Counter(job for _, job in site.events("stop"))


def refusals(site: FakeSite, job: str) -> list[dict[str, Any]]:
    """The job's starts that came to nothing."""
    return [each for each in read_events(site.folder, job) if each["event"] == "start_failed"]


@pytest.mark.parametrize("policy", policy_names())
def test_a_refused_job_stops_nobody_a_second_time(tmp_path: Path, policy: str) -> None:
    site, _ = busy(tmp_path, policy)
    bad = short(site)
    site.slurm.refuse[bad] = "Requested node configuration is not available"
    site.run_to(1000)
    lost = [each for each in read_events(tmp_path) if each["event"] == "preempt" and bad in each["by"]]
    assert len(lost) <= 1
    assert bool(lost) <= bool(refusals(site, bad))


@pytest.mark.parametrize("drained", ["r0m0", "r0m1"])
@pytest.mark.parametrize(
    "policy", [*policy_names(), "srsf-delay:lease_s=5,lease_restarts=0", "dally:lease_s=20"]
)
def test_no_job_on_a_drained_node_is_stopped(tmp_path: Path, policy: str, drained: str) -> None:
    site = FakeSite(tmp_path, racks([[4, 4]]), policy)
    running = [training(site, time_limit_s=hours * HOUR_S) for hours in (10, 9)]
    site.live(30)
    (stays,) = (job for job in running if [*site.nodes(job)] == [drained])
    site.slurm.set_node(drained, "drain")
    short(site)
    site.run_to(900)
    assert stays not in stops(site)


def test_a_job_that_slurm_does_not_change_is_tried_ever_more_rarely_whoever_ends(tmp_path: Path) -> None:
    site = FakeSite(tmp_path, FOUR, "srtf")
    stuck = short(site)
    site.slurm.refuse[stuck] = (
        "Job update not available right now, the DB index is being set, try again in a bit"
    )
    for _ in range(40):
        short(site, run_time_s=10.0)
        site.run_to(site.now_s + 50)
    assert 3 <= len(refusals(site, stuck)) <= 6  # 40 others left nodes meanwhile


@pytest.mark.parametrize("policy", ["srtf", "srsf-delay"])
def test_a_suspended_job_is_not_stopped_as_it_cannot_write_its_checkpoint(
    tmp_path: Path, policy: str
) -> None:
    site, jobs = busy(tmp_path, policy)
    site.run_to(100)
    for job in jobs:
        site.slurm.suspend(job)
    taker = short(site)
    site.run_to(150)
    assert not stops(site)
    assert site.states()[taker] == "PENDING"
    site.slurm.cancel(jobs[2])
    site.run_to(250)
    assert site.states()[taker] == "COMPLETED"


def count_releases(site: FakeSite, tried: Counter[str]) -> None:
    """Counts how often each job is ordered to be handed back to Slurm."""
    run = site.slurm.run

    def counting(orders: Sequence[Order]) -> tuple[str | None, ...]:
        tried.update(order.job_id for order in orders if isinstance(order, ReleaseToSlurm))
        return run(orders)

    site.slurm.run = counting  # type: ignore[method-assign]


def test_jobs_that_slurm_does_not_take_back_keep_no_others_from_it(tmp_path: Path) -> None:
    site, tried = FakeSite(tmp_path, FOUR), Counter[str]()
    for _ in range(250):
        site.slurm.refuse[site.submit(gpus_per_node=1, constraint="ib*2")] = "Requested node configuration"
    count_releases(site, tried)
    fine = site.submit(gpus_per_node=1, constraint="ib*2")
    site.live(60)
    assert tried[fine] == 1
    site.live(600)
    assert 2 <= max(tried.values()) <= 4  # of 120 looks


def test_an_array_that_slurm_does_not_take_back_is_tried_by_one_task_until_something_changes(
    tmp_path: Path,
) -> None:
    site, tried = FakeSite(tmp_path, FOUR), Counter[str]()
    count_releases(site, tried)
    array = site.submit(gpus_per_node=1, constraint="ib*2", user="mallory", array=tuple(range(120)))
    tasks = [f"{array}_{task}" for task in range(120)]
    site.slurm.refuse.update(dict.fromkeys(tasks, "Requested partition configuration not available now"))
    fine = [site.submit(gpus_per_node=1, constraint="ib*2", user=user) for user in ("ann", "bob")]
    site.controller.cycle()
    assert [tried[job] for job in fine] == [1, 1], "they stand before the most of the array"
    assert tried.total() <= 60
    site.live(7200, poll_s=20.0)
    assert tried.total() <= 60, "of 360 looks"

    tried.clear()
    site.slurm.update(tasks[7], time_limit_s=400.0)
    site.live(7205)
    assert tried == {tasks[7]: 1}, "what was changed is tried at once"
    site.slurm.rules = {"gpu": Partition("gpu", 300.0)}
    site.live(7300)
    assert 40 <= tried.total() <= 60, "so is all, once, when the partition was changed"

    for task in tasks[1:]:
        site.slurm.refuse.pop(task)
    site.live(12_000, poll_s=30.0)
    assert {task for task in tasks if tried[task]} == {*tasks}, "a task that is refused alone stops no others"
    assert [job for job in site.slurm.jobs() if job.job_id == tasks[1] and job.hold is Hold.NONE]


def test_more_memory_than_any_node_has_stops_nobody_at_all(tmp_path: Path) -> None:
    site, _ = busy(tmp_path, memory_mb=64_000)
    bad = short(site, memory_mb=10_000_000)
    site.live(1000)
    assert not stops(site)
    assert site.managed(bad).reason == (
        "too few nodes of its partition have the features, CPUs and memory that it asks for"
    )


def test_a_third_job_does_not_get_what_the_first_of_two_stopped_jobs_leaves(tmp_path: Path) -> None:
    site = FakeSite(tmp_path, racks([[4, 4]]), policy="srtf")
    quick = training(site)
    slow = training(site, checkpoint_exit_s=15.0)
    site.live(10)
    taker = short(site, nodes=2)
    plain = site.slurm.submit(SubmitSpec(gpus_per_node=4, held=False, run_time_s=1000.0, user="carol"))
    site.live(60)
    assert stops(site) == {quick: 1, slow: 1}
    started = [each["job"] for each in read_events(tmp_path) if each["event"] == "start"]
    assert started[:3] == [quick, slow, taker]
    assert site.states()[taker] == "COMPLETED"
    assert not refusals(site, taker)
    site.live(70)
    assert site.states()[plain] == "RUNNING"
    assert all(is_claim(each) for each in site.slurm.reservations())


def test_a_job_for_which_others_leave_at_once_starts_in_the_same_second(tmp_path: Path) -> None:
    site = FakeSite(tmp_path, racks([[4, 4]]), policy="srtf", partitions={"r0m0": ("gpu", "cpu")})
    running = [training(site, checkpoint_exit_s=0.0) for _ in range(2)]
    site.live(10)
    taker = short(site, nodes=2)
    site.live(30)
    assert set(stops(site)) == set(running)
    assert not refusals(site, taker)
    assert not site.events("order_refused")


def test_a_reservation_to_come_keeps_long_jobs_out_and_lets_short_ones_end_before(tmp_path: Path) -> None:
    site, _ = busy(tmp_path)
    nodes = ("r0m0", "r0m1", "r1m0", "r1m1")
    site.slurm.reserve(Reservation("maintenance", nodes, 1000.0, 5000.0), "root")
    long = short(site, time_limit_s=3600.0, run_time_s=100.0)
    brief = short(site, time_limit_s=300.0, run_time_s=100.0)
    site.live(300)
    assert site.states()[brief] == "COMPLETED"
    why = "too many of the nodes that it may use are in reservations before its time limit ends: maintenance"
    assert site.managed(long).reason.startswith(f"{why} from ")
    site.live(1100, poll_s=60.0)
    assert site.managed(long).reason.startswith(f"{why} until ")
    assert not refusals(site, long)
    site.live(5250, poll_s=60.0)
    assert site.states()[long] == "COMPLETED"


def test_a_licence_that_is_missing_stops_nobody_at_all(tmp_path: Path) -> None:
    site, _ = busy(tmp_path)
    for _ in range(4):
        short(site, licenses="matlab")
    site.live(1000)
    assert not stops(site)


@pytest.mark.parametrize(
    ("shares", "differs"),
    [({"licenses": "matlab"}, {}), ({"qos": "low"}, {"qos": "high"})],
    ids=["licence", "qos"],
)
def test_a_job_at_a_limit_starts_as_soon_as_one_that_shares_it_ends(
    tmp_path: Path, shares: dict[str, str], differs: dict[str, str]
) -> None:
    site = FakeSite(tmp_path, FOUR, backoff_s=1000.0)
    site.slurm.total_licenses["matlab"], site.slurm.most_gpus["low"] = 1, 4
    first = short(site, user="alice", run_time_s=50.0, **shares)
    other = short(site, user="bob", run_time_s=20.0, **differs)
    site.live(5)
    second = short(site, user="carol", run_time_s=50.0, **shares)
    site.live(40)
    assert site.states() == {first: "RUNNING", other: "COMPLETED", second: "PENDING"}
    assert len(refusals(site, second)) == ("qos" in shares), "which licences are free is known before"
    site.live(70)
    assert site.states()[second] == "RUNNING"


def test_others_at_the_same_limit_stop_nobody(tmp_path: Path) -> None:
    site, jobs = busy(tmp_path, backoff_s=1e5)
    site.slurm.most_gpus["low"] = 0
    refused = short(site, qos="low")
    site.live(100)
    assert len(refusals(site, refused)) == 1
    assert sum(stops(site).values()) == 1
    for _ in range(3):
        short(site, qos="low")
    site.live(1000)
    assert sum(stops(site).values()) == 1
    assert {site.states()[job] for job in jobs} == {"RUNNING"}


def test_no_job_is_sent_to_a_node_whose_cpus_are_used_up(tmp_path: Path) -> None:
    site = FakeSite(tmp_path, FOUR, cpus=16, start_timeout_s=20.0)
    hog = site.slurm._jobs[site.submit(gpus_per_node=1, cpus=16)]
    site.live(5)
    (node,) = hog.gpus
    jobs = [short(site, gpus_per_node=1, cpus=4, run_time_s=1000.0) for _ in range(3)]
    site.live(60)
    assert {site.states()[job] for job in jobs} == {"RUNNING"}
    assert max(len(refusals(site, job)) for job in jobs) == 0
    assert node not in {name for job in jobs for name in site.nodes(job)}


def test_nobody_is_stopped_for_gpus_of_a_node_whose_cpus_others_have(tmp_path: Path) -> None:
    site = FakeSite(tmp_path, racks([[4, 4]]), policy="srtf", cpus=16)
    site.slurm.submit(SubmitSpec(cpus=14, excluded=("r0m1",), held=False, user="carol"))
    crowded, roomy = (training(site, excluded=(other,)) for other in ("r0m1", "r0m0"))
    site.live(10)
    assert [*site.nodes(crowded), *site.nodes(roomy)] == ["r0m0", "r0m1"]
    for _ in range(2):
        short(site, cpus=12)
    site.run_to(1500)
    assert stops(site)[crowded] == 0
    assert stops(site)[roomy] > 0


@pytest.mark.parametrize("policy", policy_names())
def test_no_policy_sends_a_job_where_it_must_not_go(tmp_path: Path, policy: str) -> None:
    site = FakeSite(tmp_path, FOUR, policy, cpus=16, features={"r1m0": ("nvlink",), "r1m1": ("nvlink", "ib")})
    whole = short(site, nodes=2, gpus_per_node=1, exclusive=True, excluded=("r0m0",))
    jobs = {
        whole: {"r0m1", "r1m0", "r1m1"},
        short(site, constraint="nvlink", gpus_per_node=2): {"r1m0", "r1m1"},
        short(site, constraint="nvlink&ib"): {"r1m1"},
        short(site, excluded=("r0m0", "r1m1"), gpus_per_node=1): {"r0m1", "r1m0"},
    }
    nowhere = short(site, constraint="tpu")
    site.live(2000, poll_s=30.0)
    starts = [each for each in read_events(tmp_path) if each["event"] == "start"]
    assert {each["job"] for each in starts} == jobs.keys()
    for each in starts:
        assert each["gpus"].keys() <= jobs[each["job"]]
        if each["job"] == whole:
            assert [*each["gpus"].values()] == [4, 4], "all GPUs of its nodes, though it asks for one on each"
    assert site.managed(nowhere).phase.name is JobPhase.INELIGIBLE
    assert not [each for each in read_events(tmp_path) if each["event"] == "start_failed"]


def test_a_job_whose_cpus_an_own_job_has_goes_elsewhere_and_back(tmp_path: Path) -> None:
    site = FakeSite(tmp_path, racks([[8]]), cpus=16)
    first = site.submit(gpus_per_node=1, cpus=15, run_time_s=100.0)
    site.live(5)
    second = short(site, gpus_per_node=1, cpus=4)
    site.live(60)
    assert not refusals(site, second)
    assert site.managed(second).reason == "the nodes that it may use have no CPUs or memory left for it"
    site.live(110)
    assert (site.states()[first], site.states()[second]) == ("COMPLETED", "RUNNING")


def test_a_job_for_which_no_node_has_cpus_waits_until_one_of_them_is_left(tmp_path: Path) -> None:
    site = FakeSite(tmp_path, racks([[4, 4]]), cpus=16, start_timeout_s=20.0, backoff_s=1e4)
    site.submit(gpus_per_node=3, cpus=15, run_time_s=100.0)
    site.submit(gpus_per_node=2, cpus=16)
    site.live(5)
    job = short(site, gpus_per_node=1, cpus=4)
    site.live(90)
    assert site.managed(job).phase.name is JobPhase.INELIGIBLE
    assert site.managed(job).reason == "the nodes that it may use have no CPUs or memory left for it"
    assert not refusals(site, job)
    site.live(110)
    assert site.states()[job] == "RUNNING"


def test_a_job_that_was_changed_may_stop_others_again(tmp_path: Path) -> None:
    site, _ = busy(tmp_path, backoff_s=1e5)
    site.slurm.most_gpus["low"] = 0
    job = short(site, qos="low")
    site.live(100)
    assert site.states()[job] == "PENDING"
    site.slurm.update(job, qos="high")
    site.live(160)
    assert site.states()[job] == "COMPLETED"


def test_a_job_with_a_licence_that_once_ran_stops_others_like_any(tmp_path: Path) -> None:
    site = FakeSite(tmp_path, FOUR, "srtf")
    site.slurm.total_licenses["matlab"] = 1
    job = short(site, licenses="matlab", run_time_s=50.0)
    site.live(5)
    (node,) = site.nodes(job)
    others = [training(site) for _ in range(3)]
    site.live(10)
    assert {site.states()[other] for other in others} == {"RUNNING"}
    site.slurm.set_node(node, "down")
    site.live(60)  # a minute until what is believed of those that run is revised
    assert site.states()[job] == "RUNNING"
    assert sum(stops(site).values()) == 1


def test_a_controller_that_starts_anew_still_knows_who_was_refused(tmp_path: Path) -> None:
    site, _ = busy(tmp_path, backoff_s=50.0)
    bad = short(site)
    site.slurm.refuse[bad] = "No."
    site.live(30)
    assert sum(stops(site).values()) == 1
    site.restart()
    site.live(1000)
    assert sum(stops(site).values()) == 1


@pytest.mark.parametrize("policy", policy_names())
def test_no_policy_sends_a_job_without_a_segment_into_more_blocks_than_it_needs(
    tmp_path: Path, policy: str
) -> None:
    site = FakeSite(tmp_path, FOUR, policy)
    names = [machine.name for machine in FOUR.machines]
    site.slurm.told_blocks = BlockTopology({2: dict(zip(names, "aabb", strict=True))})
    first = [site.submit(gpus_per_node=3, run_time_s=600.0, segment=1) for _ in range(4)]
    far = site.submit(nodes=2, gpus_per_node=4, run_time_s=100.0, segment=1)
    near = site.submit(gpus=8, run_time_s=100.0)
    site.live(300)
    assert {site.states()[job] for job in first} == {"RUNNING"}
    site.run_to(3000)
    assert [refusals(site, job) for job in (far, near)] == [[], []]
    assert {site.states().get(job, "COMPLETED") for job in (*first, far, near)} == {"COMPLETED"}


def test_a_refused_job_is_left_out_longer_each_time_also_if_its_comment_changes(tmp_path: Path) -> None:
    site = FakeSite(tmp_path, FOUR, "fifo")
    bad = site.submit(gpus_per_node=4)
    site.slurm.refuse[bad] = "Resources are busy"
    for step in range(1, 40):
        site.run_to(10.0 * step)
        site.slurm.update(bad, comment=f"dally:grace_s=60 step {step}")
    assert [each["again_in_s"] for each in refusals(site, bad)] == [0.0, 0.0, 0.0, 60.0, 120.0, 240.0]


def test_a_job_that_names_another_reservation_is_another_to_slurm_and_one_in_ours_is_not(
    tmp_path: Path,
) -> None:
    site = FakeSite(tmp_path, FOUR)
    number = short(site)
    site.run_to(1)
    managed, (job,) = site.managed(number), site.slurm.jobs()
    asked = {name: asked_for(managed, replace(job, reservation=name)) for name in ("", "a", "b", "dally_1_9")}
    assert len(set(asked.values())) == 3
    assert asked["dally_1_9"] == asked[""]


def test_nodes_stay_refused_where_a_job_leaves_others(tmp_path: Path) -> None:
    site = FakeSite(tmp_path, racks([[8, 8], [8, 8]]), "fifo")
    site.slurm.set_node("r0m0", "down")
    site.submit(gpus_per_node=8, run_time_s=60.0)
    site.live(5)
    (other,) = site.nodes("1")
    site.slurm.start_delay_s = 1000.0
    refused = site.submit(nodes=2, gpus_per_node=8, run_time_s=10.0)
    site.live(50)
    nodes = site.managed(refused).refusals.nodes
    assert len(nodes) == 2
    assert other not in nodes
    site.live(80)
    assert site.states()["1"] == "COMPLETED"
    assert site.managed(refused).refusals.nodes == nodes, "its back-off is not over"
