"""The jobs of a run in blocks of submission: batch means, from which intervals come that one run can give."""

from dataclasses import dataclass

from dally.runs.records import JobRecord

COUNT = 8


@dataclass(frozen=True, slots=True)
class Block:
    """Jobs that were submitted one after the other, of those that completed; times in seconds.

    Attributes:
        jobs: How many did.
        jct_mean_s: Mean completion time.
        queue_mean_s: Mean time waiting.
    """

    jobs: int
    jct_mean_s: float
    queue_mean_s: float


class Blocks:
    """Sums over equally many jobs in order of submission, the same jobs under every policy.

    Args:
        jobs: How many jobs there are.
        together: They are all submitted at once: then they are one block, as none comes before another.
    """

    def __init__(self, jobs: int, together: bool) -> None:
        self._jobs = jobs
        self._sums = [(0, 0.0, 0.0)] * (1 if together or jobs < COUNT else COUNT)

    def add(self, number: int, record: JobRecord) -> None:
        """Take the record of the job of this number, counted by submission."""
        if record.status == "COMPLETED":
            at = number * len(self._sums) // self._jobs
            count, jct_s, queue_s = self._sums[at]
            self._sums[at] = count + 1, jct_s + record.jct_s, queue_s + record.queue_s

    def means(self) -> tuple[Block, ...]:
        """The blocks in order; empty ones have times of 0."""
        return tuple(
            Block(count, jct_s / (count or 1), queue_s / (count or 1)) for count, jct_s, queue_s in self._sums
        )
