"""Whoever's turn it is publishes the next slot: when all results are there, or it is too late for more."""

from pathlib import Path

import pytest
import torch

from workloads.forked import tracker as module
from workloads.forked.exchange import Exchange, prepare
from workloads.forked.slot import CopyResult, SlotStart, plan
from workloads.forked.tracker import OVER, Tracker
from workloads.group import Group
from workloads.progress import Progress
from workloads.settings import Backend, Fork, Settings, TrainingJob
from workloads.signals import StopRequest

SLOT = plan(SlotStart(0, (), {}, {}), [0, 1, 2], steps=30, slot_s=60.0)


class Clock:
    """A clock that only sleep moves."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def monotonic(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(module, "time", clock)
    return clock


@pytest.fixture
def exchanges(tmp_path: Path) -> list[Exchange]:
    prepare(tmp_path / "job.pt", 7)
    return [Exchange(tmp_path / "job.pt", 7, copy, {}, batch=8) for copy in range(3)]


def tracker(copy: int, exchanges: list[Exchange], tmp_path: Path, stop: StopRequest | None = None) -> Tracker:
    job = TrainingJob("digits", 30, Settings(8), Backend.GLOO, checkpoint=tmp_path / "job.pt")
    progress = Progress(job, Group(0, 1, 0, torch.device("cpu"), Backend.GLOO), 3)
    return Tracker(job, Fork(60.0), exchanges[copy], copy, 3, stop or StopRequest(), progress)


def result(copy: int) -> CopyResult:
    return CopyResult(copy, SLOT.shares[copy], 20.0, 0.5, False)


def test_the_first_copy_opens(exchanges: list[Exchange], clock: Clock, tmp_path: Path) -> None:
    assert tracker(0, exchanges, tmp_path).open((), {}) == 0
    assert clock.now_s == 1000.0
    assert exchanges[1].slot(0)[0] == SLOT


def test_another_opens_if_the_first_does_not(exchanges: list[Exchange], clock: Clock, tmp_path: Path) -> None:
    assert tracker(2, exchanges, tmp_path).open((), {}) == 0
    assert clock.now_s == pytest.approx(1010.0, abs=0.1)


def test_once_all_results_are_there_nobody_waits(
    exchanges: list[Exchange], clock: Clock, tmp_path: Path
) -> None:
    exchanges[0].publish(SLOT, {})
    for copy in (1, 2):
        exchanges[copy].hand_in(0, result(copy), {})
    mine = tracker(0, exchanges, tmp_path)
    clock.now_s += 21.0
    assert mine.follow(SLOT, result(0), {}, begun_s=1000.0) == 1
    assert clock.now_s == 1021.0
    assert mine.published
    after = exchanges[1].slot(1)[0]
    assert after.trained == ((0, 30),)
    assert after.overhead_s == pytest.approx(1.0)


def test_a_lost_copy_is_left_out_once_it_is_late(
    exchanges: list[Exchange], clock: Clock, tmp_path: Path
) -> None:
    exchanges[0].publish(SLOT, {})
    exchanges[1].hand_in(0, result(1), {})
    assert tracker(0, exchanges, tmp_path).follow(SLOT, result(0), {}, begun_s=1000.0) == 1
    assert clock.now_s == pytest.approx(1000.0 + 1.25 * 60.0 + 5.0, abs=0.1)
    after = exchanges[1].slot(1)[0]
    assert after.trained == ((0, 20),)
    assert after.shares.keys() == {0, 1}
    assert after.overhead_s == 0.0, "to wait for a lost copy is no overhead of every slot"


def test_the_next_copy_publishes_if_the_one_before_it_died_after_its_result(
    exchanges: list[Exchange], clock: Clock, tmp_path: Path
) -> None:
    exchanges[0].publish(SLOT, {})
    for copy in (0, 1):
        exchanges[copy].hand_in(0, result(copy), {})
    assert tracker(2, exchanges, tmp_path).follow(SLOT, result(2), {}, begun_s=1000.0) == 1
    assert clock.now_s == pytest.approx(1010.0, abs=0.1)


def test_a_copy_that_comes_late_goes_on_with_the_newest_slot_and_is_taken_in_again(
    exchanges: list[Exchange], clock: Clock, tmp_path: Path
) -> None:
    without = plan(SlotStart(3, ((0, 20),), {}, {}), [0, 1], steps=30, slot_s=60.0)
    exchanges[0].publish(without, {})
    assert tracker(2, exchanges, tmp_path).follow(SLOT, result(2), {}, begun_s=900.0) == 3
    exchanges[2].hand_in(3, CopyResult(2, (), 0.0, 0.0, False), {})
    exchanges[1].hand_in(3, CopyResult(1, without.shares[1], 10.0, 0.5, False), {})
    assert (
        tracker(0, exchanges, tmp_path).follow(without, CopyResult(0, (), 1.0, 0.0, False), {}, 1000.0) == 4
    )
    assert exchanges[0].slot(4)[0].shares.keys() == {0, 1, 2}


def test_who_is_asked_to_stop_tells_all_and_waits_less(
    exchanges: list[Exchange], clock: Clock, tmp_path: Path
) -> None:
    stop = StopRequest()
    stop.asked = True
    exchanges[0].publish(SLOT, {})
    asked = CopyResult(0, ((0, 1),), 1.0, 0.5, True)
    assert tracker(0, exchanges, tmp_path, stop).follow(SLOT, asked, {}, begun_s=1000.0) == 1
    assert exchanges[1].asked_to_stop()
    assert clock.now_s == pytest.approx(1010.0, abs=0.1)
    assert exchanges[1].slot(1)[0].stop


def test_a_copy_that_finds_the_files_gone_is_told_that_all_is_over(
    exchanges: list[Exchange], clock: Clock, tmp_path: Path
) -> None:
    prepare(tmp_path / "job.pt", 8)
    mine = tracker(1, exchanges, tmp_path)
    assert mine.follow(SLOT, result(1), {}, begun_s=1000.0) == OVER
