"""Who writes a job's checkpoints: rank 0 of the job's newest start; an older start that still runs must end.

Slurm starts a job anew when it has given up its nodes, and cannot tell dead nodes from silent ones: ranks on
nodes that are cut off train on. Where they still reach the checkpoint, this ends them.
"""

import time
import uuid
from pathlib import Path

from dally.atomic_file import write_atomically
from workloads.checkpoint import Checkpoint, CheckpointError, save_checkpoint
from workloads.group import Group, gather
from workloads.progress import Progress
from workloads.steps import Steps

_CHECK_S = 1.0
"""How often a start checks whether it is still the owner."""

_WAIT_S = 2.0
"""So long a start waits for one before it that did not say its end: it was killed, or is yet to check."""


class CheckpointWriter:
    """Writes a job's checkpoints on rank 0, while its start is the newest; all ranks learn of failures.

    Args:
        checkpoint: The file; the owner's name is in another beside it. None if the job writes none.
    """

    def __init__(self, checkpoint: Path | None) -> None:
        self._checkpoint = checkpoint
        self._file = checkpoint.with_name(f".{checkpoint.name}.owner") if checkpoint else None
        self._name = uuid.uuid4().hex
        self._owned = self._lost = False
        self._checked_s = time.monotonic()

    def take(self) -> None:
        """Make rank 0 the owner; when this returns, one before it has stopped, if its steps are short.

        Raises:
            CheckpointError: The folder cannot be written.
        """
        if self._file is None or self._owned:
            return
        before = self._file.exists()
        try:
            write_atomically(self._file, self._name)
        except OSError as error:
            raise CheckpointError(f"{self._file} cannot be written: {error.strerror}") from error
        self._owned = True
        if before:
            time.sleep(_WAIT_S)

    def is_lost(self) -> bool:
        """Whether the job has been started anew elsewhere; checks only now and then."""
        if not self._lost and time.monotonic() - self._checked_s > _CHECK_S:
            self._check()
        return self._lost

    def release(self) -> None:
        """Let a later start have the checkpoint at once: this one writes nothing more."""
        self._check()
        if self._file and self._owned and not self._lost:
            self._file.unlink(missing_ok=True)

    def save(self, group: Group, progress: Progress | None, steps: Steps, done: int, samples: int) -> None:
        """Write the checkpoint on rank 0; all ranks wait for it, and end if it failed.

        Args:
            group: The ranks that train together.
            progress: Where rank 0 tells of it; None on others.
            steps: Whose state is written.
            done: Steps done.
            samples: Taken in them.

        Raises:
            CheckpointError: It could not be written.
        """
        if self._checkpoint is None:
            return
        failure = None
        if progress:
            try:
                self._check()
                if self._lost:
                    raise taken_over(self._checkpoint)
                content = Checkpoint(steps.identity, done, samples, steps.trainer.state())
                save_checkpoint(content, self._checkpoint)
                progress.tell(f"checkpoint after step {done} in {self._checkpoint}")
            except CheckpointError as error:
                failure = error
        if any(gather(group, int(failure is not None))):
            raise failure or CheckpointError(f"rank {group.rank} ends: rank 0 cannot write checkpoints")

    def _check(self) -> None:
        """Note whether another start has become the owner since."""
        self._checked_s = time.monotonic()
        if not self._file or not self._owned:
            return
        try:
            self._lost |= self._file.read_text(encoding="ascii") != self._name
        except FileNotFoundError:  # a later one came, and has ended by now
            self._lost = True
        except OSError:
            pass  # out of reach: nobody knows


def taken_over(checkpoint: Path) -> CheckpointError:
    """What a start says that ends because it is no longer the owner."""
    return CheckpointError(f"another start of this job has taken {checkpoint} over")
