"""An answer of squeue that lacks jobs is not believed at once; jobs that are really gone soon are gone."""

from pathlib import Path

import pytest

from slurm_plugin.client.slurm import SlurmJob
from slurm_plugin.controller.vanished_jobs import GONE_S
from slurm_plugin.request import Request, encode
from tests.slurm_plugin.fake_job import SubmitSpec
from tests.slurm_plugin.worlds import FakeSite


@pytest.fixture
def site(tmp_path: Path) -> FakeSite:
    """Two jobs run, one of them with a companion that waits, and a third waits for GPUs."""
    site = FakeSite(tmp_path, policy="fifo", backoff_s=1000.0)
    elastic = SubmitSpec(comment=encode(Request("", "USR1", 20, 4, 8)), gpus_per_node=8, run_time_s=2000.0)
    of = site.slurm.submit(elastic)
    companion = encode(Request(signal="USR2", companion_of=of))
    site.slurm.submit(SubmitSpec(comment=companion, gpus_per_node=4, run_time_s=2000.0))
    site.submit(nodes=3, gpus_per_node=8, run_time_s=2000.0)
    site.submit(gpus_per_node=8, run_time_s=2000.0)
    site.run_to(100)
    return site


def lacking(site: FakeSite, monkeypatch: pytest.MonkeyPatch, *missing: str) -> None:
    """Slurm's answers lack these jobs."""
    whole = site.slurm.jobs

    def jobs() -> tuple[SlurmJob, ...]:
        return tuple(job for job in whole() if job.job_id not in missing)

    monkeypatch.setattr(site.slurm, "jobs", jobs)


def settle(site: FakeSite, seconds: float) -> None:
    for _ in range(2):
        site.controller.cycle()
        site.now_s += seconds / 2
    site.controller.cycle()


@pytest.mark.parametrize("missing", [("1", "2", "3", "4"), ("1",), ("4",)], ids=["all", "its job", "waiting"])
@pytest.mark.parametrize("at_start", [False, True])
def test_a_short_answer_begins_nothing_anew(
    site: FakeSite, monkeypatch: pytest.MonkeyPatch, missing: tuple[str, ...], at_start: bool
) -> None:
    before, states = site.events(), site.states()
    service_s = site.controller.scheduler.state.jobs["1"].run_s(100)
    with monkeypatch.context() as short:
        lacking(site, short, *missing)
        if at_start:
            site.restart()
            monkeypatch.setattr(site, "sleep", lambda seconds: short.undo())  # it is whole the next time
            site.controller._sleep = site.sleep
        settle(site, 0.0 if at_start else GONE_S - 1)
    settle(site, GONE_S)
    assert [event for event in site.events() if event[0] in ("end", "submit")] == [
        event for event in before if event[0] in ("end", "submit")
    ]
    assert site.states() == states
    assert site.controller.scheduler.state.jobs["1"].run_s(site.now_s) >= service_s + site.now_s - 100


def test_a_job_that_is_gone_counts_as_gone_after_a_while(
    site: FakeSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    lacking(site, monkeypatch, "3", "4")
    settle(site, GONE_S)
    assert site.events("end") == [("end", "3"), ("end", "4")]
    assert not {"3", "4"} & site.controller.reconciler.managed_jobs.keys()


def test_a_job_that_ended_has_ended_at_once(site: FakeSite) -> None:
    site.slurm.cancel("3")
    site.controller.cycle()
    assert site.events("end") == [("end", "3")]
