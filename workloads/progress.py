"""What a job tells while it trains: lines for people, and a file with a JSON line for each step."""

import json
import time

import click

from workloads.group import Group
from workloads.pulse import Report
from workloads.settings import Job

_EVERY_S = 5.0


class Progress:
    """Tells how far a job is; rank 0 has one."""

    def __init__(self, job: Job, group: Group) -> None:
        self._job, self._group = job, group
        self._log = job.log_file.open("a", encoding="utf-8") if job.log_file else None
        self._told_s = float("-inf")

    def start(self, step: int) -> None:
        """Training begins, with so many steps done before."""
        begins = f"goes on after step {step}" if step else "begins"
        ranks = "1 rank" if self._group.size == 1 else f"{self._group.size} ranks"
        self.tell(f"{begins}; {self._job.steps} steps, {ranks}, {self._group.backend}")

    def note(self, report: Report) -> None:
        """A step is done: a line in the log, and one for people every few seconds."""
        batch = self._job.settings.global_batch
        line = {
            "step": report.step,
            "samples": report.step * batch,
            "loss": report.loss,
            "seconds": report.seconds,
            "time": round(report.end_s, 6),
            "ranks": self._group.size,
        }
        if self._log:
            self._log.write(json.dumps(line) + "\n")
            self._log.flush()
        if time.monotonic() - self._told_s >= _EVERY_S or report.step == self._job.steps:
            self._told_s = time.monotonic()
            self.tell(
                f"step {report.step} of {self._job.steps}, loss {report.loss:.4f}, "
                f"{report.seconds:.3f} s a step, {batch / report.seconds:.0f} samples/s"
            )

    def tell(self, text: str) -> None:
        """One line for people."""
        click.echo(f"{self._job.model}: {text}")
