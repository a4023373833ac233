"""Writes a job's checkpoints on rank 0, while this start of it is the newest; all ranks learn of failures."""

from collections.abc import Mapping

from workloads.checkpoint import Checkpoint, CheckpointError, save_checkpoint
from workloads.checkpoint_owner import Owner
from workloads.group import Group, gather
from workloads.progress import Progress
from workloads.settings import TrainingJob
from workloads.training import Trainer


class Saver:
    """One rank's part in a job's checkpoints.

    Args:
        job: The job.
        group: The ranks that train together.
        progress: Where rank 0 tells of them; None on others.
        owner: What this rank holds of the checkpoint already, if it does.

    Attributes:
        owner: Rank 0's hold on the checkpoint; None on other ranks, and if the job has none.
    """

    def __init__(
        self, job: TrainingJob, group: Group, progress: Progress | None = None, owner: Owner | None = None
    ) -> None:
        self._job, self._group, self._progress = job, group, progress
        self.owner = owner or (Owner(job.checkpoint) if group.rank == 0 and job.checkpoint else None)

    def take(self) -> None:
        """Make the checkpoint this start's."""
        if self.owner:
            self.owner.take()

    def release(self) -> None:
        """This start writes nothing more."""
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
