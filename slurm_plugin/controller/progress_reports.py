"""What jobs report of their progress, told to the policy as facts; see `dally.progress`."""

from dally.jobs.progress import ProgressReport
from dally.progress import of_job
from slurm_plugin.controller.managed_job import ON_GPUS, ManagedJob
from slurm_plugin.controller.progress_files import ProgressFile, ProgressFiles
from slurm_plugin.controller.reconciler import Reconciler
from slurm_plugin.controller.transitions import Log

EVERY_S = 30.0
"""A report of a job is taken so often, once its throughput is known: each report is a line in the journal."""

MISSED_S = 300.0
"""A job that runs for so long without a report should have made one."""

_SKEW_S = 60.0
"""A file may seem to be so much older than its job: clocks differ."""


class ProgressReports:
    """Takes in what the running jobs report.

    Args:
        reconciler: Tickets and state.
        log: Records events.
        files: Reads their files; None: on a thread.
    """

    def __init__(self, reconciler: Reconciler, log: Log, files: ProgressFiles | None = None) -> None:
        self._reconciler, self._log, self._files = reconciler, log, files or ProgressFiles()
        self._missed: dict[str, str] = {}
        self._stuck = ""

    def take_reports(self, now: float) -> None:
        """Tell the policy what was reported since the last time; say once why a report is missing."""
        running = {
            managed.job_id: managed
            for managed in self._reconciler.managed_jobs.values()
            if managed.request.progress and managed.phase in ON_GPUS
        }
        self._missed = {job_id: why for job_id, why in self._missed.items() if job_id in running}
        wanted = {
            job_id: ProgressFile(of_job(managed.request.progress, job_id), managed.job.user)
            for job_id, managed in running.items()
        }
        for job_id, found in self._files.look(wanted).items():
            if (managed := running.get(job_id)) is None:
                continue
            if isinstance(found, ProgressReport):
                self._missed.pop(job_id, None)
                self._take(managed, found, now)
            elif now - managed.since_s > MISSED_S and self._missed.get(job_id) != str(found):
                self._missed[job_id] = str(found)
                reason = f"{wanted[job_id].path}: {found}"
                self._log(now, "progress_missing", job=job_id, reason=reason)
        if self._files.stuck != self._stuck:
            self._stuck = self._files.stuck
            if self._stuck:
                self._log(now, "progress_stuck", file=self._stuck)

    def _take(self, managed: ManagedJob, report: ProgressReport, now: float) -> None:
        """Take in a report, unless it is known, is of an earlier job, or came too soon after another."""
        run, before = managed.interval, managed.history.progress
        assert run is not None, "it runs"
        if report.t < run.slurm_start_s - _SKEW_S:
            return
        if before is None:
            said = {"samples": report.samples, "total": report.total}
            self._log(now, "progress_reported", job=managed.job_id, **said)
        else:
            measured = before.since_s == run.since_s and bool(before.throughputs)
            if report.t <= before.last.t or (measured and now - before.heard_s < EVERY_S):
                return
        self._reconciler.report_progress(managed, report, now)
