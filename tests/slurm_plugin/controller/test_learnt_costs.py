"""What running jobs tell of their steps corrects what a controller believes, is shown, and survives it."""

import getpass
import json
from math import inf
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from dally.cluster.topology import Topology
from dally.profiles.files import load_profiles
from dally.scheduling.recording.replay import replay
from dally.testing.worlds import racks
from slurm_plugin.controller.journal import read_events
from slurm_plugin.request import Request, encode
from slurm_plugin.service import models_command
from slurm_plugin.service.metrics import Metrics
from slurm_plugin.service.queue_command import table
from slurm_plugin.service.report import PublishedStatus, report
from slurm_plugin.service.why_command import headline
from tests.slurm_plugin.fake_job import SubmitSpec
from tests.slurm_plugin.worlds import FakeSite

ME = getpass.getuser()
AUTHOR = load_profiles("dally")
MODEL = "resnet50"


class Telling:
    """A site whose jobs tell their step times, so many times those that its profiles say."""

    def __init__(self, folder: Path, topology: Topology | None = None, **settings: Any) -> None:
        self.folder, self.record = folder, folder / "facts.jsonl"
        settings = {"record": str(self.record), "knowledge": "limits", **settings}
        self.site = FakeSite(folder, topology or racks([[8, 8]]), "fifo", AUTHOR, **settings)

    def submit(self, gpus: int = 4, model: str = MODEL) -> str:
        asked = Request(model, progress=f"{self.folder}/%j.json")
        spec = SubmitSpec(
            comment=encode(asked),
            gpus_per_task=1,
            tasks=gpus,
            time_limit_s=86_400.0,
            user=ME,
            run_time_s=inf,
        )
        return self.site.slurm.submit(spec)

    def predicted_s(self, job: str) -> float:
        state = self.site.controller.scheduler.state
        found = state.costs.prediction(state.jobs[job].job, state.jobs[job].allocation)
        assert found is not None
        return found.iteration_s

    def tell(self, job: str, step_s: float) -> None:
        self.site.run_to(self.site.now_s + 40.0)
        said = {"time": self.site.now_s, "step_s": step_s}
        (self.folder / f"{job}.json").write_text(json.dumps(said))
        self.site.run_to(self.site.now_s + 5.0)

    def shown(self, job: str) -> dict[str, object]:
        jobs = report(self.site.controller, "fifo", ("gpu",)).jobs
        return json.loads(json.dumps(next(each for each in jobs if each["job"] == job)))  # type: ignore[no-any-return]

    def why(self, job: str) -> str:
        return "\n".join(headline(self.shown(job), self.site.now_s))


@pytest.fixture
def world(tmp_path: Path) -> Telling:
    return Telling(tmp_path)


def run_one(world: Telling, times: float) -> str:
    job = world.submit()
    world.site.run_to(world.site.now_s + 5.0)
    world.tell(job, times * world.predicted_s(job))
    return job


def test_step_times_are_learnt_from_and_shown(world: Telling) -> None:
    job = run_one(world, 1.2)
    learnt = world.site.controller.scheduler.state.costs.learnt
    assert learnt is not None
    (belief,) = learnt.beliefs()
    assert (belief.model, belief.runs, belief.jobs) == (MODEL, 1, 1)
    assert 1.05 < belief.pace < 1.2
    said = world.why(job)
    assert "resnet50 on a: profile (imported), corrected by 1 run of 1 job: computes x 1." in said
    assert "steps take" in said
    assert "slower than" not in said


@pytest.mark.parametrize("samples", [{}, {"samples": 1000.0, "batch": 32.0}])
def test_step_times_of_where_a_job_ran_before_teach_nothing(
    world: Telling, samples: dict[str, float]
) -> None:
    """A job that moves leaves its file behind, perhaps with steps of which nobody has heard yet."""
    world.site.run_to(100.0)
    job = world.submit()
    said = {"time": world.site.now_s - 1.0, "step_s": 77.0, **samples}
    (world.folder / f"{job}.json").write_text(json.dumps(said))
    world.site.run_to(world.site.now_s + 30.0)
    learnt = world.site.controller.scheduler.state.costs.learnt
    assert learnt is not None
    assert learnt.beliefs() == []
    world.tell(job, 1.2 * world.predicted_s(job))
    (belief,) = learnt.beliefs()
    assert 1 < belief.pace < 1.2


def test_a_job_slower_than_its_placement_explains_says_so_once(world: Telling) -> None:
    job = run_one(world, 6.0)
    world.tell(job, 6.5 * world.predicted_s(job))
    world.site.restart()
    world.tell(job, 6.6 * world.predicted_s(job))
    assert world.site.events("slower_than_expected") == [("slower_than_expected", job)]
    assert "slower than its placement explains: steps take" in world.why(job)
    assert any(f"{MODEL}!" in line for line in table([world.shown(job)], world.site.now_s, 120))
    status = PublishedStatus("normal")
    status.publish(report(world.site.controller, "fifo", ("gpu",)), 2.0)
    assert b"dally_slower_jobs 1.0" in Metrics(status).text()


def test_what_was_learnt_survives_a_restart_and_is_decided_again(world: Telling) -> None:
    run_one(world, 1.3)
    costs = world.site.controller.scheduler.state.costs
    assert costs.learnt is not None
    before = costs.learnt.snapshot()
    world.site.restart()
    after = world.site.controller.scheduler.state.costs.learnt
    assert after is not None
    assert after.snapshot() == before
    run_one(world, 1.3)
    assert [belief.jobs for belief in after.beliefs()] == [2]
    world.site.controller._recording.flush()  # type: ignore[union-attr]
    found = replay(world.record)
    assert (found.differing, found.differences) == (0, [])


def test_a_memory_that_makes_no_sense_is_told_and_begun_anew(world: Telling) -> None:
    run_one(world, 1.3)
    world.site.controller._journal.commit(world.site.now_s, costs={"schema": 77})
    world.site.restart()
    learnt = world.site.controller.scheduler.state.costs.learnt
    assert learnt is not None
    assert learnt.beliefs() == []
    world.site.run_to(world.site.now_s + 5.0)
    (event,) = [each for each in read_events(world.folder) if each["event"] == "learnt_costs_lost"]
    assert "schema is 77" in event["reason"]


def test_a_site_may_ignore_step_times(tmp_path: Path) -> None:
    world = Telling(tmp_path, step_times="ignore")
    job = run_one(world, 6.0)
    assert world.site.controller.scheduler.state.costs.learnt is None
    assert "slower" not in world.why(job)
    assert not world.site.events("slower_than_expected")


def test_samples_and_a_batch_tell_a_step_time_too(world: Telling) -> None:
    job = world.submit()
    world.site.run_to(world.site.now_s + 5.0)
    step_s = 1.3 * world.predicted_s(job)
    began_s = world.site.now_s
    for _ in range(4):
        world.site.run_to(world.site.now_s + 40.0)
        trained = 256 * (world.site.now_s - began_s) / step_s
        said = {"time": world.site.now_s, "samples": trained, "batch": 256}
        (world.folder / f"{job}.json").write_text(json.dumps(said))
    world.site.run_to(world.site.now_s + 5.0)
    learnt = world.site.controller.scheduler.state.costs.learnt
    assert learnt is not None
    assert learnt.checks[job].step_s == pytest.approx(step_s)


def test_models_lists_what_was_learnt(world: Telling, monkeypatch: pytest.MonkeyPatch) -> None:
    run_one(world, 1.2)
    status = PublishedStatus("normal")
    status.publish(report(world.site.controller, "fifo", ("gpu",)), 2.0)
    said = json.loads(json.dumps(status.as_data()))
    monkeypatch.setattr(models_command, "ask", lambda config, page: said)
    shown = CliRunner().invoke(models_command.command, ["--learnt"])
    assert shown.exit_code == 0, shown.output
    assert "1 run of 1 job" in shown.output
    assert MODEL in shown.output
    by_plan = {**said["learnt_costs"][0], "model": "llama3-8b tp=4,dp=2,micro=1,sequence=4096"}
    said["learnt_costs"].append(by_plan)
    named = CliRunner().invoke(models_command.command, ["--learnt", "llama3-8b"])
    assert by_plan["model"] in named.output
    assert MODEL not in named.output
    none = CliRunner().invoke(models_command.command, ["--learnt", "vgg11"])
    assert "no job has told its step times yet" in none.output


def test_what_is_learnt_without_a_profile_is_told_once_whatever_gpu_types_there_are(tmp_path: Path) -> None:
    world = Telling(tmp_path, racks([[8, 8]], ("a", "b")))
    job, _, waits = (world.submit(8, model) for model in ("unheard", "other", "unheard"))
    world.site.run_to(world.site.now_s + 5.0)
    world.tell(job, 1.0)
    learnt = world.shown(waits)["learnt"]
    assert isinstance(learnt, dict)
    assert [belief["model"] for belief in learnt["beliefs"]] == ["unheard"]
