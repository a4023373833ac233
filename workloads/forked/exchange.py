"""The files by which the copies of a job meet, in a folder beside its checkpoint that all of them share.

A copy submits its result; the first that can publishes what follows from all results, which is a checkpoint
of the job. A file appears whole or not at all, and a second one of the same slot not at all. So copies need
no leader: any may be lost at any moment, and all go on from the same, whichever of them publishes.
"""

import os
import shutil
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from dally.atomic_file import write_atomically
from workloads.checkpoint import Checkpoint, CheckpointError, load_checkpoint, save_checkpoint, sync_folder
from workloads.checkpoint_owner import taken_over
from workloads.forked.ranges import Ranges, size
from workloads.forked.slot import CopyResult, SlotStart

_KEPT = 2
"""Slots before the newest one whose files stay: a copy that is late may be reading them."""

_CHECK_S = 0.5
"""How often a training copy checks whether another was asked to stop."""

Identity = Mapping[str, str | float | None]


def prepare(file: Path, start: int) -> None:
    """Make the folder of one start of a job, and remove what is left of those before."""
    shutil.rmtree(_slots(file), ignore_errors=True)
    code_file(file).unlink(missing_ok=True)
    folder_of(file, start).mkdir(parents=True)


def folder_of(file: Path, start: int) -> Path:
    """Where the copies of one start of a job meet."""
    return _slots(file) / str(start)


def code_file(file: Path) -> Path:
    """Where it says how the job ended, as an exit code: launchers tell the worst of all copies' instead."""
    return file.with_name(f"{file.name}.code")


def _slots(file: Path) -> Path:
    return file.with_name(f".{file.name}.slots")


class Exchange:
    """One copy's hold on the files.

    Args:
        file: The job's checkpoint.
        start: A number of this start of the job.
        copy: This copy's number.
        identity: What must be the same in all checkpoints of the job.
        batch: Samples of a step.
    """

    def __init__(self, file: Path, start: int, copy: int, identity: Identity, batch: int) -> None:
        self._file, self._folder = file, folder_of(file, start)
        self._copy, self._identity, self._batch = copy, identity, batch
        self._checked_s, self._stopping = float("-inf"), False

    def trained(self) -> tuple[Ranges, Mapping[str, Any]]:
        """What the job's checkpoint has: its batches and its state, which is empty if there is none."""
        checkpoint = load_checkpoint(self._file, self._identity)
        if checkpoint is None:
            return (), {}
        return SlotStart(**checkpoint.state["slot"]).trained, checkpoint.state

    def submit(self, slot: int, result: CopyResult, state: Mapping[str, Any]) -> None:
        """Leave this copy's result, and the state after it."""
        content = {**state, "result": asdict(result)} if result.steps else {"result": asdict(result)}
        self._save(self._path(slot, self._copy), result.trained, content)

    def submitted(self, slot: int) -> list[int]:
        """The copies that have submitted a result."""
        names = (path.name for path in self._folder.glob(f"slot-{slot}.copy-*"))
        return sorted(int(name.rpartition("-")[2]) for name in names)

    def result(self, slot: int, copy: int) -> tuple[CopyResult, Mapping[str, Any]]:
        """The result that a copy has submitted, and the state after it."""
        state = self._load(self._path(slot, copy))
        return CopyResult(**state["result"]), state

    def publish(self, slot: SlotStart, state: Mapping[str, Any]) -> bool:
        """Make a slot known, and its state the job's checkpoint, unless another copy has been faster.

        Raises:
            CheckpointError: It could not be written; the checkpoint before is still there.
        """
        if slot.number <= self.newest():
            return False
        mine = self._folder / f"next-{self._copy}"
        self._save(mine, slot.trained, {**state, "slot": asdict(slot)})
        try:
            os.link(mine, self._path(slot.number))
        except FileExistsError:
            mine.unlink()
            return False
        self._keep(mine)
        for path in self._folder.glob("slot-*"):
            if int(path.name.split(".")[0].rpartition("-")[2]) < slot.number - _KEPT:
                path.unlink(missing_ok=True)
        return True

    def newest(self) -> int:
        """The number of the newest slot that is known; below 0 if none is."""
        names = (path.name for path in self._folder.glob("slot-*") if ".copy-" not in path.name)
        return max((int(name.rpartition("-")[2]) for name in names), default=-1)

    def slot(self, number: int) -> tuple[SlotStart, Mapping[str, Any]]:
        """A slot that is known, and the state in which it begins."""
        state = self._load(self._path(number))
        return SlotStart(**state["slot"]), state

    def ask_to_stop(self) -> None:
        """Have all copies stop training."""
        (self._folder / "stop").touch()

    def asked_to_stop(self) -> bool:
        """Whether a copy asked all to stop; checks only now and then."""
        if not self._stopping and time.monotonic() - self._checked_s > _CHECK_S:
            self._checked_s = time.monotonic()
            self._stopping = (self._folder / "stop").exists()
        return self._stopping

    def is_over(self) -> bool:
        """Whether the others have ended the job, and its files are gone."""
        return not self._folder.is_dir()

    def ended_with(self) -> int:
        """The exit code with which the others have ended the job.

        Raises:
            CheckpointError: They did not end it: another start of the job has removed this one's files.
        """
        try:
            return int(code_file(self._file).read_text(encoding="ascii"))
        except FileNotFoundError:
            raise taken_over(self._file) from None

    def close(self, slot: SlotStart, code: int) -> None:
        """The job ends after this slot: see to its checkpoint; the last copy removes the folder."""
        mine = self._folder / f"next-{self._copy}"
        with suppress(FileNotFoundError):  # all have closed and this copy was not waited for
            os.link(self._path(slot.number), mine)
            self._keep(mine)
            write_atomically(code_file(self._file), f"{code}\n")
            (self._folder / f"closed-{self._copy}").touch()
            if len(list(self._folder.glob("closed-*"))) >= len(slot.shares):
                shutil.rmtree(_slots(self._file), ignore_errors=True)

    def close_at_once(self) -> None:
        """End a job that has nothing left to train."""
        write_atomically(code_file(self._file), "0\n")
        shutil.rmtree(_slots(self._file), ignore_errors=True)

    def _keep(self, mine: Path) -> None:
        """Make a file of the folder the job's checkpoint."""
        mine.replace(self._file)
        sync_folder(self._file.parent)

    def _path(self, slot: int, copy: int | None = None) -> Path:
        return self._folder / (f"slot-{slot}" if copy is None else f"slot-{slot}.copy-{copy}")

    def _save(self, path: Path, trained: Ranges, state: Mapping[str, Any]) -> None:
        steps = size(trained)
        save_checkpoint(Checkpoint(self._identity, steps, steps * self._batch, state), path)

    def _load(self, path: Path) -> Mapping[str, Any]:
        checkpoint = load_checkpoint(path, self._identity)
        if checkpoint is None:
            raise CheckpointError(f"{path} is gone, though the job goes on; was its folder removed?")
        return checkpoint.state
