"""The service that a job has attained in Tiresias's queues, and its place in their order."""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from math import inf

from dally.errors import InputError

LIMITS: Mapping[str, tuple[float, ...]] = {
    "published": (3250.0, 7200.0),
    "pollux": (57_600.0,),
    "none": (),
}
"""Attained service at which a job leaves each queue but the last, GPU-seconds, by name.

Source: SymbioticLab/Tiresias, simulator/jobs.py, three queues; petuum/adaptdl, branch osdi21-artifact,
simulator/tiresias.py, two queues of which the first ends at 16 GPU-hours.
"""


def queue_limits(knob: str) -> tuple[float, ...]:
    """The limits that a name or a list like 3600+36000 stands for, GPU-seconds.

    Raises:
        InputError: It is neither, or the numbers do not rise.
    """
    if knob in LIMITS:
        return LIMITS[knob]
    try:
        limits = tuple(map(float, knob.split("+")))
    except ValueError:
        limits = ()
    if not limits or not all(low < high for low, high in pairwise((0.0, *limits, inf))):
        raise InputError(
            f"knob limits is {knob!r}, must be {', '.join(LIMITS)}, or rising GPU-seconds like 3600+36000"
        )
    return limits


@dataclass(slots=True)
class AttainedService:
    """What a job has got since it was last in the top queue as new.

    What follows from time alone (`queue`, `promoted_s`, `due_s`) is brought up to date by each decision; the
    rest changes with facts only.

    Attributes:
        highest: The highest level it accepts.
        entered_s: When it entered the top queue: its arrival, or the promotion before its last start.
        start_s: Its first start since then; inf if it has not started.
        trained_before_s: Its training time before `entered_s`, which does not count.
        pending_s: How long it waited since its start, the present wait left out.
        queue: Its queue, 0 at the top.
        promoted_s: When it went back to the top queue in the present wait; inf if it did not.
        due_s: When it changes queue next, if it goes on as it does; inf if never.
    """

    highest: int
    entered_s: float
    start_s: float = inf
    trained_before_s: float = 0.0
    pending_s: float = 0.0
    queue: int = 0
    promoted_s: float = inf
    due_s: float = inf

    @property
    def present_queue(self) -> int:
        """The job's queue now: the top one again if it went back there in the present wait."""
        return 0 if self.promoted_s < inf else self.queue

    def key(self) -> tuple[float, ...]:
        """What jobs are ordered by: queue, start, entry into the top queue."""
        if self.promoted_s < inf:
            return 0, inf, self.promoted_s
        return self.queue, self.start_s, self.entered_s

    def start(self, now: float, waited_s: float, trained_before_s: float) -> None:
        """The job starts after a wait; a promotion in that wait becomes a fact."""
        if self.promoted_s < inf:
            self.entered_s, self.start_s, self.promoted_s = self.promoted_s, inf, inf
            self.trained_before_s, self.pending_s, self.queue = trained_before_s, 0.0, 0
        if self.start_s < inf:
            self.pending_s += waited_s
        self.start_s = min(self.start_s, now)
