"""One rank's steps of a job, each by its number: its samples, training on them, and a pace to keep."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace

from torch import Tensor

from workloads.elastic.batch_rules import Tuning
from workloads.emulated import computing_s
from workloads.group import Group
from workloads.local_data import LocalData, find_held_out
from workloads.noise import NoiseScale
from workloads.registry import find_workload
from workloads.samples import share, take
from workloads.settings import BatchRule, TrainingJob
from workloads.shares import local_batches
from workloads.training import Score, Trainer, find_task


class Steps:
    """One rank's steps of a job.

    Attributes:
        trainer: What does them.
        identity: What must be the same in a job that goes on from a checkpoint.
    """

    def __init__(self, job: TrainingJob, group: Group, rank: int, ranks: int) -> None:
        """Build the model and open its samples.

        Args:
            job: The job.
            group: The ranks that share its batches.
            rank: This rank's number among all of the job: its own speed is given by it.
            ranks: Of the job.

        Raises:
            InputError: The job does not fit the model, its samples or the number of ranks.
        """
        workload, flops = find_workload(job.model), job.of_rank("emulated_flops", rank, ranks)
        # With data, ranks compute for real: the speed of a GPU is then a pace.
        settings = replace(job.settings, emulated_flops=None if job.data else flops)
        task = find_task(workload, settings)
        source = LocalData(job.data, task) if job.data else None
        self._held_out = find_held_out(job.data, task) if job.data else None
        self.trainer = Trainer(workload, settings, group, source=source)
        if job.progress:
            self.trainer.noise = NoiseScale()
        if job.data and flops:
            self.trainer.sample_s = computing_s(workload, settings.size, flops)
        if job.elastic and job.elastic.rule is BatchRule.GOODPUT:
            self.trainer.noise, self.trainer.tuning = NoiseScale(), Tuning()
        self._job, self._rank = job, group.rank
        self._batch = settings.global_batch
        self._parts = local_batches(self._batch, group.size, job.shares)
        self._pace_s = job.of_rank("pace_s", rank, ranks) or 0.0
        self.identity: Mapping[str, str | float | None] = {
            "model": job.model,
            "data": job.data.name if job.data else None,
            "number of samples": self.trainer.source.count,
            **asdict(job.settings),
            "precision": str(job.settings.precision),  # checkpoints hold plain values only
            "emulation": settings.emulated_flops is not None,
            "copies": job.fork is not None,
            "batch rule": _rule(job),
        }

    def regroup(self, group: Group, batch: int) -> None:
        """Go on with other ranks, and batches of so many samples."""
        self.trainer.regroup(group, batch)
        self._rank, self._batch = group.rank, batch
        self._parts = local_batches(batch, group.size, None)

    def train(self, number: int, start: int | None = None) -> Tensor:
        """One whole iteration: the loss, as `Trainer.forward` gives it, without its history.

        Args:
            number: Of the batch in the endless order, from 0.
            start: Samples taken before it; None if all batches are as large as this one.
        """
        due_s = time.perf_counter() + self._pace_s
        start = number * self._batch if start is None else start
        loss = self.trainer.train(number, self._samples(start))
        self.trainer.draw_ahead(self._samples(start + self._batch))
        time.sleep(max(0.0, due_s - time.perf_counter()))
        return loss

    def _samples(self, start: int) -> Sequence[int]:
        """This rank's of the batch from this place on in the endless order."""
        taken = take(start, self._batch, self.trainer.source.count, self._job.settings.seed)
        return share(taken, self._rank, self._parts)

    def score(self) -> Score | None:
        """How well the model does on samples that are held out; None if there are none."""
        return self.trainer.evaluate(self._held_out) if self._held_out else None


def _rule(job: TrainingJob) -> str | None:
    """The rule by which batches change; None if they do not, as in all jobs that are not elastic."""
    if not job.elastic or job.elastic.rule is BatchRule.KEEP:
        return None
    asked = job.elastic.asked_ranks
    return f"{job.elastic.rule} from {asked} ranks" if asked > 1 else str(job.elastic.rule)
