"""The links that a plan crosses outside of machines, and what it sends over them."""

from dataclasses import dataclass
from math import inf


@dataclass(frozen=True, slots=True)
class Tier:
    """The domains of one level that hold a plan's ranks, machines or racks, and the links that lead out.

    Attributes:
        domains: The number of each machine's domain, in the order of ranks.
        bytes_per_s: Out of the slowest domain, for all of the plan's ranks there, each way; infinite where
            nothing limits it.
        rank_bytes_per_s: What one rank can send at most, where it is least.
    """

    domains: tuple[int, ...]
    bytes_per_s: float
    rank_bytes_per_s: float = inf


@dataclass(frozen=True, slots=True)
class TierTraffic:
    """What an axis sends out of machines in a step.

    Attributes:
        seconds: That its collectives which leave a machine take, hidden by compute or not.
        sent: Bytes out of one machine, one rack, and so on: out of the one that sends most.
    """

    seconds: float
    sent: tuple[float, ...]
