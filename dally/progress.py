"""Tells Dally how far a training is: three lines in anybody's script, and nothing but the standard library.

    from dally.progress import report
    ...
    report(samples=done, total=wanted, batch=256, loss=loss)  # after each step, on every rank

The job's first rank writes one small file, every few seconds at most, for which it was submitted with
`dally-sbatch --progress=FILE`; the controller reads it. The file is a JSON object, replaced whole, so that
nobody sees half of one; who has no Python may write it otherwise (docs/elastic-training.md). Whatever goes
wrong is told once on standard error, and the training goes on.
"""

import json
import math
import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import SupportsFloat

from dally.atomic_file import write_atomically

FILE = "DALLY_PROGRESS"
"""The variable with the file's name, in which %j stands for the job's number; `dally-sbatch` sets it."""

BATCHING = "DALLY_BATCHING"
"""The variable that tells an elastic job what the policy plans for its batch on other numbers of GPUs.

`fixed`: it stays; `linear`: it grows with the GPUs; `goodput`: whatever makes most progress.
"""

STEP_FILE = "steps-%j.json"
"""The file in which a recorded job that reports nothing itself has its step times told."""

EVERY_S = 5.0
"""Seconds between two writings at least."""


class Reporter:
    """Writes one file, now and then.

    Args:
        file: Which; None: that which `dally-sbatch` was told of. Without either, nothing is written.
        every_s: Seconds between two writings at least.
    """

    def __init__(self, file: Path | None = None, every_s: float = EVERY_S) -> None:
        self._file = file or told_file(os.environ)
        self._every_s = every_s
        self._due_s = -math.inf
        self._failed = False

    @property
    def is_due(self) -> bool:
        """Whether a report would be written now."""
        return self._file is not None and time.monotonic() >= self._due_s

    def report(
        self,
        samples: SupportsFloat,
        total: SupportsFloat | None = None,
        *,
        batch: SupportsFloat | None = None,
        epoch: SupportsFloat | None = None,
        most_batch: SupportsFloat | None = None,
        loss: SupportsFloat | None = None,
        noise: SupportsFloat | None = None,
    ) -> None:
        """Say how far the training is, if it is time; numbers that are none are left out.

        Args:
            samples: Trained on since the very beginning, all ranks together, those before a checkpoint too.
            total: After how many the training is done.
            batch: Of a step, all ranks together.
            epoch: Samples of one pass over the data.
            most_batch: The largest batch with which it still reaches its target; without it, its batch stays.
            loss: The last; what is on a GPU is fetched only when it is written.
            noise: The gradient noise scale, samples (McCandlish et al., arXiv 1812.06162).
        """
        if self._file is None or not self.is_due:
            return
        self._due_s = time.monotonic() + self._every_s
        try:
            said = {
                "samples": samples,
                "total": total,
                "batch": batch,
                "epoch": epoch,
                "most_batch": most_batch,
                "loss": loss,
                "noise": noise,
            }
            numbers = {name: float(value) for name, value in said.items() if value is not None}
            found = {name: value for name, value in numbers.items() if math.isfinite(value)}
            text = json.dumps({"time": time.time(), **found}) + "\n"
            write_atomically(self._file, text, mode=None, durable=False)  # the next one comes soon
        except Exception as error:  # a report must never end a training, whatever it was given
            if not self._failed:
                print(f"dally: cannot report progress to {self._file}: {error}", file=sys.stderr)
            self._failed = True


_reporter: Reporter | None = None


def report(samples: SupportsFloat, total: SupportsFloat | None = None, **more: SupportsFloat | None) -> None:
    """What `Reporter.report` does, to the file of this job and on its first rank alone."""
    global _reporter
    if _reporter is None:
        _reporter = Reporter()
    if os.environ.get("RANK", os.environ.get("SLURM_PROCID", "0")) == "0":
        _reporter.report(samples, total, **more)


def told_file(variables: Mapping[str, str]) -> Path | None:
    """The file that this job is to write; None if nobody asked for one.

    Args:
        variables: The environment.
    """
    name = variables.get(FILE)
    return Path(of_job(name, job_number(variables))) if name else None


def of_job(name: str, number: str) -> str:
    """A file's name with the job's number, like 17 or 17_3, in the place of %j."""
    return name.replace("%j", number)


def job_number(variables: Mapping[str, str]) -> str:
    """The number of the job in which this runs, as `dally queue` shows it; empty outside of Slurm."""
    array, task = variables.get("SLURM_ARRAY_JOB_ID"), variables.get("SLURM_ARRAY_TASK_ID")
    return f"{array}_{task}" if array and task else variables.get("SLURM_JOB_ID", "")
