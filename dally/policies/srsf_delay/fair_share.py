"""Fair shares: how many GPUs each user or group holds, and who has more than an equal part."""

from collections import Counter

from dally.state import JobState


class FairShare:
    """GPUs held and jobs known, by owner; an equal part is all GPUs over the owners that have any job.

    Args:
        gpus: GPUs of the cluster.
        field: Of a job: `user` or `group`; `none` lets everybody be one owner.
    """

    def __init__(self, gpus: int, field: str) -> None:
        self._gpus, self._field = gpus, field
        self._held: Counter[str] = Counter()
        self._jobs: Counter[str] = Counter()

    def of(self, job: JobState) -> str:
        """The user or group that a job belongs to."""
        return "" if self._field == "none" else str(getattr(job.job, self._field))

    def arrived(self, job: JobState) -> None:
        """A job has arrived."""
        self._jobs[self.of(job)] += 1

    def left(self, job: JobState) -> None:
        """A job has ended or was withdrawn."""
        self._jobs[self.of(job)] -= 1
        if not self._jobs[self.of(job)]:
            del self._jobs[self.of(job)]

    def held(self, job: JobState, gpus: int) -> None:
        """A job's owner holds so many GPUs more, or fewer if negative."""
        self._held[self.of(job)] += gpus

    def over(self, job: JobState, gpus: int = 0) -> bool:
        """Whether a job's owner holds more than an equal part, or would with `gpus` more."""
        if self._field == "none":
            return False
        return (self._held[self.of(job)] + gpus) * len(self._jobs) > self._gpus

    def any_over(self) -> bool:
        """Whether any owner holds more than an equal part."""
        return self._field != "none" and any(
            held * len(self._jobs) > self._gpus for held in self._held.values()
        )
