"""Elastic jobs in the engine: phases in which their batch is worth more or less, and resizes."""

from dataclasses import dataclass, replace
from typing import ClassVar

import pytest

from dally.jobs.job import Job, JobKind
from dally.plan import Plan, Resize, Start
from dally.policies.base import Policy
from dally.policies.registry import PolicySpec
from dally.profiles.files import ProfileSet
from dally.profiles.goodput import Batching
from dally.state import ClusterState
from dally.testing.worlds import Result, racks, simulate
from tests.dally.profiles.test_goodput import PROFILE

JOB = Job("a", 0.0, 4, 1000.0, model="cifar10", batch=400, kind=JobKind.ELASTIC, min_gpus=1, max_gpus=16)
RESIZE_S = 3.0


@dataclass(frozen=True)
class NoKnobs:
    """None."""


class Grows(Policy):
    """Starts jobs on what they asked for, and has them on eight GPUs from 300 s on."""

    name: ClassVar[str] = "grows"
    summary: ClassVar[str] = "For tests."
    source: ClassVar[str] = "none"
    knobs_type: ClassVar[type] = NoKnobs
    batching: ClassVar[Batching] = Batching.LINEAR

    def __init__(self, knobs: NoKnobs, state: ClusterState) -> None:
        self.knobs = knobs

    def decide(self, state: ClusterState, now: float) -> Plan:
        """As above."""
        if state.waiting:
            return Plan(tuple(Start(name, ((0, 4),), 0, "first") for name in state.waiting), 300.0)
        small = [name for name in state.running if state.jobs[name].allocation == ((0, 4),)]
        if now < 300 or not small:
            return Plan((), 300.0) if now < 300 else Plan()
        return Plan(tuple(Resize(name, ((0, 8),), 0, "more") for name in small))


class Stays(Grows):
    """The same without growing."""

    def decide(self, state: ClusterState, now: float) -> Plan:
        """Starts only."""
        return replace(super().decide(state, now), wakeup_s=float("inf")) if state.waiting else Plan()


def run(policy: type[Policy]) -> Result:
    spec = PolicySpec(policy.name, policy, NoKnobs())
    return simulate(spec, racks([[16]], ("t4",)), [JOB], profiles=ProfileSet("one", (PROFILE,)))


def events(result: Result, name: str) -> list[tuple[float, float]]:
    return [(event["t"], event["slowdown"]) for event in result.events if event["event"] == name]


def test_a_job_changes_its_pace_with_the_worth_of_its_batch_and_ends_as_long_after_as_asked() -> None:
    """The first quarter at 0.4, the rest at 1600 / 1900: it takes 0.625 and 0.890625 of 1.515625 parts."""
    result = run(Stays)
    [(t, slowdown)] = events(result, "pace")
    assert t == pytest.approx(625 / 1.515625, abs=1e-3)
    assert slowdown == pytest.approx(1900 / 1600 / 1.515625, abs=1e-4)
    assert result.by_job["a"].end_s == pytest.approx(1000)


def test_a_resize_costs_little_and_is_no_preemption() -> None:
    """What it has done at 300 s, the rest of the first quarter, and then all else, at three paces."""
    result = run(Grows)
    resized = events(result, "resize")
    assert [t for t, _ in resized] == [300.0]
    done = 300 / (1000 * events(result, "start")[0][1])
    first_s = (0.25 - done) * 1000 * resized[0][1]
    ends_s = 300 + RESIZE_S + first_s + 750 * events(result, "pace")[-1][1]
    record = result.by_job["a"]
    assert record.end_s == pytest.approx(ends_s, rel=1e-3)
    assert record.preemptions == 0
    assert record.restart_s == pytest.approx(RESIZE_S)
    assert record.held_gpu_s == pytest.approx(4 * 300 + 8 * (ends_s - 300), rel=1e-3)
