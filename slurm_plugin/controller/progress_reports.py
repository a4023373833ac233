"""What jobs report of their progress, told to the policy as facts; see `dally.progress`."""

from collections.abc import Iterator

from dally.errors import InputError
from dally.jobs.progress import ProgressReport
from dally.progress import of_job
from slurm_plugin.controller.ledger import Log
from slurm_plugin.controller.mirror import Mirror
from slurm_plugin.controller.progress_files import ProgressFile, ProgressFiles
from slurm_plugin.controller.tickets import ON_GPUS, Ticket

EVERY_S = 30.0
"""A job is heard so often, once its throughput is known: each report is a line in the journal."""

MISSED_S = 300.0
"""A job that runs for so long without a report should have made one."""

_SKEW_S = 60.0
"""A file may seem to be so much older than its job: clocks differ."""


class ProgressReports:
    """Hears the running jobs that report.

    Args:
        mirror: Tickets and state.
        log: Records events.
        files: Reads their files; None: on a thread.
    """

    def __init__(self, mirror: Mirror, log: Log, files: ProgressFiles | None = None) -> None:
        self._mirror, self._log, self._files = mirror, log, files or ProgressFiles()
        self._missed: dict[str, str] = {}
        self._stuck = ""

    def hear(self, now: float) -> None:
        """Tell the policy what was reported since the last time."""
        running = {ticket.job_id: ticket for ticket in self._reporting()}
        self._missed = {job_id: why for job_id, why in self._missed.items() if job_id in running}
        wanted = {
            job_id: ProgressFile(of_job(ticket.request.progress, job_id), ticket.job.user)
            for job_id, ticket in running.items()
        }
        for job_id, found in self._files.look(wanted).items():
            if (ticket := running.get(job_id)) is None:
                continue
            if isinstance(found, ProgressReport):
                self._take(ticket, found, now)
            elif now - ticket.since_s > MISSED_S:
                self._miss(ticket, found, now)
        if self._files.stuck != self._stuck:
            self._stuck = self._files.stuck
            if self._stuck:
                self._log(now, "reports_stuck", file=self._stuck)

    def _reporting(self) -> Iterator[Ticket]:
        for ticket in self._mirror.tickets.values():
            if ticket.request.progress and ticket.standing in ON_GPUS:
                yield ticket

    def _take(self, ticket: Ticket, report: ProgressReport, now: float) -> None:
        """Hear it, unless it was heard, is of an earlier job, or came too soon after another."""
        stretch, before = ticket.stretch, ticket.past.progress
        assert stretch is not None, "it runs"
        self._missed.pop(ticket.job_id, None)
        if report.t < stretch.slurm_start_s - _SKEW_S:
            return
        if before is None:
            self._log(now, "reports", job=ticket.job_id, samples=report.samples, total=report.total)
        else:
            measured = before.since_s == stretch.since_s and bool(before.throughputs)
            if report.t <= before.last.t or (measured and now - before.heard_s < EVERY_S):
                return
        self._mirror.report_progress(ticket, report, now)

    def _miss(self, ticket: Ticket, why: InputError, now: float) -> None:
        """Say once why there is no report."""
        if self._missed.get(ticket.job_id) != str(why):
            self._missed[ticket.job_id] = str(why)
            file = of_job(ticket.request.progress, ticket.job_id)
            self._log(now, "no_report", job=ticket.job_id, reason=f"{file}: {why}")
