"""What an iteration communicates, event by event: the part of a profile that version 2 added."""

from dataclasses import dataclass

from dally.errors import InputError
from dally.jobs.parallelism import Axis
from dally.profiles.collectives import CollectiveKind

_SILENT = (CollectiveKind.RECEIVE, CollectiveKind.OTHER)


@dataclass(frozen=True, slots=True)
class Event:
    """A collective of an iteration, of all groups of its kind at once.

    Times are on the clock of compute alone, seconds from the start of the iteration: what lies between two of
    them is a segment of compute.

    Attributes:
        collective: What the ranks of a group do.
        bytes: Of the whole tensor: what an all-gather leaves on each rank, and all others begin with.
        axis: What the ranks of a group share.
        size: Ranks of a group.
        stride: From one of them to the next.
        ready_s: When compute hands it over.
        needed_s: When compute cannot go on without it; None: the optimizer waits for it. Of a message on the
            clock of the stage that gets it, which does not take it before.
        stage: The pipeline stage whose ranks do it, on whose clock `ready_s` is; None: all do the same.
        to: The stage that a message goes to; None if it is none, or all stages send alike.
        loads: What each rank of the job gets from all of its group, or sends to all, over the mean of the
            group: of experts whose load is uneven. Empty: as much as the others.
        sent_s: When the stage that sends a message cannot go on before it is sent; None: it never waits.
    """

    collective: CollectiveKind
    bytes: int
    axis: Axis
    size: int
    stride: int
    ready_s: float
    needed_s: float | None = None
    stage: int | None = None
    to: int | None = None
    loads: tuple[float, ...] = ()
    sent_s: float | None = None

    def __post_init__(self) -> None:
        if self.collective in _SILENT:
            raise InputError(f"collective is {self.collective}, which sends nothing")
        for name in ("bytes", "stride"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} is {getattr(self, name)}, must be positive")
        if self.size < 2:
            raise InputError(f"size is {self.size}, must be 2 or more")
        if self.to is not None:
            self._check_message()
        elif self.sent_s is not None:
            raise InputError("an event with sent_s has to, too")
        elif self.needed_s is not None and self.needed_s < self.ready_s:
            raise InputError(f"needed_s is {self.needed_s:g}, must not be before ready_s {self.ready_s:g}")

    def _check_message(self) -> None:
        if self.stage is None or self.needed_s is None:
            raise InputError("an event with to has stage and needed_s, too")
        if self.stage == self.to:
            raise InputError(f"stage and to are both {self.stage}")
        if self.sent_s is not None and self.sent_s < self.ready_s:
            raise InputError(f"sent_s is {self.sent_s:g}, must not be before ready_s {self.ready_s:g}")


@dataclass(frozen=True, slots=True)
class CollectiveTime:
    """How long a collective of so many bytes took, the median of n, seconds."""

    bytes: int
    median_s: float
    n: int

    def __post_init__(self) -> None:
        if self.bytes < 1 or self.median_s <= 0:
            raise InputError(f"bytes {self.bytes} and median_s {self.median_s:g} must be positive")


@dataclass(frozen=True, slots=True)
class CollectiveCurve:
    """How long a collective takes by its bytes, as measured between ranks that lie so.

    Attributes:
        collective: What they do.
        size: Ranks of a group.
        machines: On which a group lies.
        tier: machine, rack or network: in which all of a group lies.
        bandwidth_bps: Of the slowest link between them; None inside a machine.
        times: By ascending bytes.
    """

    collective: CollectiveKind
    size: int
    machines: int
    tier: str
    bandwidth_bps: float | None
    times: tuple[CollectiveTime, ...]

    def __post_init__(self) -> None:
        sizes = [each.bytes for each in self.times]
        if not sizes or sizes != sorted(set(sizes)):
            raise InputError("times is empty, or not sorted by bytes, each once")
