"""Who writes a job's checkpoints: rank 0 of the job's newest start; an older start that still runs must end.

Slurm starts a job anew when it has given up its nodes, and cannot tell dead nodes from silent ones: ranks on
nodes that are cut off train on. Where they still reach the checkpoint, this ends them.
"""

import time
import uuid
from collections.abc import Mapping
from pathlib import Path

from dally.atomic_file import write_atomically
from workloads.checkpoint import Checkpoint, CheckpointError, save_checkpoint
from workloads.group import Group, gather
from workloads.progress import Progress
from workloads.settings import TrainingJob
from workloads.training import Trainer

_CHECK_S = 1.0
"""How often a start checks whether it is still the owner."""

_WAIT_S = 2.0
"""So long a start waits for one before it that did not say its end: it was killed, or is yet to check."""


class CheckpointOwner:
    """One start's hold on a job's checkpoint.

    Args:
        checkpoint: The file; the owner's name is in another beside it.
    """

    def __init__(self, checkpoint: Path) -> None:
        self._checkpoint, self._file = checkpoint, checkpoint.with_name(f".{checkpoint.name}.owner")
        self._name = uuid.uuid4().hex
        self._checked_s, self._lost = time.monotonic(), False

    def take(self) -> None:
        """Become the owner; when this returns, one before it has stopped, if its steps are short.

        Raises:
            CheckpointError: The folder cannot be written.
        """
        before = self._file.exists()
        try:
            write_atomically(self._file, self._name)
        except OSError as error:
            raise CheckpointError(f"{self._file} cannot be written: {error.strerror}") from error
        if before:
            time.sleep(_WAIT_S)

    def is_lost(self) -> bool:
        """Whether another start has become the owner since; checks only now and then."""
        if not self._lost and time.monotonic() - self._checked_s > _CHECK_S:
            self._check()
        return self._lost

    def require(self) -> None:
        """Check whether this is still the owner.

        Raises:
            CheckpointError: It is not.
        """
        self._check()
        if self._lost:
            raise taken_over(self._checkpoint)

    def release(self) -> None:
        """Let a later start have the checkpoint at once: this one writes nothing more."""
        self._check()
        if not self._lost:
            self._file.unlink(missing_ok=True)

    def _check(self) -> None:
        self._checked_s = time.monotonic()
        try:
            self._lost |= self._file.read_text(encoding="ascii") != self._name
        except FileNotFoundError:  # a later one came, and has ended by now
            self._lost = True
        except OSError:
            pass  # out of reach: nobody knows


def taken_over(checkpoint: Path) -> CheckpointError:
    """What a start says that ends because it is no longer the owner."""
    return CheckpointError(f"another start of this job has taken {checkpoint} over")


class CheckpointWriter:
    """Writes a job's checkpoints on rank 0, while its start is the newest; all ranks learn of failures.

    Args:
        job: The job.
        group: The ranks that train together.
        progress: Where rank 0 tells of them; None on others.
        owner: What this rank holds of the checkpoint already, if it does.

    Attributes:
        owner: Rank 0's hold on the checkpoint; None on other ranks, and if the job has none.
    """

    def __init__(
        self,
        job: TrainingJob,
        group: Group,
        progress: Progress | None = None,
        owner: CheckpointOwner | None = None,
    ) -> None:
        self._job, self._group, self._progress = job, group, progress
        self.owner = owner or (
            CheckpointOwner(job.checkpoint) if group.rank == 0 and job.checkpoint else None
        )

    def take(self) -> None:
        """Make the checkpoint this start's."""
        if self.owner:
            self.owner.take()

    def release(self) -> None:
        """Let a later start have the checkpoint at once: this one writes nothing more."""
        if self.owner:
            self.owner.release()

    def is_lost(self) -> bool:
        """Whether the job has been started anew elsewhere."""
        return self.owner is not None and self.owner.is_lost()

    def save(
        self, identity: Mapping[str, str | float | None], step: int, samples: int, trainer: Trainer
    ) -> None:
        """Write the checkpoint on rank 0; all ranks wait for it, and end if it failed.

        Args:
            identity: Of the job.
            step: Steps done.
            samples: Taken in them.
            trainer: Whose state is written.

        Raises:
            CheckpointError: It could not be written.
        """
        if self._job.checkpoint is None:
            return
        failure = None
        if self._progress:
            try:
                if self.owner:
                    self.owner.require()
                save_checkpoint(Checkpoint(identity, step, samples, trainer.state()), self._job.checkpoint)
                self._progress.tell(f"checkpoint after step {step} in {self._job.checkpoint}")
            except CheckpointError as error:
                failure = error
        if any(gather(self._group, int(failure is not None))):
            raise failure or CheckpointError(f"rank {self._group.rank} ends: rank 0 cannot write checkpoints")
