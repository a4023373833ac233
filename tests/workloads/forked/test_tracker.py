"""Whoever's turn it is publishes the next slot: when all results are there, or it is too late for more."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.optim import Adam, Optimizer

from tests.workloads.forked.states import MOMENTUM, trained
from workloads.forked import tracker as module
from workloads.forked.exchange import Exchange, prepare
from workloads.forked.slot import CopyResult, SlotStart, plan
from workloads.forked.tracker import OVER, Tracker, average, consolidate
from workloads.group import Group
from workloads.progress import Progress
from workloads.settings import Backend, Fork, Settings, TrainingJob
from workloads.stopping import StopRequest

SLOT = plan(SlotStart(0, (), {}, {}), [0, 1, 2], steps=30, slot_s=60.0)


class TrackerClock:
    """A clock that only sleep moves."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def monotonic(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> TrackerClock:
    clock = TrackerClock()
    monkeypatch.setattr(module, "time", clock)
    return clock


@pytest.fixture
def exchanges(tmp_path: Path) -> list[Exchange]:
    prepare(tmp_path / "job.pt", 7)
    return [Exchange(tmp_path / "job.pt", 7, copy, {}, batch=8) for copy in range(3)]


def tracker(copy: int, exchanges: list[Exchange], tmp_path: Path, stop: StopRequest | None = None) -> Tracker:
    job = TrainingJob("digits", 30, Settings(8), Backend.GLOO, checkpoint=tmp_path / "job.pt")
    progress = Progress(job, Group(0, 1, torch.device("cpu"), Backend.GLOO), 3)
    return Tracker(job, Fork(60.0), exchanges[copy], copy, 3, stop or StopRequest(), progress)


def result(copy: int) -> CopyResult:
    return CopyResult(copy, SLOT.shares[copy], 20.0, 0.5, False)


def test_the_first_copy_opens(exchanges: list[Exchange], clock: TrackerClock, tmp_path: Path) -> None:
    assert tracker(0, exchanges, tmp_path).open((), {}) == 0
    assert clock.now_s == 1000.0
    assert exchanges[1].slot(0)[0] == SLOT


def test_another_opens_if_the_first_does_not(
    exchanges: list[Exchange], clock: TrackerClock, tmp_path: Path
) -> None:
    assert tracker(2, exchanges, tmp_path).open((), {}) == 0
    assert clock.now_s == pytest.approx(1010.0, abs=0.1)


def test_once_all_results_are_there_nobody_waits(
    exchanges: list[Exchange], clock: TrackerClock, tmp_path: Path
) -> None:
    exchanges[0].publish(SLOT, {})
    for copy in (1, 2):
        exchanges[copy].submit(0, result(copy), {})
    mine = tracker(0, exchanges, tmp_path)
    clock.now_s += 21.0
    assert mine.follow(SLOT, result(0), {}, begun_s=1000.0) == 1
    assert clock.now_s == 1021.0
    assert mine.published
    after = exchanges[1].slot(1)[0]
    assert after.trained == ((0, 30),)
    assert after.overhead_s == pytest.approx(1.0)


def test_a_lost_copy_is_left_out_once_it_is_late(
    exchanges: list[Exchange], clock: TrackerClock, tmp_path: Path
) -> None:
    exchanges[0].publish(SLOT, {})
    exchanges[1].submit(0, result(1), {})
    assert tracker(0, exchanges, tmp_path).follow(SLOT, result(0), {}, begun_s=1000.0) == 1
    assert clock.now_s == pytest.approx(1000.0 + 1.25 * 60.0 + 5.0, abs=0.1)
    after = exchanges[1].slot(1)[0]
    assert after.trained == ((0, 20),)
    assert after.shares.keys() == {0, 1}
    assert after.overhead_s == 0.0, "to wait for a lost copy is no overhead of every slot"


def test_the_next_copy_publishes_if_the_one_before_it_died_after_its_result(
    exchanges: list[Exchange], clock: TrackerClock, tmp_path: Path
) -> None:
    exchanges[0].publish(SLOT, {})
    for copy in (0, 1):
        exchanges[copy].submit(0, result(copy), {})
    assert tracker(2, exchanges, tmp_path).follow(SLOT, result(2), {}, begun_s=1000.0) == 1
    assert clock.now_s == pytest.approx(1010.0, abs=0.1)


def test_a_copy_that_comes_late_goes_on_with_the_newest_slot_and_is_taken_in_again(
    exchanges: list[Exchange], clock: TrackerClock, tmp_path: Path
) -> None:
    without = plan(SlotStart(3, ((0, 20),), {}, {}), [0, 1], steps=30, slot_s=60.0)
    exchanges[0].publish(without, {})
    assert tracker(2, exchanges, tmp_path).follow(SLOT, result(2), {}, begun_s=900.0) == 3
    exchanges[2].submit(3, CopyResult(2, (), 0.0, 0.0, False), {})
    exchanges[1].submit(3, CopyResult(1, without.shares[1], 10.0, 0.5, False), {})
    assert (
        tracker(0, exchanges, tmp_path).follow(without, CopyResult(0, (), 1.0, 0.0, False), {}, 1000.0) == 4
    )
    assert exchanges[0].slot(4)[0].shares.keys() == {0, 1, 2}


def test_who_is_asked_to_stop_tells_all_and_waits_less(
    exchanges: list[Exchange], clock: TrackerClock, tmp_path: Path
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
    exchanges: list[Exchange], clock: TrackerClock, tmp_path: Path
) -> None:
    prepare(tmp_path / "job.pt", 8)
    mine = tracker(1, exchanges, tmp_path)
    assert mine.follow(SLOT, result(1), {}, begun_s=1000.0) == OVER


def test_everything_is_averaged_by_weight_and_counts_are_added() -> None:
    before, one, more = trained(0), trained(1), trained(3)
    averaged = average([one, more], [0.25, 0.75], before)
    for name in ("0.weight", "1.weight", "1.running_mean", "1.running_var"):
        wanted = 0.25 * one["model"][name] + 0.75 * more["model"][name]
        assert torch.allclose(averaged["model"][name], wanted)
        assert not torch.equal(one["model"][name], more["model"][name])
    assert averaged["model"]["1.num_batches_tracked"] == 4
    first = averaged["optimizer"]["state"][0]["momentum_buffer"]
    parts = [state["optimizer"]["state"][0]["momentum_buffer"] for state in (one, more)]
    assert torch.allclose(first, 0.25 * parts[0] + 0.75 * parts[1])
    assert averaged["optimizer"]["param_groups"] == one["optimizer"]["param_groups"]


@pytest.mark.parametrize("make", [MOMENTUM, Adam])
def test_a_copy_alone_is_its_own_average_to_the_bit(make: Callable[..., Optimizer]) -> None:
    alone = trained(3, make)
    averaged = average([alone], [1.0], trained(0, make))
    assert averaged["model"].keys() == alone["model"].keys()
    for name, tensor in alone["model"].items():
        assert torch.equal(averaged["model"][name], tensor)
    for number, moments in alone["optimizer"]["state"].items():
        for name, tensor in moments.items():
            assert torch.equal(averaged["optimizer"]["state"][number][name], tensor)


def test_copies_weigh_as_much_as_they_have_done_and_those_without_a_step_nothing() -> None:
    before, one, more = trained(0), trained(1), trained(3)
    results = [
        (CopyResult(0, ((0, 1),), 1.0, 0.5, False), one),
        (CopyResult(1, (), 0.0, 0.0, False), {}),
        (CopyResult(2, ((1, 4),), 1.0, 0.5, False), {**more, "result": {}}),
    ]
    state = consolidate(results, {**before, "slot": {}})
    assert state.keys() == {"model", "optimizer"}
    wanted = average([one, more], [0.25, 0.75], before)
    assert torch.equal(state["model"]["0.weight"], wanted["model"]["0.weight"])
    assert torch.equal(consolidate(results[1:2], before)["model"]["0.weight"], before["model"]["0.weight"])


def test_an_average_trains_on() -> None:
    first = nn.Linear(2, 3)
    module = nn.Sequential(first, nn.BatchNorm1d(3))
    optimizer = MOMENTUM(module.parameters())
    state = average([trained(1), trained(3)], [0.5, 0.5], trained(0))
    module.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    before = first.weight.detach().clone()
    module(torch.rand(4, 2)).square().sum().backward()
    optimizer.step()
    assert not torch.equal(before, first.weight)
