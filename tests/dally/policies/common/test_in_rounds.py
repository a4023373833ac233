"""A policy of rounds, and forked jobs on as many machines as there is room for, through whole simulations."""

from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from dally.cluster.topology import Allocation
from dally.jobs.job import Job, JobKind
from dally.policies.common.in_rounds import InRounds
from dally.policies.common.rounds import RoundTarget, RoundTargets, handed_out
from dally.policies.registry import PolicySpec
from dally.profiles.files import load_profiles
from dally.state import ClusterState, JobState
from dally.testing.properties import every_job_ends_once
from dally.testing.worlds import World, racks, simulate
from simulator.failures import Outage
from tests.simulator.test_properties import WORLDS


@dataclass(frozen=True)
class TurnKnobs:
    """None."""


class EqualTurns(InRounds):
    """Least attained service first; forked jobs on as many machines as there is room for."""

    name = "turns"
    preempt_reason = "its turn is over"
    knobs_type = TurnKnobs

    def __init__(self, knobs: TurnKnobs, state: ClusterState) -> None:
        super().__init__(360.0)

    def allocate(self, state: ClusterState, now: float) -> RoundTargets:
        found: dict[str, RoundTarget] = {}
        jobs = [job for job in state.jobs.values() if job.job.preemptible or job.job_id in state.waiting]
        with handed_out(state) as free:
            for job in sorted(jobs, key=lambda job: (job.attained_s(now), job.order)):
                place: Allocation = ()
                while level := self._level(state, job, place):
                    more = free.find(job.job.gang, level - 1)
                    assert more is not None
                    if any(machine == other for machine, _ in more for other, _ in place):
                        break
                    free.take(more)
                    place = tuple(sorted((*place, *more)))
                if place:
                    found[job.job_id] = RoundTarget(place, "its turn")
        return RoundTargets(found)

    @staticmethod
    def _level(state: ClusterState, job: JobState, place: Allocation) -> int:
        """One more than the level at which it could have more; 0 if it has enough or there is none."""
        most = job.job.max_copies if job.job.kind is JobKind.FORKED else 1
        level = state.free.lowest_level(job.job.gang) if len(place) < most else None
        enough = place and job.job.kind is not JobKind.FORKED
        return 0 if level is None or enough else level + 1

    def wait_reason(self, state: ClusterState, job: JobState, now: float, memo: object) -> str:
        return "not its turn"


TURNS = PolicySpec("turns", EqualTurns, TurnKnobs())


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(world=WORLDS)
def test_every_job_ends_once_and_no_gpu_is_held_twice(world: World) -> None:
    every_job_ends_once(TURNS, world)


def job(name: str, gpus: int, duration_s: float, submit_s: float = 0.0, **more: Any) -> Job:
    return Job(name, submit_s, gpus, duration_s, **more)


def test_jobs_take_turns_at_the_boundaries_and_whoever_keeps_its_gpus_pays_nothing() -> None:
    result = simulate(TURNS, racks([[4]]), [job("a", 4, 700.0), job("b", 4, 700.0, 100.0)])
    changes = [(e["t"], e["event"], e["job"]) for e in result.events if e["event"] in ("start", "preempt")]
    assert changes[:5] == [
        (0, "start", "a"),
        (360, "preempt", "a"),
        (360, "start", "b"),
        (720, "preempt", "b"),
        (720, "start", "a"),
    ], "at 720 s both have had 360 s, and a is the elder"
    assert result.by_job["a"].end_s == 720 + 10 + 340


def test_waits_are_told_once_each_with_their_reason() -> None:
    result = simulate(TURNS, racks([[4]]), [job("a", 4, 5000.0), job("b", 4, 300.0, 100.0)])
    waits = [(e["t"], e["job"], e["reason"]) for e in result.events if e["event"] == "wait"]
    assert waits == [(100, "b", "waits for the next round; there is one every 6 min")], (
        "a starts again at the moment b ends"
    )


def test_a_lone_job_is_looked_at_again_once_and_then_left_alone() -> None:
    result = simulate(TURNS, racks([[4]]), [job("a", 4, 1e6)])
    assert result.outcome.moments <= 4
    assert not [e for e in result.events if e["event"] == "wait"]


def test_a_wait_that_is_on_record_is_not_said_again() -> None:
    policy, topology = TURNS, racks([[4]])
    result = simulate(policy, topology, [job("a", 4, 3000.0, preemptible=False), job("b", 4, 10.0)])
    assert [e["job"] for e in result.events if e["event"] == "wait"] == ["b"]


def test_copies_of_a_forked_job_run_side_by_side_and_their_gpu_seconds_are_on_record() -> None:
    """Six hours on a V100; side by side with a P100 and a K80 it takes as long as their speeds add up to."""
    profiles = load_profiles("gavel")
    topology = racks([[1, 1, 1]], ("k80", "p100", "v100"))
    request = job("f", 1, 21_600.0, model="resnet-50", kind=JobKind.FORKED, max_copies=3)
    result = simulate(TURNS, topology, [request], profiles=profiles)
    record, start = result.by_job["f"], result.events[1]
    assert start["gpus"] == {"r0m0": 1, "r0m1": 1, "r0m2": 1}
    assert start["slowdown"] < 1
    assert record.run_s == pytest.approx(21_600 * start["slowdown"], rel=1e-4)
    assert record.gpu_s == pytest.approx(3 * record.run_s)


def test_a_machine_that_fails_takes_the_job_of_its_copy_back_to_the_last_checkpoint() -> None:
    request = job("f", 1, 9000.0, kind=JobKind.FORKED, max_copies=3)
    result = simulate(TURNS, racks([[1, 1, 1]]), [request], [Outage(700.0, 1, 800.0)], checkpoint_s=600.0)
    record = result.by_job["f"]
    assert record.lost_s == pytest.approx(3 * 700 - 1800)
    starts = [[*e["gpus"]] for e in result.events if e["event"] in ("start", "migrate")]
    assert starts == [["r0m0", "r0m1", "r0m2"], ["r0m0", "r0m2"], ["r0m0", "r0m1", "r0m2"]]
