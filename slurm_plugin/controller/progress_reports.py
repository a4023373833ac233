"""What jobs report of their progress, told to the policy as facts; see `dally.progress`.

Their files are read on threads, one for each user: nobody waits for a file system, or for another's files.
"""

import os
import pwd
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from dally.atomic_file import open_plain
from dally.errors import InputError
from dally.jobs.progress import MOST_BYTES, ProgressReport, parse_report
from dally.progress import STEP_FILE, of_job
from slurm_plugin.controller.managed_job import ON_GPUS, ManagedJob
from slurm_plugin.controller.reconciler import Reconciler
from slurm_plugin.controller.transitions import Log

SLOW_S = 60.0
"""Reading takes so long only where a file system hangs."""

ReadReports = Mapping[str, ProgressReport | InputError]
"""What jobs report, by number, or why their files cannot be read."""


@dataclass(frozen=True, slots=True)
class ProgressFile:
    """One job's file.

    Attributes:
        path: Where it is.
        user: To whom it must belong.
        job_id: The number that must stand in it, and then the path may be no link: others know where the
            recorder writes; empty: it is as the user chose.
    """

    path: str
    user: str
    job_id: str = ""


class _Reading:
    """One reading of one user's files, by number of the job."""

    def __init__(self, files: Mapping[str, ProgressFile]) -> None:
        self._files = files
        self.since_s = time.monotonic()
        self.path, self.is_over = "", False
        self.found: dict[str, ProgressReport | InputError] = {}

    def run(self) -> None:
        """Read them all, whatever is in one of them."""
        for job_id, file in self._files.items():
            self.path = file.path
            try:
                self.found[job_id] = read_report(file)
            except InputError as error:
                self.found[job_id] = error
            except Exception as error:  # anybody may have written it, and others are yet to be read
                self.found[job_id] = InputError(f"it cannot be read ({type(error).__name__})")
        self.is_over = True


class ProgressFiles:
    """Reads files beside the rest; what it has read is there at the next look.

    Args:
        start: Runs a function beside the rest; for tests that run it at once.
    """

    def __init__(self, start: Callable[[Callable[[], None]], object] | None = None) -> None:
        self._start = start or (
            lambda work: threading.Thread(target=work, name="reports", daemon=True).start()
        )
        self._readings: dict[str, _Reading] = {}

    def look(self, files: Mapping[str, ProgressFile]) -> ReadReports:
        """What was read since the last look; the next reading begins, of these files.

        Args:
            files: By number of the job.
        """
        wanted: dict[str, dict[str, ProgressFile]] = {}
        for job_id, file in files.items():
            wanted.setdefault(file.user, {})[job_id] = file
        over = [user for user, reading in self._readings.items() if reading.is_over]
        found = {job_id: said for user in over for job_id, said in self._readings.pop(user).found.items()}
        for user in wanted.keys() - self._readings.keys():
            self._readings[user] = reading = _Reading(wanted[user])
            self._start(reading.run)
        return found

    @property
    def stuck(self) -> str:
        """A file at which it hangs; empty if it does not."""
        slow = (each for each in self._readings.values() if time.monotonic() - each.since_s > SLOW_S)
        return next((each.path for each in slow if not each.is_over), "")


def read_report(file: ProgressFile) -> ProgressReport:
    """Read one file, which anybody may have named: only a plain one of the job's own user.

    Raises:
        InputError: It cannot be read, is somebody else's or no report; nothing of what is in it is told, nor
            what is at a path that the user might not see.
    """
    try:
        owner = pwd.getpwnam(file.user).pw_uid
        with open_plain(file.path, owner, follow=not file.job_id) as opened:
            data, written_s = opened.read(MOST_BYTES + 1), os.fstat(opened.fileno()).st_mtime
    except KeyError:
        raise InputError(f"this machine does not know its user {file.user}") from None
    except OSError:
        raise InputError("it is no plain file of the job's user, or the controller may not read it") from None
    return parse_report(data, written_s, file.job_id)


EVERY_S = 30.0
"""A report of a job is taken so often, once its throughput is known: each report is a line in the journal."""

MISSED_S = 300.0
"""A job that runs for so long without a report should have made one."""

_SKEW_S = 60.0
"""A file may seem to be so much older than its job: clocks differ."""


class ProgressReports:
    """Takes in what the running jobs report.

    Args:
        reconciler: Managed jobs and state.
        log: Records events.
        files: Reads their files; None: on a thread.
    """

    def __init__(self, reconciler: Reconciler, log: Log, files: ProgressFiles | None = None) -> None:
        self._reconciler, self._log, self._files = reconciler, log, files or ProgressFiles()
        self._missed: dict[str, float] = {}
        self._stuck = ""

    def take_reports(self, now: float) -> None:
        """Tell the policy what was reported since the last time; say once a run why a report is missing."""
        running = {
            managed.job_id: managed
            for managed in self._reconciler.managed_jobs.values()
            if managed.request.progress and isinstance(managed.phase, ON_GPUS)
        }
        self._missed = {job_id: run_s for job_id, run_s in self._missed.items() if job_id in running}
        wanted = {
            job_id: ProgressFile(
                of_job(managed.request.progress, job_id),
                managed.job.user,
                job_id if managed.request.progress.endswith(STEP_FILE) else "",
            )
            for job_id, managed in running.items()
        }
        for job_id, found in self._files.look(wanted).items():
            if (managed := running.get(job_id)) is None or not isinstance(managed.phase, ON_GPUS):
                continue
            run_s = managed.phase.interval.since_s
            if isinstance(found, ProgressReport):
                self._take(managed, found, now)
            elif managed.request.progress.endswith(STEP_FILE):
                continue  # many programs have no optimizer that the recorder sees
            elif now - managed.phase.since_s > MISSED_S and self._missed.get(job_id) != run_s:
                self._missed[job_id] = run_s
                reason = f"{wanted[job_id].path}: {found}"
                self._log(now, "progress_missing", job=job_id, reason=reason)
        if self._files.stuck != self._stuck:
            self._stuck = self._files.stuck
            if self._stuck:
                self._log(now, "progress_stuck", file=self._stuck)

    def _take(self, managed: ManagedJob, report: ProgressReport, now: float) -> None:
        """Take in a report, unless it is known, is of an earlier job, or came too soon after another."""
        assert isinstance(managed.phase, ON_GPUS), "it runs"
        run, before = managed.phase.interval, managed.history.progress
        if report.t < run.slurm_start_s - _SKEW_S:
            return
        if report.step_s and report.t <= max(run.slurm_start_s, run.since_s):  # of where it ran before
            if not report.samples:
                return
            report = replace(report, step_s=0.0)
        if before is None:
            said = {"samples": report.samples, "total": report.total}
            steps = {"step_s": report.step_s} if report.step_s else {}
            self._log(now, "progress_reported", job=managed.job_id, **said, **steps)
        else:
            measured = before.since_s == run.since_s and bool(before.throughputs or report.step_s)
            if report.t <= before.last.t or (measured and now - before.heard_s < EVERY_S):
                return
        self._reconciler.transitions.report_progress(managed, report, now)
        learnt = self._reconciler.state.costs.learnt
        if learnt is not None and (check := learnt.newly_slower(managed.job_id)) is not None:
            said = {"step_s": round(check.step_s, 6), "expected_s": round(check.expected_s or 0.0, 6)}
            self._log(now, "slower_than_expected", job=managed.job_id, **said, reason=check.words)
