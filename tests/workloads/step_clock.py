"""A clock for tests of what lasts, which other work on the machine does not move."""


class StepClock:
    """A clock that only sleep moves, and each sleep is late."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.late_s = 0.0002

    def perf_counter(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds + self.late_s
