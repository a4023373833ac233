"""A machine's clock that jumps: for a moment, for good, and while no controller runs."""

from pathlib import Path

import pytest

from slurm_plugin.controller.managed_job import RunningPhase
from slurm_plugin.controller.wall_clock import JUMP_S, LASTS_S, WallClock
from tests.slurm_plugin.daemons import DaemonSite

HOUR_S = 3600.0
HOUR_OFF = pytest.mark.parametrize("ahead_s", [HOUR_S, -HOUR_S])


class Machine:
    """Its two clocks."""

    def __init__(self) -> None:
        self.passed_s, self.ahead_s = 5.0, 10_000.0

    def clock(self, last_s: float = 0.0) -> WallClock:
        return WallClock(last_s, lambda: self.passed_s + self.ahead_s, lambda: self.passed_s)


@HOUR_OFF
def test_a_jump_of_six_seconds_is_not_followed(ahead_s: float) -> None:
    machine = Machine()
    clock = machine.clock()
    for second in range(60):
        machine.passed_s += 1.0
        machine.ahead_s = 10_000.0 + (ahead_s if 10 <= second < 16 else 0.0)
        assert clock() == machine.passed_s + 10_000.0
        assert clock.follow() == 0.0


@HOUR_OFF
def test_a_jump_that_lasts_is_followed_once_when_asked_for(ahead_s: float) -> None:
    machine = Machine()
    clock = machine.clock()
    machine.ahead_s += ahead_s
    clock()
    machine.passed_s += LASTS_S - 1
    assert clock.follow() == 0.0
    machine.passed_s += 1
    assert clock.follow() == ahead_s
    assert clock() == machine.passed_s + machine.ahead_s
    assert (clock.follow(), clock.jump_s) == (0.0, 0.0)


def test_small_steps_are_followed_and_never_back() -> None:
    machine = Machine()
    clock, seen = machine.clock(), list[float]()
    for step_s in (2.0, -1.0, -20.0, 20.0, -JUMP_S + 1, 0.5):
        machine.passed_s, machine.ahead_s = machine.passed_s + 1.0, machine.ahead_s + step_s
        seen.append(clock())
        clock = machine.clock(seen[-1])
    assert seen == sorted(seen)
    machine.passed_s += JUMP_S
    assert clock() == machine.passed_s + machine.ahead_s


def test_a_journal_of_the_future_is_not_believed() -> None:
    machine = Machine()
    assert machine.clock(last_s=machine.passed_s + machine.ahead_s + HOUR_S)() == machine.passed_s + 10_000.0


@HOUR_OFF
def test_a_wrong_clock_at_the_start_is_forgotten(tmp_path: Path, ahead_s: float) -> None:
    site = DaemonSite(tmp_path)
    began_s = site.now_s = 10_000.0
    site.ahead_s = ahead_s
    later = site.submit(gpus_per_node=8, begin_s=site.now_s + 1800.0)
    running = site.submit(gpus_per_node=8, run_time_s=7200.0, nodes=2)

    def six_seconds() -> None:
        site.now_s += 6.0

    def right_again() -> None:
        site.ahead_s = 0.0
        assert site.states() == {later: "PENDING", running: "RUNNING"} or ahead_s > 0

    def a_minute() -> None:
        site.now_s += 60.0

    site.run(six_seconds, right_again, a_minute, a_minute)
    assert len(site.events("clock_jumped")) == len(site.events("clock_followed")) == 1
    assert site.daemon is not None
    assert site.daemon._clock() == site.now_s
    controller = site.daemon._controller
    assert controller is not None
    phase = controller.reconciler.managed_jobs[running].phase
    assert isinstance(phase, RunningPhase)
    assert began_s <= phase.interval.since_s <= began_s + 10
    assert controller.scheduler.state.jobs[running].run_s(site.now_s) <= site.now_s - began_s


def test_a_begin_time_counts_by_the_right_clock_after_a_start_an_hour_ahead(tmp_path: Path) -> None:
    """The journal was written an hour ahead; the next controller's clock is right."""
    site = DaemonSite(tmp_path)
    site.ahead_s = HOUR_S
    running = site.submit(gpus_per_node=8, run_time_s=7200.0)
    site.run(lambda: None)
    site.ahead_s = 0.0
    later = site.submit(gpus_per_node=8, begin_s=site.now_s + 600.0)
    seen: list[str] = []

    def pass_by() -> None:
        site.now_s += 250.0
        seen.append(site.states()[later])

    site.run(*[pass_by] * 4)
    assert seen == ["PENDING", "PENDING", "PENDING", "RUNNING"]
    assert [event["by_s"] for event in site.events("clock_followed")] == [-HOUR_S]
    assert site.states()[running] == "RUNNING"
    assert site.daemon is not None
    assert site.daemon._controller is not None
    state = site.daemon._controller.scheduler.state.jobs[running]
    assert state.run_s(site.now_s) == pytest.approx(site.now_s - 1000.0, abs=20.0)
