"""Copies meet in files: what is there is whole, and of two who publish a slot, the first counts."""

from pathlib import Path

import pytest
import torch

from dally.errors import InputError
from tests.workloads.forked.states import trained
from workloads.checkpoint import CheckpointError, load_checkpoint
from workloads.forked.exchange import Exchange, code_file, folder_of, prepare
from workloads.forked.slot import CopyResult, SlotStart

IDENTITY = {"model": "tiny"}
FIRST = SlotStart(0, ((0, 2),), {0: ((2, 4),), 1: ((4, 6),)}, {0: 1.5})
RESULT = CopyResult(1, ((4, 6),), 2.0, 0.5, False)


@pytest.fixture
def copies(tmp_path: Path) -> list[Exchange]:
    """Two copies of a job in `tmp_path / "job.pt"`."""
    prepare(tmp_path / "job.pt", 7)
    return [Exchange(tmp_path / "job.pt", 7, copy, IDENTITY, batch=8) for copy in (0, 1)]


def test_what_one_publishes_all_read_and_it_is_the_jobs_checkpoint(
    copies: list[Exchange], tmp_path: Path
) -> None:
    assert copies[1].newest() < 0
    assert copies[0].publish(FIRST, trained(2))
    assert copies[1].newest() == 0
    slot, state = copies[1].slot(0)
    assert slot == FIRST
    assert torch.equal(state["model"]["0.weight"], trained(2)["model"]["0.weight"])
    checkpoint = load_checkpoint(tmp_path / "job.pt", IDENTITY)
    assert checkpoint
    assert (checkpoint.step, checkpoint.samples) == (2, 16)
    assert copies[1].trained()[0] == ((0, 2),)


def test_of_two_who_publish_a_slot_the_first_counts(copies: list[Exchange], tmp_path: Path) -> None:
    stale = copies[1].newest()
    assert copies[0].publish(FIRST, trained(2))
    copies[1].newest = lambda: stale  # type: ignore[method-assign]  # it looked just before
    assert not copies[1].publish(SlotStart(0, (), {}, {}), trained(3))
    assert copies[0].slot(0)[0] == FIRST
    assert copies[0].trained()[0] == ((0, 2),)


def test_a_copy_that_was_away_cannot_turn_the_job_back(copies: list[Exchange]) -> None:
    for number in range(5):
        assert copies[0].publish(SlotStart(number, ((0, number + 1),), {}, {}), {})
    assert not copies[1].publish(SlotStart(1, ((0, 1),), {}, {}), {})
    assert copies[1].newest() == 4
    assert copies[1].trained()[0] == ((0, 5),)


def test_results_are_found_by_copy(copies: list[Exchange]) -> None:
    copies[0].publish(FIRST, trained(2))
    assert copies[0].submitted(0) == []
    copies[1].submit(0, RESULT, trained(4))
    assert copies[0].submitted(0) == [1]
    result, state = copies[0].result(0, 1)
    assert result == RESULT
    assert torch.equal(state["model"]["0.weight"], trained(4)["model"]["0.weight"])
    assert copies[0].newest() == 0, "a result is no slot"


def test_a_result_without_steps_carries_no_parameters(copies: list[Exchange]) -> None:
    copies[1].submit(0, CopyResult(1, (), 0.0, 0.0, True), trained(4))
    result, state = copies[0].result(0, 1)
    assert result.stop
    assert "model" not in state


def test_old_slots_are_removed_and_the_last_copy_removes_all(copies: list[Exchange], tmp_path: Path) -> None:
    for number in range(6):
        last = SlotStart(number, ((0, 6),), {0: (), 1: ()}, {})
        copies[0].publish(last, {})
        copies[1].submit(number, RESULT, {})
    names = sorted(path.name for path in folder_of(tmp_path / "job.pt", 7).iterdir())
    assert names == ["slot-3", "slot-3.copy-1", "slot-4", "slot-4.copy-1", "slot-5", "slot-5.copy-1"]
    copies[1].close(last, 0)
    assert not copies[0].is_over()
    copies[0].close(last, 0)
    assert copies[0].is_over()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["job.pt", "job.pt.code"]
    assert copies[1].ended_with() == 0
    copies[1].close(last, 0)  # once more, as one that comes late


def test_who_closes_sees_to_the_checkpoint_if_its_writer_died_before(
    copies: list[Exchange], tmp_path: Path
) -> None:
    copies[0].publish(FIRST, {})
    (tmp_path / "job.pt").unlink()
    copies[1].close(FIRST, 85)
    assert copies[1].trained()[0] == ((0, 2),)
    assert code_file(tmp_path / "job.pt").read_text() == "85\n"


def test_a_new_start_leaves_nothing_of_those_before_but_the_checkpoint(
    copies: list[Exchange], tmp_path: Path
) -> None:
    copies[0].publish(FIRST, {})
    copies[0].ask_to_stop()
    code_file(tmp_path / "job.pt").write_text("85\n")
    prepare(tmp_path / "job.pt", 8)
    other = Exchange(tmp_path / "job.pt", 8, 0, IDENTITY, batch=8)
    assert copies[0].is_over()
    assert other.newest() < 0
    assert not other.asked_to_stop()
    assert other.trained()[0] == ((0, 2),)
    assert not code_file(tmp_path / "job.pt").exists()


def test_a_start_whose_files_another_has_removed_says_so(copies: list[Exchange], tmp_path: Path) -> None:
    prepare(tmp_path / "job.pt", 8)
    assert copies[0].is_over()
    with pytest.raises(CheckpointError, match="another start of this job has taken"):
        copies[0].ended_with()


def test_all_hear_that_one_is_asked_to_stop(copies: list[Exchange]) -> None:
    assert not copies[1].asked_to_stop()
    copies[0].ask_to_stop()
    assert copies[0].asked_to_stop()


def test_another_jobs_files_are_refused(copies: list[Exchange], tmp_path: Path) -> None:
    copies[0].publish(FIRST, {})
    with pytest.raises(InputError, match="is of a job with model tiny, and this one has large"):
        Exchange(tmp_path / "job.pt", 7, 1, {"model": "large"}, batch=8).slot(0)


def test_files_that_vanish_are_named(copies: list[Exchange]) -> None:
    with pytest.raises(CheckpointError, match="slot-3 is gone, though the job goes on"):
        copies[0].slot(3)
