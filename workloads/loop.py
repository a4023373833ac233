"""The training loop: steps, checkpoints at intervals and at signals, and going on from one."""

import math
from collections.abc import Sequence
from dataclasses import asdict

import torch
from torch import distributed

from dally.errors import DallyError, InputError
from workloads.checkpoint import Checkpoint, CheckpointError, load_checkpoint, save_checkpoint
from workloads.group import Group, first_line, join, leave
from workloads.local_data import LocalData
from workloads.progress import Progress
from workloads.pulse import Pulse, Report
from workloads.registry import find_workload
from workloads.samples import share, take
from workloads.settings import Job
from workloads.signals import StopRequest
from workloads.training import Trainer, find_task


class TrainingError(DallyError):
    """Training failed on the way."""


def run_job(job: Job, stop: StopRequest) -> bool:
    """Train, from the checkpoint if there is one, until all is done or a rank is asked to stop.

    Returns:
        Whether all steps are done; if not, those that are are in the checkpoint.

    Raises:
        DallyError: One of its children: the job is wrong, ranks did not meet, or training failed.
    """
    group = join(job.backend, job.join_timeout_s)
    try:
        done = _Run(job, group, stop).run()
    except RuntimeError as error:  # torch's: memory, CUDA, another rank that is gone
        raise TrainingError(f"rank {group.rank} of {group.size} failed: {first_line(error)}") from error
    leave()
    return done


class _Run:
    """One start of a job, on one rank."""

    def __init__(self, job: Job, group: Group, stop: StopRequest) -> None:
        self._job, self._group, self._stop = job, group, stop
        workload = find_workload(job.model)
        source = LocalData(job.data, find_task(workload, job.settings)) if job.data else None
        self._trainer = Trainer(workload, job.settings, group, source=source)
        self._identity = {
            "model": job.model,
            "data": job.data.name if job.data else None,
            "number of samples": self._trainer.source.count,
            **asdict(job.settings),
            "precision": str(job.settings.precision),  # checkpoints hold plain values only
        }
        self._pulse = Pulse(group)
        self._progress = Progress(job, group) if group.rank == 0 else None

    def run(self) -> bool:
        step = self._resume()
        while step < self._job.steps:
            loss = self._trainer.train(step, self._samples(step))
            step += 1
            stopping = self._hear(self._pulse.send(step, loss, self._stop.asked))
            if stopping or self._job.saves_after(step):
                stopping |= self._hear(self._pulse.settle())
                self._save(step)
            if stopping:
                break
        return step >= self._job.steps

    def _samples(self, step: int) -> Sequence[int]:
        batch, seed = self._job.settings.global_batch, self._job.settings.seed
        taken = take(step * batch, batch, self._trainer.source.count, seed)
        return share(taken, self._group.rank, self._group.size)

    def _hear(self, report: Report | None) -> bool:
        """Note how a step went; whether to stop after it."""
        if report is None:
            return False
        if not math.isfinite(report.loss):
            raise TrainingError(f"the loss of step {report.step} is {report.loss}")
        if self._progress:
            self._progress.note(report)
        return report.stop

    def _resume(self) -> int:
        """Load the checkpoint; gives the steps that are done."""
        checkpoint = self._job.checkpoint and load_checkpoint(self._job.checkpoint, self._identity)
        if checkpoint:
            self._trainer.restore(checkpoint.state)
        step = checkpoint.step if checkpoint else 0
        steps = self._gather(step)
        if len(set(steps)) > 1:
            raise InputError(
                f"ranks go on from steps {steps}: all must share the file {self._job.checkpoint}"
            )
        if self._progress:
            self._progress.start(step)
        return step

    def _save(self, step: int) -> None:
        """Write the checkpoint on rank 0; all ranks wait for it, and end if it failed."""
        if self._job.checkpoint is None:
            return
        failure = None
        if self._progress:
            samples = step * self._job.settings.global_batch
            try:
                save_checkpoint(
                    Checkpoint(self._identity, step, samples, self._trainer.state()), self._job.checkpoint
                )
                self._progress.tell(f"checkpoint after step {step} in {self._job.checkpoint}")
            except CheckpointError as error:
                failure = error
        if any(self._gather(int(failure is not None))):
            raise failure or CheckpointError(f"rank {self._group.rank} ends: rank 0 cannot write checkpoints")
        self._pulse.rest()

    def _gather(self, number: int) -> list[int]:
        """What all ranks say, in order."""
        own = torch.tensor([number], device=self._group.device)
        all_ = [torch.empty_like(own) for _ in range(self._group.size)]
        distributed.all_gather(all_, own)
        return [int(item) for item in all_]
