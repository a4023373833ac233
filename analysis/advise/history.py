"""A site's job history: its jobs, and of sacct's output also when they started, and where."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from statistics import median

import numpy as np

from dally.errors import InputError
from dally.jobs.job import Job
from dally.jobs.knowledge import Knowledge
from dally.traces import Workload
from dally.traces.load import parse_trace, read_source
from dally.traces.rows import Omission, RealRun, RowError, check_fields
from dally.traces.sacct import header_of, is_json, split_rows
from dally.traces.workload import remade


@dataclass(frozen=True, slots=True)
class PastJob:
    """A job as it really was.

    Attributes:
        job: The job; submitted when Slurm might first have started it, with the time that it really ran, and
            with its GPUs shared out as they really were.
        start_s: When it really started, seconds from the history's origin; None if unknown.
        nodes: The nodes it ran on, as a host list; empty if unknown.
    """

    job: Job
    start_s: float | None = None
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
        """The jobs whose real start is known."""
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
    most_jobs: int | None = None,
) -> SiteHistory:
    """Read a history, in any of the trace formats; only sacct's tells starts and nodes.

    Args:
        path: The file.
        skip_bad: Leave out and count wrong rows.
        min_duration_s: Raise shorter durations to this, seconds.
        start_s: Keep jobs submitted at this second or later.
        end_s: Keep jobs submitted before this second.
        most_jobs: Keep no more of these than the last so many; None: all.

    Raises:
        InputError: The file is truncated, of another format, wrong, or without jobs.
    """
    workload = parse_trace(
        str(path),
        *read_whole(path),
        skip_bad=skip_bad,
        min_duration_s=min_duration_s,
        start_s=start_s,
        end_s=end_s,
        most_jobs=most_jobs,
    )
    return SiteHistory([_past(job, workload.ran.get(job.job_id)) for job in workload.jobs], workload)


def read_whole(path: Path) -> tuple[str, str]:
    """The text of a history, and the digest of its file.

    Raises:
        InputError: It cannot be read, or is sacct's output with its last line cut off.
    """
    if not path.is_file():
        raise InputError(f"no history {str(path)!r}; `sacct` writes one, see docs/advise.md")
    text, digest = read_source(path)
    if not is_json(text) and "|" in text.partition("\n")[0] and not text.endswith("\n"):
        raise InputError(f"{path}: the last line is cut off, the file is truncated")
    return text, digest


def sacct_rows(source: str, text: str, bad: Callable[[RowError], object]) -> Iterator[Mapping[str, str]]:
    """The rows of sacct's output, as values by column.

    Args:
        source: The file's name, for messages.
        text: What sacct wrote.
        bad: Called with what is wrong with a row, which is left out then.
    """
    rows = split_rows(source, text)
    header = header_of(rows)
    unit = "job" if is_json(text) else "line"
    for place, fields in rows:
        if isinstance(fields, Omission):
            continue
        try:
            if isinstance(fields, RowError):
                raise fields
            check_fields(fields, len(header))
        except RowError as error:
            bad(RowError(error.reason, f"{source}, {unit} {place}: {error}"))
            continue
        yield dict(zip(header, fields, strict=True))


def _past(job: Job, ran: RealRun | None) -> PastJob:
    """A job with its start and nodes, its GPUs shared out over as many machines as it really had.

    Where sacct does not tell the number of nodes, or they had different numbers of GPUs, the share of each
    stays unknown.
    """
    if ran is None:
        return PastJob(job)
    each, more = divmod(job.gpus, ran.machines) if ran.machines else (0, 1)
    start_s = ran.start_s if ran.start_s is not None and ran.start_s >= job.submit_s else None
    return PastJob(job if more else remade(job, "gpus_per_machine", each), start_s, ran.nodes)


def most_gpus_held(history: SiteHistory) -> int:
    """The most GPUs that jobs whose start is known really held at once.

    Those of a second or less do not count: sacct's times are whole seconds.
    """
    changes = []
    for past in history.started:
        if past.start_s is not None and past.job.duration_s > 1:
            changes += [(past.start_s, past.job.gpus), (past.start_s + past.job.duration_s, -past.job.gpus)]
    # Where one job ends as another starts, the end comes first.
    return max(accumulate(gpus for _, gpus in sorted(changes)), default=0)


def idle_share(history: SiteHistory, gpus: int) -> float:
    """The share of the real waiting during which as many GPUs as the job asked for were idle.

    Idle is what the jobs of the history left of the cluster; others, and nodes that were down, do not count.

    Args:
        history: The jobs; those without a start are left out.
        gpus: GPUs of the cluster.
    """
    starts_s = np.array([past.start_s for past in history.started], dtype=float)
    ends_s = starts_s + np.array([past.job.duration_s for past in history.started])
    wanted = np.array([past.job.gpus for past in history.started], dtype=float)
    times_s, changes = np.concatenate((starts_s, ends_s)), np.concatenate((wanted, -wanted))
    order = np.argsort(times_s, kind="stable")
    # GPUs in use before, between and after the moments at which that changes.
    times_s, used = times_s[order], np.concatenate(([0.0], np.cumsum(changes[order])))
    waited_s = idle_s = 0.0
    for past in history.started:
        assert past.start_s is not None
        first, last = np.searchsorted(times_s, [past.job.submit_s, past.start_s], side="right")
        edges_s = np.concatenate(([past.job.submit_s], times_s[first:last], [past.start_s]))
        room = gpus - used[first : last + 1] >= past.job.gpus
        lengths_s = np.diff(edges_s)
        waited_s += float(lengths_s.sum())
        idle_s += float(lengths_s[room].sum())
    return idle_s / waited_s if waited_s else 0.0
