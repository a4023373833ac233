"""Simulated jobs tell their step times as live ones do, and what that teaches is decided again the same."""

import io
import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from dally.cluster.topology import Topology
from dally.jobs.job import Job
from dally.jobs.knowledge import Known
from dally.jobs.training_plan import TrainingPlan
from dally.policies.registry import parse_policy
from dally.profiles.costs import CostModel
from dally.profiles.files import load_profiles
from dally.runs.records import EventLog
from dally.scheduling.recording.recorder import RecordedScheduler, Recording
from dally.scheduling.recording.replay import replay
from dally.scheduling.scheduler import Scheduler
from dally.state import ClusterState
from dally.testing.worlds import racks
from simulator.engine import Engine
from simulator.step_times import OBSERVED_S
from tests.dally.profiles.test_plan_iteration import cluster
from tests.dally.recording.recorded import read, refuse

CLUSTER = racks([[4, 4], [4, 4]])
AUTHOR = load_profiles("dally")
JOBS = tuple(
    Job(f"j{n}", n * 300.0, 1 + n % 7, 4000.0 + 100 * n, model=("bert-large", "vgg11", "")[n % 3])
    for n in range(24)
)
KNOWN = Known(seed=2, profile_error=1.0, learns_costs=True)


def run(
    known: Known,
    path: Path | None = None,
    policy: str = "srsf-delay",
    topology: Topology = CLUSTER,
    jobs: Sequence[Job] = JOBS,
) -> tuple[str, Scheduler]:
    """The events, and the scheduler at the end."""
    costs, spec = CostModel(topology, AUTHOR), parse_policy(policy)
    state = ClusterState(topology, costs.believed(known), known)
    if path is None:
        scheduler = Scheduler(state, spec.build(state))
    else:
        recording = Recording(path, refuse)
        scheduler = RecordedScheduler(state, spec.build(state), policy, recording)
    events = io.StringIO()
    Engine(scheduler, jobs, EventLog(events), costs=costs).run()
    if path is not None:
        recording.flush()
    return events.getvalue(), scheduler


def test_jobs_run_at_their_true_speed_whatever_is_learnt() -> None:
    events, _ = run(KNOWN)
    true = CostModel(CLUSTER, AUTHOR)
    asked = {job.job_id: job for job in JOBS}
    starts = [json.loads(line) for line in events.splitlines() if '"start"' in line]
    assert starts
    for start in starts:
        place = tuple((CLUSTER.machine_index[name], count) for name, count in start["gpus"].items())
        cost = true.cost(asked[start["job"]], place)
        assert start["slowdown"] == pytest.approx(cost.slowdown, rel=1e-3)


def test_what_is_learnt_is_nearer_to_the_truth_than_the_wrong_profiles() -> None:
    _, scheduler = run(KNOWN)
    learnt = scheduler.state.costs.learnt
    assert learnt is not None
    assert learnt.beliefs()
    assert not learnt.checks, "all jobs have left"
    error = scheduler.state.costs.error
    assert error is not None
    for belief in learnt.beliefs():
        if belief.predicted:
            wrong = error.pace(belief.model, belief.gpu_type)
            assert abs(1 - belief.pace * wrong) < abs(1 - wrong)


def test_a_job_tells_once_in_a_run_and_not_before_it_has_run_for_a_while(tmp_path: Path) -> None:
    path = tmp_path / "facts.jsonl"
    run(KNOWN, path)
    began: dict[str, float] = {}
    told: dict[str, int] = {}
    for line in read(path):
        if line.get("fact") == "start":
            began[line["job_id"]], told[line["job_id"]] = line["t"], 0
        if line.get("fact") == "steps":
            assert line["t"] >= began[line["job_id"]] + OBSERVED_S
            told[line["job_id"]] += 1
    assert set(told.values()) <= {0, 1}
    assert sum(told.values()) > 10


@pytest.mark.parametrize("policy", ["srsf-delay", "gavel", "hadar", "jps", "dally:lease_s=600"])
def test_its_recording_is_decided_again(policy: str, tmp_path: Path) -> None:
    path = tmp_path / "facts.jsonl"
    run(KNOWN, path, policy)
    found = replay(path)
    assert (found.differing, found.differences) == (0, [])
    assert any(line.get("fact") == "steps" for line in read(path))


PLANS = tuple(
    TrainingPlan.parse(f"{text},sequence=4096") for text in ("tp=4,dp=4", "dp=16,zero=3", "tp=8,pp=2")
)
PLANNED = tuple(
    Job(f"p{n}", n * 300.0, 16, 4000.0 + 100 * n, model="llama3-8b", batch=64, plan=PLANS[n % 3])
    for n in range(18)
)


@pytest.mark.parametrize("policy", ["srsf-delay", "hadar", "jps"])
@pytest.mark.parametrize("hides", [False, True])
def test_jobs_that_go_by_a_plan_learn_and_are_decided_again(policy: str, hides: bool, tmp_path: Path) -> None:
    path = tmp_path / "facts.jsonl"
    known = Known(seed=2, profile_error=0.0 if hides else 1.0, learns_costs=True, hides_profiles=hides)
    _, scheduler = run(known, path, policy, cluster(), PLANNED)
    learnt, error = scheduler.state.costs.learnt, scheduler.state.costs.error
    assert learnt is not None
    beliefs = learnt.beliefs()
    names = {"llama3-8b"} if hides else {f"llama3-8b {plan}" for plan in PLANS}
    assert {belief.model for belief in beliefs} == names
    assert {belief.predicted for belief in beliefs} == {not hides}
    if error is not None:
        wrong = {belief.gpu_type: error.pace("llama3-8b", belief.gpu_type) for belief in beliefs}
        assert all(
            abs(1 - belief.pace * wrong[belief.gpu_type]) < abs(1 - wrong[belief.gpu_type])
            for belief in beliefs
        )
    found = replay(path)
    assert (found.differing, found.differences) == (0, [])
    assert found.decisions > 0


def test_without_profiles_jobs_still_run_as_these_say_and_distance_is_learnt() -> None:
    events, scheduler = run(Known(hides_profiles=True, learns_costs=True))
    blind, _ = run(Known(hides_profiles=True))
    assert events != ""
    assert blind != ""
    costs = scheduler.state.costs
    assert costs.profiles is None
    assert costs.restart_s(JOBS[0]) == CostModel(CLUSTER, AUTHOR).restart_s(JOBS[0])


def test_nothing_of_it_is_on_record_where_nobody_learns(tmp_path: Path) -> None:
    path = tmp_path / "facts.jsonl"
    run(Known(seed=2, profile_error=0.3), path)
    first, *rest = read(path)
    assert "learnt_costs" not in first
    assert "learns_costs" not in first["knows"]
    assert all(line.get("fact") != "steps" for line in rest)
