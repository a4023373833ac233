"""What happened to each job in words, packed so that a page unfolds only those that somebody opens."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from analysis.report.packing import deflated
from dally.commands.why import event_text
from dally.words import moment

BLOCK = 256
"""Jobs of which the timelines lie in one block."""
MOST_LINES = 60
"""Lines of a timeline at most; of a longer one the middle is left out."""
MOST_BYTES = 12_000_000
"""Size of all timelines of a report, packed; beyond it, those of the jobs that waited least are left out."""

LEFT_OUT = "\x00"
"""Stands for the timeline of a job that is left out."""


class JobTimelines:
    """The events of a run's jobs in words, added event by event."""

    def __init__(self, numbers: Mapping[str, int]) -> None:
        """Begin with nothing; `numbers` are those of the jobs by name."""
        self._numbers = numbers
        self._lines: defaultdict[int, list[str]] = defaultdict(list)

    def add(self, event: Mapping[str, Any]) -> None:
        """Take in the next event: it belongs to its job, and to those that took its GPUs."""
        for name in dict.fromkeys([event.get("job", ""), *event.get("by", ())]):
            if (job := self._numbers.get(name)) is not None:
                self._lines[job].append(f"{event['t']:.0f}\t{event_text(event, name, moment)}")

    def texts(self) -> list[str]:
        """For each job a line per event: seconds, tab, words."""
        half, texts = MOST_LINES // 2, []
        for job in range(len(self._numbers)):
            lines = self._lines[job]
            if len(lines) > MOST_LINES:
                at = lines[half].partition("\t")[0]
                lines = [*lines[:half], f"{at}\t… {len(lines) - 2 * half:,} more events …", *lines[-half:]]
            texts.append("\n".join(lines))
        return texts


def pack_timelines(texts: Sequence[Sequence[str]], waited_s: Sequence[float]) -> tuple[list[list[str]], int]:
    """Pack the timelines of all runs.

    Args:
        texts: For each run, the timeline of each job.
        waited_s: How long each job waited, over all runs; if room is short, the longest waits stay.

    Returns:
        For each run its blocks of `BLOCK` jobs each, and how many jobs are left out.
    """
    packed = [_blocks(run) for run in texts]
    size = sum(len(block) for blocks in packed for block in blocks)
    if size <= MOST_BYTES:
        return packed, 0
    kept = int(len(waited_s) * MOST_BYTES / size)
    order = sorted(range(len(waited_s)), key=lambda job: -waited_s[job])
    told_of = set(order[:kept])
    fewer = [[text if job in told_of else LEFT_OUT for job, text in enumerate(run)] for run in texts]
    return [_blocks(run) for run in fewer], len(waited_s) - kept


def _blocks(texts: Sequence[str]) -> list[str]:
    return [
        deflated("\x01".join(texts[start : start + BLOCK]).encode()) for start in range(0, len(texts), BLOCK)
    ]
