"""Where Slurm's own jobs and Dally's want the same GPUs, neither side starves: the older job first."""

from functools import partial
from pathlib import Path
from random import Random
from unittest.mock import patch

import pytest

from dally.testing.worlds import racks
from slurm_plugin.client.slurm import Reservation, State
from slurm_plugin.controller.controller import ControllerMode
from slurm_plugin.controller.managed_job import JobPhase
from slurm_plugin.controller.oldest_first import KEPT_S, OldestFirst
from slurm_plugin.controller.unavailable_gpus import claim_name, is_claim
from slurm_plugin.service.controller_inputs import cut
from tests.slurm_plugin.fake_job import SubmitSpec
from tests.slurm_plugin.worlds import FakeSite

SMALL = racks([[4, 4], [4, 4]])


def small_site(folder: Path, policy: str = "fifo") -> FakeSite:
    site = FakeSite(folder, SMALL, policy)
    site.slurm.in_order = True
    return site


def plain(site: FakeSite, **spec: object) -> str:
    """A job of Slurm's own."""
    return site.slurm.submit(SubmitSpec(held=False, **{"user": "bob", **spec}))  # type: ignore[arg-type]


@pytest.mark.parametrize("option", ["", "spreads_segments", "consolidates_segments"])
def test_younger_jobs_of_dallys_that_could_not_end_before_leave_the_nodes_of_an_older_one(
    tmp_path: Path, option: str
) -> None:
    """Also where it is Slurm's own for an option that does not change how many GPUs it asks for."""
    site = small_site(tmp_path)
    plain(site, nodes=3, gpus_per_node=4, run_time_s=100, time_limit_s=600)
    more = {option: True} if option else {}
    own = plain(site, nodes=4, gpus_per_node=4, run_time_s=100, time_limit_s=600, **more)
    site.run_to(1)
    long = site.submit(gpus_per_node=4, run_time_s=50, time_limit_s=3600)
    short = site.submit(gpus_per_node=4, run_time_s=50, time_limit_s=300)
    site.run_to(10)
    assert site.states() == {"1": "RUNNING", own: "PENDING", long: "PENDING", short: "RUNNING"}
    assert site.managed(long).phase.name is JobPhase.INELIGIBLE
    assert f"for job {own} of Slurm's own, which is older" in site.managed(long).reason
    site.run_to(150)
    assert site.states()[own] == "RUNNING"
    site.run_to(300)
    assert site.states()[long] in ("RUNNING", "COMPLETED")


def test_an_older_job_of_dallys_may_start_where_a_younger_one_of_slurms_could(tmp_path: Path) -> None:
    site = small_site(tmp_path)
    plain(site, nodes=3, gpus_per_node=4, run_time_s=100, time_limit_s=600)
    older = site.submit(gpus_per_node=4, run_time_s=50, time_limit_s=3600, begin_s=5.0)
    own = plain(site, nodes=4, gpus_per_node=4, run_time_s=100, time_limit_s=600)
    site.run_to(10)
    assert (site.states()[older], site.states()[own]) == ("RUNNING", "PENDING")


def test_younger_jobs_of_slurms_that_could_not_end_before_are_kept_from_the_nodes_of_dallys_oldest(
    tmp_path: Path,
) -> None:
    site = small_site(tmp_path)
    plain(site, nodes=1, gpus_per_node=4, run_time_s=100, time_limit_s=600)
    gang = site.submit(nodes=4, gpus_per_node=4, run_time_s=100, time_limit_s=600)
    site.run_to(1)
    plain(
        site, gpus_per_node=1, run_time_s=5, time_limit_s=5
    )  # a younger one runs: the gang may be overtaken
    site.run_to(2)
    [claim] = [each for each in site.slurm.reservations() if is_claim(each)]
    assert (claim.start_s, len(claim.nodes)) == (600.0, 4)
    long = plain(site, gpus_per_node=1, run_time_s=50, time_limit_s=3600)
    site.slurm.in_order = False
    short = plain(site, gpus_per_node=1, run_time_s=50, time_limit_s=300)
    site.run_to(20)
    assert (site.states()[long], site.states()[short]) == ("PENDING", "RUNNING")
    site.run_to(110)
    assert site.states()[gang] == "RUNNING"
    site.run_to(130)
    assert not [each for each in site.slurm.reservations() if is_claim(each)]


def test_jobs_that_cannot_want_dallys_nodes_do_not_take_the_claim_of_one_that_does(tmp_path: Path) -> None:
    machines = [machine.name for machine in SMALL.machines]
    both = dict.fromkeys(machines[:3], ("gpu", "small")) | {machines[3]: ("other",)}
    site = FakeSite(tmp_path, SMALL, "fifo", partitions=both)
    site.topology = cut(SMALL, dict.fromkeys(machines[:3], 4))
    site.restart()
    for _ in range(3):
        plain(site, gpus_per_node=4, run_time_s=100, time_limit_s=600)
    plain(site, gpus_per_node=4, partition="other", run_time_s=5000, time_limit_s=6000)
    site.run_to(1)
    for _ in range(30):  # in another partition, and without GPUs
        plain(site, gpus_per_node=4, partition="other", run_time_s=5000, time_limit_s=6000)
        plain(site, nodes=2, cpus=1)
    own = plain(site, nodes=3, gpus_per_node=4, run_time_s=100, time_limit_s=600)
    site.run_to(10)
    claim = site.controller.reconciler.conditions.oldest_first.slurms
    assert claim is not None
    assert (claim.job.job_id, {*claim.earliest.nodes}) == (own, {*machines[:3]})


def test_while_no_job_of_slurms_own_wants_gpus_nobody_looks_where_the_oldest_could_start(
    tmp_path: Path,
) -> None:
    """A new job of Dally's counts as Slurm's own until it is taken on, and one comes in most cycles."""
    site = small_site(tmp_path)
    for _ in range(5):
        site.submit(gpus_per_node=4, run_time_s=100, time_limit_s=600)
    site.run_to(1)
    site.submit(gpus_per_node=4, run_time_s=100, time_limit_s=600)
    site.slurm.submit(SubmitSpec(gpus_per_node=4, run_time_s=100))  # its user holds it
    with patch("slurm_plugin.controller.oldest_first.earliest_start") as looks:
        site.run_to(2)
    looks.assert_not_called()
    assert (site.controller.reconciler.conditions.oldest_first.ours, site.states()["5"]) == (None, "PENDING")


def waiting_gang(folder: Path) -> tuple[FakeSite, str]:
    """A gang of Dally's waits for a job without a time limit, and a younger one of Slurm's own has passed."""
    site = small_site(folder)
    plain(site, nodes=1, gpus_per_node=4, run_time_s=20_000)
    gang = site.submit(nodes=4, gpus_per_node=4, run_time_s=100, time_limit_s=600)
    site.run_to(1)
    plain(site, gpus_per_node=1, run_time_s=20_000, time_limit_s=30_000)
    site.run_to(2)
    return site, gang


def claims(site: FakeSite) -> list[Reservation]:
    return [each for each in site.slurm.reservations() if is_claim(each)]


def test_a_claim_for_a_start_at_an_unknown_time_ends_within_the_hour_without_a_controller(
    tmp_path: Path,
) -> None:
    site, gang = waiting_gang(tmp_path)
    for _ in range(12):
        site.run_to(site.now_s + 600)
        [claim] = claims(site)
        assert site.now_s < claim.end_s <= site.now_s + 3600
    assert site.states()[gang] == "PENDING"


def test_a_controller_that_starts_nothing_keeps_nothing_for_its_jobs(tmp_path: Path) -> None:
    site, _ = waiting_gang(tmp_path)
    assert claims(site)
    site.mode = ControllerMode(drain=True)
    site.restart()
    site.run_to(site.now_s + 30)
    assert not claims(site)


def test_claims_of_jobs_that_are_gone_are_taken_away_and_those_of_another_controller_left(
    tmp_path: Path,
) -> None:
    site = small_site(tmp_path)
    theirs = site.slurm.submit(SubmitSpec(gpus_per_node=4, partition="other"))
    nodes = (SMALL.machines[0].name,)
    for job in ("99", theirs):
        site.slurm.reserve(Reservation(claim_name(job, 0.0), nodes, 0.0, 3600.0), "bob")
    site.run_to(10)
    assert [each.name for each in claims(site)] == [claim_name(theirs, 0.0)]


def test_a_job_without_a_limit_claims_no_node_that_a_maintenance_takes_later(tmp_path: Path) -> None:
    site = small_site(tmp_path)
    names = [machine.name for machine in SMALL.machines]
    site.slurm.reserve(Reservation("works", (names[0],), 1e6, 2e6, maintenance=True), "root")
    plain(site, nodes=4, gpus_per_node=4, run_time_s=100, time_limit_s=600)
    site.run_to(1)
    plain(site, nodes=2, gpus_per_node=4, time_limit_s=None)
    site.run_to(10)
    claim = site.controller.reconciler.conditions.oldest_first.slurms
    assert claim is not None
    assert names[0] not in claim.earliest.nodes


def test_a_claim_lapses_once_its_job_could_have_started_and_did_not(tmp_path: Path) -> None:
    site = small_site(tmp_path, "srtf")
    stuck = plain(site, gpus=1, licenses="matlab", time_limit_s=600)  # Slurm says Resources at first
    site.run_to(1)
    rule = site.controller.reconciler.conditions.oldest_first
    site.slurm._jobs[stuck].reason = "Resources"
    seen = {job.job_id: job for job in site.slurm.jobs()}
    room = site.controller.reconciler.conditions.room
    rule.observe(seen, room, (), 1.0)
    assert rule.slurms is not None
    rule.observe(seen, room, (), 1.0 + KEPT_S)
    assert rule.slurms is None


def day(folder: Path, large_is_slurms: bool, hours: int = 4) -> str:
    """What has become of a large job of one side, where neither side's queue of small jobs runs dry."""
    site, random, large = small_site(folder), Random(1), ""
    for step in range(hours * 6):
        for mine in (False, True):
            waiting = [job for job in site.slurm.jobs() if job.state is State.PENDING]
            for _ in range(8 - sum(bool(job.comment) is mine for job in waiting)):
                gpus, run_time_s = random.choice([1, 1, 2, 4]), random.uniform(600, 1800)
                submit = site.submit if mine else partial(plain, site)
                submit(gpus_per_node=gpus, run_time_s=run_time_s, time_limit_s=1800)
        if step == 3:
            submit = partial(plain, site) if large_is_slurms else site.submit
            large = submit(nodes=4, gpus_per_node=4, run_time_s=600, time_limit_s=1200)
        site.run_to(600.0 * (step + 1))
    return site.states().get(large, "ENDED")


@pytest.mark.parametrize("large_is_slurms", [True, False])
def test_neither_side_starves_where_no_queue_runs_dry(tmp_path: Path, large_is_slurms: bool) -> None:
    assert day(tmp_path / "with", large_is_slurms) == "ENDED"
    with patch.object(OldestFirst, "observe", lambda *_: None):
        assert day(tmp_path / "without", large_is_slurms) == "PENDING"


@pytest.mark.parametrize("asks", [{"exclusive": True}, {"cpus": 16}])
def test_nothing_is_kept_for_a_job_that_jobs_without_gpus_keep_from_starting(
    tmp_path: Path, asks: dict[str, object]
) -> None:
    site = FakeSite(tmp_path, SMALL, "fifo", cpus=16.0)
    machines = [machine.name for machine in SMALL.machines]
    for name in machines[1:]:
        others = tuple(other for other in machines if other != name)
        plain(site, user="mallory", run_time_s=1e6, excluded=others)
    site.run_to(1)
    plain(site, user="mallory", nodes=3, gpus_per_node=4, time_limit_s=300, **asks)
    bobs = [site.submit(gpus_per_node=4, run_time_s=50, time_limit_s=3600) for _ in range(4)]
    site.run_to(20)
    assert {site.states()[job] for job in bobs} == {"RUNNING"}


def test_a_user_whose_claim_lapsed_has_no_other_for_an_hour(tmp_path: Path) -> None:
    site = small_site(tmp_path)
    site.slurm.start_delay_s = 1e9  # they never start, and Slurm does not say why
    for _ in range(3):
        plain(site, user="mallory", nodes=4, gpus_per_node=4, time_limit_s=300)
    site.slurm.start_delay_s = 0.0
    bobs = site.submit(gpus_per_node=4, run_time_s=50, time_limit_s=36000)
    site.live(KEPT_S - 10)
    assert site.states()[bobs] == "PENDING"
    site.live(KEPT_S + 60)
    assert site.states()[bobs] in ("RUNNING", "COMPLETED")
