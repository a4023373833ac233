"""A checkpoint is the old one or the new one, whatever happens while it is written."""

import multiprocessing
import random
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from dally.errors import InputError
from workloads.checkpoint import Checkpoint, CheckpointError, load_checkpoint, save_checkpoint

IDENTITY: Mapping[str, str | float | None] = {"model": "tiny", "global_batch": 8}
ONE = Checkpoint(IDENTITY, 1, 8, {"model": {"weight": torch.ones(500_000)}})


def save_on_and_on(path: Path) -> None:
    step = 1
    while True:
        step += 1
        save_checkpoint(replace(ONE, step=step), path)


def test_what_is_saved_is_loaded(tmp_path: Path) -> None:
    path = tmp_path / "job.pt"
    assert load_checkpoint(path, IDENTITY) is None
    save_checkpoint(ONE, path)
    loaded = load_checkpoint(path, IDENTITY)
    assert loaded
    assert replace(loaded, state={}) == replace(ONE, state={})
    assert torch.equal(loaded.state["model"]["weight"], torch.ones(500_000))


def test_a_kill_while_saving_leaves_a_whole_checkpoint(tmp_path: Path) -> None:
    path = tmp_path / "job.pt"
    chance = random.Random(0)
    save_checkpoint(ONE, path)
    for _ in range(15):
        writer = multiprocessing.get_context("fork").Process(target=save_on_and_on, args=(path,))
        writer.start()
        before = path.stat().st_ino
        while path.stat().st_ino == before:
            assert writer.is_alive()
            time.sleep(0.001)
        time.sleep(chance.uniform(0, 0.02))
        writer.kill()
        writer.join()
        loaded = load_checkpoint(path, IDENTITY)
        assert loaded
        assert loaded.step > 1
    assert len(list(tmp_path.iterdir())) <= 2, "what a kill leaves behind is used again"


def test_a_full_disk_leaves_the_checkpoint_before(tmp_path: Path, short_files: None) -> None:
    path = tmp_path / "job.pt"
    small = replace(ONE, state={})
    save_checkpoint(small, path)
    with pytest.raises(CheckpointError, match=r"^checkpoint .*job\.pt cannot be written: .*File too large$"):
        save_checkpoint(ONE, path)
    assert load_checkpoint(path, IDENTITY) == small
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_that_can_neither_be_written_nor_removed_is_told(tmp_path: Path) -> None:
    (tmp_path / ".job.pt.partial").mkdir()
    with pytest.raises(CheckpointError, match=r"job\.pt cannot be written: Is a directory$"):
        save_checkpoint(ONE, tmp_path / "job.pt")


def test_a_job_with_other_settings_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "job.pt"
    save_checkpoint(ONE, path)
    with pytest.raises(InputError, match=r"job\.pt is of a job with global_batch 8, and this one has 16"):
        load_checkpoint(path, {**IDENTITY, "global_batch": 16})


@pytest.mark.parametrize("content", [b"", b"no checkpoint", b"PK\x03\x04"])
def test_a_file_that_is_no_checkpoint_is_refused(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "job.pt"
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"job\.pt is not a checkpoint of this program"):
        load_checkpoint(path, IDENTITY)


@pytest.mark.parametrize(
    "content", [{"weight": torch.ones(3)}, [1, 2], torch.ones(3), {"format": 2}, {"format": 1}]
)
def test_a_file_of_torch_that_is_no_checkpoint_is_refused(content: object, tmp_path: Path) -> None:
    path = tmp_path / "job.pt"
    torch.save(content, path)
    with pytest.raises(InputError, match=r"job\.pt is not a checkpoint of this program"):
        load_checkpoint(path, IDENTITY)
