"""All jobs at each look for the price of a line each; details of a job are read when its line has changed."""

import secrets
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from statistics import fmean

from slurm_plugin.client.job_json import Records, job_state
from slurm_plugin.client.job_text import (
    JobDetails,
    JobLines,
    Line,
    jobs_of,
    read_details,
    shown_reason,
    squeue_format,
)
from slurm_plugin.client.slurm import HOLDS_GPUS, Hold, SlurmJob, State

REREAD_LOOKS = (10, 200)
"""The details of a waiting job are read anew in one of so many looks: of a few jobs, and of a thousand.

Its line does not show that a person changes the nodes that it must not use, the throttle of its array, or
its memory from one by node to one by CPU.
"""

_REREAD_AT_ONCE = 5
"""So many jobs are read anew at each look, if that takes no fewer and no more looks than the above."""

REASONS_S = 60.0
"""A job with a description in place of its reason is asked for the reason so often."""

_MOST_CHANGED = 500
"""From more changed jobs on all are read by JSON: scontrol takes 1.5 ms for each of them."""

_OF_EACH_USER = 100
"""So many changed jobs of a user are read at a look, beside those that just got nodes; the rest at the next.

So nobody makes looks slow for others.
"""

_COMPARED = (20, 3)
"""Of so many users, and so many jobs of each, what scontrol says is compared with JSON."""

_MOST_AGREE = 0.5
"""Lines do for jobs of a kind once so many of users' jobs are shown by them as JSON does."""

_SAYS_NOTHING = dict.fromkeys(("admin_comment", "Comment", "Name", "Licenses", "nice", "Reason"), "")
"""Columns that users, or Dally, often change and that say nothing of details."""

Squeue = Callable[[str, Callable[[], object]], str]
"""Prints all jobs in a form, and calls a function once it has them all from slurmctld."""


@dataclass(frozen=True, slots=True)
class _Known:
    """A job as it was shown last.

    Attributes:
        line: Its line.
        details: What its line does not say.
        jobs: The job, or each task that the line stands for.
        settled: Its details are of its line, and need not be read again.
        certain: Its line says why it waits.
    """

    line: Line
    details: JobDetails
    jobs: tuple[SlurmJob, ...]
    settled: bool
    certain: bool


class ChangedJobs:
    """Looks at all jobs by lines, and at changed ones in detail.

    All that changes by itself is in the lines, which are of one moment. So no two jobs are ever shown on
    the same GPUs because one of them was read later than the other. Versions of Slurm differ: until scontrol
    has said of most jobs what JSON does, of those on GPUs and of the others, JSON is read at each look.

    Args:
        squeue: Prints all jobs in a form that `squeue_format` gives; calls a function once it has them.
        show_jobs: What scontrol says of some jobs, in their order.
        full: All jobs by JSON.
        clock: Seconds that never go back.
    """

    def __init__(
        self,
        squeue: Squeue,
        show_jobs: Callable[[Sequence[int]], Sequence[str]],
        full: Callable[[], Records],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._squeue, self._show_jobs, self._full, self._clock = squeue, show_jobs, full, clock
        self._lines = JobLines()
        self._known: dict[int, _Known] = {}
        self._reasons: dict[tuple[str, ...], str] = {}
        self._reasons_read_s = float("-inf")
        self._looks = 0
        self._agreed: set[bool] = set()
        self._late: set[int] = set()

    def look(self) -> Records:
        """All jobs."""
        return self.ask()()

    def ask(self, answered: Callable[[], object] = lambda: None) -> Callable[[], Records]:
        """Ask squeue; what asks for the details of changed jobs, and gives all.

        Waiting jobs whose turn it is are read anew beside squeue, whichever ends first: a job that has the
        line of the last look was waiting all the time. One whose line has changed is read again after squeue.

        Args:
            answered: Called as soon as squeue has all lines from slurmctld, if that can be seen.
        """
        key = secrets.token_urlsafe(6)
        self._looks += 1
        waiting = [number for number, known in self._known.items() if _may_be_read_again(known)]
        fewest, most = REREAD_LOOKS
        every = min(most, max(fewest, len(waiting) // _REREAD_AT_ONCE))
        turn = self._looks % every
        again = [number for number in waiting if number % every == turn] if self._agreed else []
        with ThreadPoolExecutor(1) as pool:
            said = pool.submit(self._said, again)
            text = self._squeue(squeue_format(key), answered)
        return partial(self._take, text, key, dict(zip(again, said.result(), strict=True)))

    def _take(self, text: str, key: str, said_before: Mapping[int, str]) -> Records:
        """All jobs, by what squeue printed and what scontrol said of some beside it."""
        lines = self._lines.read(text, key)
        due, late = self._due(lines)
        kinds = {job_state(state) in HOLDS_GPUS for state in {line["State"] for line in lines.values()}}
        by_json = len(due) > _MOST_CHANGED or not kinds or not kinds <= self._agreed
        if by_json or self._needs_reasons(lines.values()) or self._needs_details(lines):
            details, late = self._read_fully(lines), set()
        else:
            said = {number: each for number, each in said_before.items() if number in lines.keys() - late}
            said.update(zip(due, self._said(due), strict=True))
            details = {number: read_details(each, lines[number]) for number, each in said.items()}
        self._late = late
        stays = {
            number: known
            for number, known in self._known.items()
            if known.certain and number not in details and lines.get(number) is known.line
        }
        self._known = {
            number: stays.get(number) or self._now_known(number, line, details)
            for number, line in lines.items()
        }
        return {number: known.jobs for number, known in self._known.items()}

    def held_by_administrator(self, job_ids: Iterable[str]) -> set[str]:
        """Those of some jobs that an administrator holds, asked where the last look could not tell."""
        asked = set(job_ids)
        described = {
            job.job_id
            for known in self._known.values()
            if known.jobs and not shown_reason(known.line["Reason"])[1]
            for job in known.jobs
        }
        if described.isdisjoint(asked):
            return set()
        records = self._full()
        self._learn_reasons(records, {number: known.line for number, known in self._known.items()})
        held = {job.job_id for jobs in records.values() for job in jobs if job.hold is Hold.ADMIN}
        return held & asked

    def _due(self, lines: Mapping[int, Line]) -> tuple[list[int], set[int]]:
        """The jobs whose details are to be read now, and those that wait for a later look."""
        due: list[int] = []
        late: set[int] = set()
        counts: Counter[str] = Counter()
        for number, line in lines.items():
            if self._is_due(number, line):
                may_wait = not self._got_nodes(number, line)
                counts[line["UserName"]] += may_wait
                if may_wait and counts[line["UserName"]] > _OF_EACH_USER:
                    late.add(number)
                else:
                    due.append(number)
        return due, late

    def _is_due(self, number: int, line: Line) -> bool:
        known = self._known.get(number)
        if known is None or not known.settled or number in self._late:
            return True
        return known.line is not line and _without_our_words(known.line) != _without_our_words(line)

    def _got_nodes(self, number: int, line: Line) -> bool:
        """Whether a job may hold GPUs of which its details do not tell."""
        known = self._known.get(number)
        if job_state(line["State"]) not in HOLDS_GPUS:
            return False
        return known is None or any(known.line[column] != line[column] for column in ("State", "NodeList"))

    def _said(self, numbers: Sequence[int]) -> Sequence[str]:
        return self._show_jobs(numbers) if numbers else ()

    def _now_known(self, number: int, line: Line, read: Mapping[int, JobDetails | None]) -> _Known:
        known = self._known.get(number)
        reason, is_certain = shown_reason(line["Reason"])
        if not is_certain:
            reason = self._reasons.get(_described(line), reason)
        is_same = known is not None and known.line is line and number not in read
        if known is not None and is_same and known.jobs and known.jobs[0].reason == reason:
            return known
        array = self._known.get(int(line["ArrayJobID"]))  # of which it may have been a task until now
        source = known or array
        before = source.details if source else JobDetails()
        # None: it has left or moved on since squeue was asked, and the next look tells.
        details = read.get(number, before) or before
        settled = number not in read or read[number] is not None
        # One that is new and late is not shown: it might start where it must not.
        is_hidden = number in self._late and not (source and source.jobs)
        jobs = () if is_hidden else jobs_of(line, details, reason)
        if known is not None and known.jobs == jobs:  # read anew, and as it was: the same objects
            jobs = known.jobs
        return _Known(line, details, jobs, settled, is_certain)

    def _needs_reasons(self, lines: Collection[Line]) -> bool:
        """Whether the reasons of jobs with descriptions must be read: one cannot be guessed, or long ago."""
        descriptions = {text for text in {line["Reason"] for line in lines} if not shown_reason(text)[1]}
        described = [line for line in lines if line["Reason"] in descriptions and line["State"] == "PENDING"]
        if not described:
            return False
        if self._clock() >= self._reasons_read_s + REASONS_S:
            return True
        return any(
            not shown_reason(line["Reason"])[0] and _described(line) not in self._reasons
            for line in described
        )

    def _needs_details(self, lines: Mapping[int, Line]) -> bool:
        """Whether JSON must be read for jobs of which scontrol did not tell: it is once in a while."""
        return self._clock() >= self._reasons_read_s + REASONS_S and any(
            not known.settled and lines.get(number) is known.line for number, known in self._known.items()
        )

    def _read_fully(self, lines: Mapping[int, Line]) -> dict[int, JobDetails | None]:
        """The details of all jobs, by JSON."""
        records = self._full()
        self._learn_reasons(records, lines)
        details: dict[int, JobDetails | None] = dict.fromkeys(lines)
        read: dict[bool, dict[str, list[int]]] = {True: {}, False: {}}
        for number, line in lines.items():
            if jobs := records.get(number):
                shown = jobs_of(line, JobDetails.of(jobs[0]), "")
                if shown and (shown[0].state, shown[0].nodes) == (jobs[0].state, jobs[0].nodes):
                    details[number] = JobDetails.of(jobs[0])
                    read[jobs[0].state in HOLDS_GPUS].setdefault(line["UserName"], []).append(number)
        for holds, of_users in read.items():
            if holds not in self._agreed and of_users and self._agree(of_users, lines, records):
                self._agreed.add(holds)
        return details

    def _agree(
        self, of_users: Mapping[str, Sequence[int]], lines: Mapping[int, Line], records: Records
    ) -> bool:
        """Whether lines and scontrol say what JSON says, of the jobs of most users: no single one decides."""
        users, most = _COMPARED
        asked = [each for numbers in islice(of_users.values(), users) for each in numbers[:most]]
        agrees: dict[str, list[bool]] = {}
        for number, said in zip(asked, self._show_jobs(asked), strict=True):
            line, jobs = lines[number], records[number]
            details = read_details(said, line)
            shown = jobs_of(line, details, "") if details == JobDetails.of(jobs[0]) else ()
            same = [*map(_compared, shown)] == [*map(_compared, jobs)]
            agrees.setdefault(line["UserName"], []).append(same)
        return fmean(map(fmean, agrees.values())) >= _MOST_AGREE

    def _learn_reasons(self, records: Records, lines: Mapping[int, Line]) -> None:
        self._reasons_read_s = self._clock()
        self._reasons = {
            _described(line): records[number][0].reason
            for number, line in lines.items()
            if records.get(number) and not shown_reason(line["Reason"])[1]
        }


def _may_be_read_again(known: _Known) -> bool:
    return known.settled and bool(known.jobs) and known.jobs[0].state is State.PENDING


def _without_our_words(line: Line) -> dict[str, str]:
    """A line without what often changes and says nothing of details."""
    return {**line, **_SAYS_NOTHING}


def _compared(job: SlurmJob) -> SlurmJob:
    """A job without what JSON tells in other words, or not: in 22.05 CPUs by task and switches."""
    return replace(job, state_name="", reason="", hold=Hold.NONE, cpus_per_task=1, switches=0)


def _described(line: Line) -> tuple[str, ...]:
    return line["JobID"], line["SubmitTime"], line["Reason"]
