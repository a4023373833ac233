"""A site's job history: its jobs, and of sacct's output also when they started, where, and their names."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from statistics import median

from dally.errors import InputError
from dally.jobs.job import Job
from dally.jobs.knowledge import Knowledge
from dally.traces import RowError, Workload, load_trace
from dally.traces.load import read_source
from dally.traces.rows import timestamp_s
from dally.traces.sacct import split_rows

SACCT = "sacct"
_NODES = re.compile(r"\bnode=([1-9]\d*)\b")
_NO_DATE = frozenset({"", "None", "Unknown"})


@dataclass(frozen=True, slots=True)
class PastJob:
    """A job as it really was.

    Attributes:
        job: The job; submitted when Slurm might first have started it, with the time that it really ran, and
            with its GPUs shared out as they really were.
        start_s: When it really started, seconds from the history's origin; None if unknown.
        name: Its name; empty if unknown.
        nodes: The nodes it ran on, as a host list; empty if unknown.
    """

    job: Job
    start_s: float | None = None
    name: str = ""
    nodes: str = ""

    @property
    def wait_s(self) -> float | None:
        """How long it really waited, seconds; None if unknown."""
        return None if self.start_s is None else self.start_s - self.job.submit_s


@dataclass(frozen=True, slots=True)
class SiteHistory:
    """Jobs of a site, by submission.

    Attributes:
        jobs: The jobs.
        workload: What the trace's reader told of the file.
        too_large: How many jobs were left out because the cluster cannot hold them.
    """

    jobs: Sequence[PastJob]
    workload: Workload
    too_large: int = 0

    @property
    def started(self) -> Sequence[PastJob]:
        """Those of which the real start is known."""
        return [past for past in self.jobs if past.start_s is not None]

    @property
    def knowledge(self) -> Knowledge:
        """What a scheduler of this site can know of running times: limits where most jobs have one."""
        limited, _ = self.limits_used
        return Knowledge.LIMITS if 2 * limited > len(self.jobs) else Knowledge.HISTORY

    @property
    def limits_used(self) -> tuple[int, float]:
        """How many jobs have a time limit, and the median share of it that they ran; 0 if none has."""
        shares = [
            past.job.duration_s / past.job.time_limit_s
            for past in self.jobs
            if past.job.time_limit_s is not None
        ]
        return len(shares), median(shares) if shares else 0.0


def read_history(
    path: Path,
    *,
    skip_bad: bool = False,
    min_duration_s: float = 0.0,
    start_s: float | None = None,
    end_s: float | None = None,
) -> SiteHistory:
    """Read a history, in any of the trace formats; only sacct's tells starts, names and nodes.

    Args:
        path: The file.
        skip_bad: Leave out and count wrong rows.
        min_duration_s: Raise shorter durations to this, seconds.
        start_s: Keep jobs submitted at this second or later.
        end_s: Keep jobs submitted before this second.

    Raises:
        InputError: The file is truncated, of another format, wrong, or without jobs.
    """
    text = read_whole(path)
    workload = load_trace(
        path, skip_bad=skip_bad, min_duration_s=min_duration_s, start_s=start_s, end_s=end_s
    )
    pasts = [PastJob(job) for job in workload.jobs]
    if workload.format == SACCT:
        pasts = _told_more(pasts, workload, text)
    return SiteHistory(pasts, workload)


def read_whole(path: Path) -> str:
    """The text of a history.

    Raises:
        InputError: It cannot be read, or is sacct's output with its last line cut off.
    """
    if not path.is_file():
        raise InputError(f"no history {str(path)!r}; `sacct` writes one, see docs/advise.md")
    text = read_source(path)[0]
    if "|" in text.partition("\n")[0] and not text.endswith("\n"):
        raise InputError(f"{path}: the last line is cut off, the file is truncated")
    return text


def _told_more(pasts: Sequence[PastJob], workload: Workload, text: str) -> list[PastJob]:
    """The jobs with what else sacct says of them, by submission."""
    origin_s = datetime.fromisoformat(workload.origin).timestamp()
    known = {past.job.job_id: past for past in pasts}
    for line, row in sacct_rows(text):
        job_id = row.get("JobIDRaw") or row.get("JobID", "")
        if job_id in known:
            known[job_id] = _from_row(known[job_id], row, f"{workload.source}, line {line}", origin_s)
    return sorted(known.values(), key=lambda past: past.job.submit_s)


def sacct_rows(text: str) -> Iterator[tuple[int, Mapping[str, str]]]:
    """The rows of sacct's output as (line number, values by column), without those of another width."""
    rows = split_rows(text)
    _, header = next(rows)
    for line, fields in rows:
        if len(fields) == len(header):
            yield line, dict(zip(header, fields, strict=True))


def _from_row(past: PastJob, row: Mapping[str, str], where: str, origin_s: float) -> PastJob:
    """A job with its start, name and nodes, its GPUs shared out over as many machines as it really had.

    One that was held back counts from when it was eligible.
    """
    start_s, eligible_s = (_moment_s(row, name, where, origin_s) for name in ("Start", "Eligible"))
    submit_s = past.job.submit_s
    if eligible_s is not None and (start_s is None or eligible_s <= start_s):
        submit_s = max(submit_s, eligible_s)
    return PastJob(
        replace(past.job, submit_s=submit_s, gpus_per_machine=_per_machine(past.job.gpus, row)),
        start_s if start_s is not None and start_s >= submit_s else None,
        row.get("JobName", ""),
        row.get("NodeList", ""),
    )


def _per_machine(gpus: int, row: Mapping[str, str]) -> int | None:
    """The share of a job's GPUs that each of its nodes had; None if sacct does not tell, or it differed."""
    found = _NODES.search(row.get("AllocTRES") or row.get("ReqTRES", ""))
    each, more = divmod(gpus, int(found[1])) if found else (0, gpus)
    return None if more else each


def _moment_s(row: Mapping[str, str], name: str, where: str, origin_s: float) -> float | None:
    text = row.get(name, "")
    if text in _NO_DATE:
        return None
    try:
        return timestamp_s(text, name) - origin_s
    except RowError as error:
        raise InputError(f"{where}: {error}") from error
