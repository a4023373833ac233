"""Managed jobs go into the journal and come back as they were, also from journals of earlier versions."""

import json
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from dally.jobs.job import Job
from dally.jobs.training_plan import TrainingPlan
from dally.state import JobHistory
from slurm_plugin.controller.job_data import in_todays_form, job_from_data, job_to_data
from slurm_plugin.controller.journal import NAME, Journal, read_managed_jobs
from slurm_plugin.controller.managed_job import (
    AnyPhase,
    IneligiblePhase,
    ManagedJob,
    Owed,
    PendingPhase,
    Refusals,
    ReleasedPhase,
    RunInterval,
    RunningPhase,
    StartingPhase,
    StoppingPhase,
    StopPurpose,
)
from slurm_plugin.request import Request

DUMP = Path(__file__).with_name("journal_schema_2.sql")
GPUS = {"n1": 4, "n2": 4}
RUN = RunInterval(6.0, 7.0, 0.5, 6.0)
PHASES: tuple[AnyPhase, ...] = (
    IneligiblePhase(1.0, "held by its user", True),
    IneligiblePhase(1.0, "could not start", until_s=9.0),
    PendingPhase(2.0, "no rack has 8 free GPUs", "rack", until_s=9.0),
    StartingPhase(3.0, "rack has 8 free GPUs", GPUS, until_s=9.0),
    RunningPhase(4.0, "rack has 8 free GPUs", GPUS, RUN),
    StoppingPhase(5.0, "others need them", GPUS, RUN, StopPurpose.PREEMPT, ("3", "4"), True, until_s=9.0),
    ReleasedPhase(6.0, "somebody released it"),
)
MANAGED = ManagedJob(
    Job("7", 5.0, 8, 100.0, gpus_per_machine=4),
    Request(model="vgg11", signal="USR1", tag="ab"),
    PHASES[0],
    JobHistory(5.0, preemptions=1),
    Refusals(2, "Resources", "so much", ("n3",), "in vain"),
    left_nodes=("n3",),
    left_s=4.0,
    submit_s=5.0,
    min_nodes=2,
    owed=Owed.REHOLD,
    stopped_for=StopPurpose.RESIZE,
)


@pytest.mark.parametrize("phase", PHASES, ids=lambda phase: phase.name)
def test_a_job_comes_back_as_it_was(phase: AnyPhase) -> None:
    for managed in (replace(MANAGED, phase=phase), ManagedJob(MANAGED.job, Request(), phase)):
        data = json.loads(json.dumps(job_to_data(managed), allow_nan=False))
        assert in_todays_form(data) is data
        assert job_from_data(data) == managed


def test_a_plan_comes_back() -> None:
    plan = TrainingPlan.parse("tp=4,pp=2,stages=3-5,recompute=yes,order=tp-pp-cp-dp,sequence=9,precision=fp8")
    managed = replace(MANAGED, job=replace(MANAGED.job, plan=plan, batch=4))
    assert job_from_data(json.loads(json.dumps(job_to_data(managed), allow_nan=False))) == managed


def test_a_job_with_facts_of_another_phase_is_refused() -> None:
    data = job_to_data(replace(MANAGED, phase=PHASES[4]))
    del data["phase"]["interval"]
    with pytest.raises(TypeError, match="interval"):
        job_from_data(data)
    data["phase"] |= {"interval": None, "level": "rack"}
    with pytest.raises(TypeError):
        job_from_data(data)


def test_a_running_job_on_gpus_that_are_not_what_it_asked_for_is_refused() -> None:
    with pytest.raises(ValueError, match="it cannot run on"):
        job_from_data(job_to_data(replace(MANAGED, phase=RunningPhase(4.0, "", {"n1": 4}, RUN))))


def test_a_journal_of_schema_2_is_read_and_brought_into_todays_form(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / NAME)) as database:
        database.executescript(DUMP.read_text())
    before = read_managed_jobs(tmp_path)
    assert {job_id: managed.phase for job_id, managed in before.items()} == {
        "2": PendingPhase(
            1030, "32 GPUs asked for, 20 are free in all; queue 2 after 8.89 GPU-hours", "network"
        ),
        "3": IneligiblePhase(1000, "held by an administrator", held=True),
        "5": RunningPhase(
            1030,
            "machine has 8 free GPUs; queue 0 after 0 GPU-seconds, waited 0 s",
            {"r0m0": 8},
            RunInterval(1030, 1030.0, 1.0, 1030.0),
        ),
        "6": StartingPhase(
            1052,
            "rack has 16 free GPUs; queue 0 after 0 GPU-seconds, waited 0 s",
            {"r1m0": 8, "r1m1": 8},
            until_s=1072.0,
        ),
    }
    assert before["2"].left_nodes == ("r0m0", "r0m1", "r1m0", "r1m1")
    for _ in range(2):
        journal = Journal(tmp_path)
        memory = journal.load()
        journal.close()
        assert (memory.managed_jobs, memory.lost) == (before, "")
    with closing(sqlite3.connect(tmp_path / NAME)) as database:
        bodies = [json.loads(body) for (body,) in database.execute("SELECT body FROM jobs")]
        assert all(isinstance(body["phase"], dict) for body in bodies)
        assert database.execute("SELECT value FROM facts WHERE name = 'schema'").fetchone() == ("3",)


OLD = {
    **{"job": {}, "request": {}, "history": {}, "phase": "pending", "reason": "why", "since_s": 1.0},
    **{"preempted_for": ["3"], "gpus": GPUS, "interval": {}, "signalled": True},
}


@pytest.mark.parametrize(
    ("old", "owed", "stopped_for", "of_phase"),
    [
        ({"rehold": True}, Owed.REHOLD, None, {"level": ""}),
        ({"rehold": True, "phase": "running"}, Owed.NOTHING, None, {"gpus": GPUS, "interval": {}}),
        ({"releasing": True, "phase": "released"}, Owed.RELEASE, None, {}),
        ({"releasing": True, "phase": "pending"}, Owed.NOTHING, None, {"level": ""}),
        ({"migrating": True}, Owed.NOTHING, StopPurpose.MIGRATE, {"level": ""}),
        ({"migrating": True, "resizing": True}, Owed.NOTHING, StopPurpose.RESIZE, {"level": ""}),
        (
            {"migrating": True, "phase": "stopping"},
            Owed.NOTHING,
            None,
            {
                **{"gpus": GPUS, "interval": {}, "preempted_for": ["3"], "signalled": True},
                "purpose": StopPurpose.MIGRATE,
            },
        ),
        ({"person_held": True, "phase": "ineligible"}, Owed.NOTHING, None, {"held": True}),
    ],
)
def test_the_booleans_of_schema_2_say_what_they_meant(
    old: dict[str, object], owed: Owed, stopped_for: StopPurpose | None, of_phase: dict[str, object]
) -> None:
    new = in_todays_form({**OLD, **old})
    assert (new["owed"], new["stopped_for"]) == (owed, stopped_for)
    everywhere = {"name", "since_s", "reason", "until_s"}
    assert {name: value for name, value in new["phase"].items() if name not in everywhere} == of_phase
