"""What a job tells while it trains: lines for people, and a file with a JSON line for each step or slot."""

import json
import time
from collections.abc import Sequence

import click

from dally.progress import Reporter
from dally.words import plural, share
from workloads.forked.ranges import size
from workloads.forked.slot import CopyResult, SlotStart
from workloads.group import Group
from workloads.settings import TrainingJob
from workloads.step_sync import StepReport
from workloads.training import Score, Trainer

_EVERY_S = 5.0


class Progress:
    """Tells how far a job is; rank 0 has one, or that of each copy.

    Args:
        job: The job.
        group: The ranks that train together.
        copies: How many copies train side by side; None if the job is not forked.
        trainer: Of this rank, for what the job reports to Dally; None if it is not known.
    """

    def __init__(
        self, job: TrainingJob, group: Group, copies: int | None = None, trainer: Trainer | None = None
    ) -> None:
        self._job, self._group, self._copies, self._trainer = job, group, copies, trainer
        self._reporter = Reporter(job.progress) if job.progress else None
        self._log = job.log_file.open("a", encoding="utf-8") if job.log_file else None
        self._told_s = float("-inf")

    def start(self, step: int) -> None:
        """Training begins, with so many steps done before."""
        begins = f"goes on after step {step}" if step else "begins"
        who = plural(self._group.size, "rank")
        if self._copies is not None:
            who = f"{_copies(self._copies)} of {who}"
        self.tell(f"{begins}; {self._job.steps} steps, {who}, {self._group.backend}")

    def note(self, report: StepReport, batch: int | None = None, samples: int | None = None) -> None:
        """A step is done: a line in the log, and one for people every few seconds.

        Args:
            report: Of the step.
            batch: Samples of it; None for the job's global batch.
            samples: Taken up to its end; None for so many of the job's global batches as it has done steps.
        """
        of = f" of {self._job.steps}" if samples is None else f", {samples:,} samples"
        batch = batch or self._job.settings.global_batch
        done = report.step * batch if samples is None else samples
        self._report(done, report.loss, batch)
        self._write(
            {
                "step": report.step,
                "samples": done,
                "loss": report.loss,
                "seconds": report.seconds,
                "time": round(report.end_s, 6),
                "ranks": self._group.size,
            }
        )
        if self._is_time(report.step):
            self.tell(
                f"step {report.step}{of}, loss {report.loss:.4f}, "
                f"{report.seconds:.3f} s a step, {batch / report.seconds:.0f} samples/s"
            )

    def note_slot(self, after: SlotStart, results: Sequence[CopyResult], seconds: float) -> None:
        """The results of a slot are averaged: a line in the log, and one for people every few seconds.

        Args:
            after: The slot that follows.
            results: What each copy did.
            seconds: That the slot took, with the averaging.
        """
        step = size(after.trained)
        steps = {result.copy: result.steps for result in results}
        if not any(steps.values()):
            return
        loss = sum(result.loss * result.steps for result in results) / sum(steps.values())
        self._report(step * self._job.settings.global_batch, loss)
        self._write(
            {
                "step": step,
                "samples": step * self._job.settings.global_batch,
                "loss": loss,
                "seconds": seconds,
                "trained": max(result.seconds for result in results),
                "time": round(time.time(), 6),
                "ranks": len(results) * self._group.size,
                "copies": steps,
            }
        )
        if self._is_time(step):
            each = ", ".join(str(count) for count in steps.values())
            self.tell(
                f"step {step} of {self._job.steps}, loss {loss:.4f}, slot {after.number}: {seconds:.1f} s "
                f"with {each} steps by {_copies(len(results))}"
            )

    def note_score(self, score: Score, step: int | None = None) -> None:
        """How the model does on samples that are held out, after a step, or None: after all."""
        after = {} if step is None else {"after_step": step}
        self._write({"held_out": score.samples, "loss": score.loss, "accuracy": score.accuracy, **after})
        if step is not None:
            return
        right = "" if score.accuracy is None else f", accuracy {share(score.accuracy, 2)}"
        self.tell(f"on {score.samples} samples held out: loss {score.loss:.4f}{right}")

    def _report(self, samples: int, loss: float, batch: int | None = None) -> None:
        """Tell Dally, if it is time."""
        if self._reporter is None or not self._reporter.is_due:
            return
        trainer, elastic = self._trainer, self._job.elastic
        self._reporter.report(
            samples,
            self._job.steps * self._job.settings.global_batch,
            batch=batch,
            epoch=trainer.source.count if trainer else None,
            most_batch=elastic.max_batch if elastic else None,
            loss=loss,
            noise=trainer.noise.samples if trainer and trainer.noise else None,
        )

    def tell(self, text: str) -> None:
        """One line for people."""
        click.echo(f"{self._job.model}: {text}")

    def _write(self, line: dict[str, object]) -> None:
        if self._log:
            self._log.write(json.dumps(line) + "\n")
            self._log.flush()

    def _is_time(self, step: int) -> bool:
        """Whether to tell people; notes that they were told."""
        due = time.monotonic() - self._told_s >= _EVERY_S or step == self._job.steps
        if due:
            self._told_s = time.monotonic()
        return due


def _copies(count: int) -> str:
    return f"{count} {'copy' if count == 1 else 'copies'}"
