"""Jobs that ended are not run again by a slurmctld that was killed and came back with an older state."""

from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from slurm_plugin.controller.managed_job import ON_GPUS
from tests.slurm_plugin.fake import FakeSlurm
from tests.slurm_plugin.worlds import FakeSite


class OlderSlurm:
    """Keeps a state of slurmctld, with which it comes back later."""

    def __init__(self, slurm: FakeSlurm) -> None:
        self._slurm = slurm
        self._kept: dict[str, Any] = deepcopy({**vars(slurm), "_clock": None})

    def come_back(self, now_s: float) -> None:
        """It was killed, and has just been started."""
        clock = self._slurm._clock
        vars(self._slurm).update(self._kept, _clock=clock, booted=now_s, now_s=now_s)


def settle(site: FakeSite, cycles: int = 4) -> None:
    for _ in range(cycles):
        site.controller.cycle()
        site.now_s += 5.0


@pytest.fixture
def site(tmp_path: Path) -> FakeSite:
    return FakeSite(tmp_path)


@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.parametrize("tag", ["beef", ""])
def test_a_job_that_completed_waits_held_until_somebody_releases_it(
    site: FakeSite, restarted: bool, tag: str
) -> None:
    job = site.submit(gpus_per_node=8, run_time_s=50.0, tag=tag)
    older = OlderSlurm(site.slurm)
    site.run_to(100)
    assert site.states() == {job: "COMPLETED"}
    older.come_back(site.now_s)
    if restarted:
        site.restart()
    settle(site)
    assert site.states() == {job: "PENDING"}
    assert "it had ended (COMPLETED)" in site.managed(job).reason
    assert site.events("ended_job_is_back") == [("ended_job_is_back", job)]
    site.slurm.release(job)
    settle(site)
    assert site.states() == {job: "RUNNING"}
    assert isinstance(site.managed(job).phase, ON_GPUS)


def test_a_job_that_slurmctld_requeues_as_no_node_knows_it_is_held_too(site: FakeSite) -> None:
    """It was running when the state was kept: it is requeued with one restart more, and not held."""
    seen, unseen = (site.submit(gpus_per_node=8, run_time_s=50.0, tag=tag) for tag in ("a", "b"))
    site.run_to(10)
    older = OlderSlurm(site.slurm)
    site.run_to(100)
    older.come_back(site.now_s)
    site.slurm.requeue(unseen)
    site.controller.cycle()
    site.slurm.requeue(seen)
    settle(site, 40)
    assert site.states() == {seen: "PENDING", unseen: "PENDING"}
    for job in (seen, unseen):
        assert "it had ended (COMPLETED)" in site.managed(job).reason


def test_who_requeues_an_ended_job_by_hand_has_it_run_again(site: FakeSite) -> None:
    job = site.submit(gpus_per_node=8, run_time_s=50.0, tag="beef")
    site.run_to(100)
    site.slurm.requeue(job)
    settle(site, 40)
    assert not site.events("ended_job_is_back")
    assert len(site.events("end")) == 2


def test_a_number_that_slurm_gives_anew_is_another_job(site: FakeSite) -> None:
    before = OlderSlurm(site.slurm)
    job = site.submit(gpus_per_node=8, run_time_s=50.0, tag="beef")
    site.run_to(100)
    before.come_back(site.now_s)
    again = site.submit(gpus_per_node=8, run_time_s=50.0, tag="cafe")
    assert again == job
    settle(site)
    assert site.states() == {job: "RUNNING"}
    assert not site.events("ended_job_is_back")
