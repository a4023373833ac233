"""The nets by which forked training is judged: each a workload, its samples and how long it is trained."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from workloads.digits import write_digits
from workloads.topics import write_topics


@dataclass(frozen=True, slots=True)
class NetWithSamples:
    """A net and its samples, which come with a package that training needs anyway.

    Attributes:
        name: Of the workload.
        write: Writes its samples to a file.
        batch: Samples of a step.
        lengths: Steps of a job, all copies together, at which its quality is compared.
        rates: Speeds of the nodes on which copies are timed.
        steps: Of a job that is timed.
        pace_s: Seconds of a step on the fastest node; its compute, of all copies at once, takes less.
        slots_s: Lengths of slots that are timed.
    """

    name: str
    write: Callable[[Path], None]
    batch: int
    lengths: tuple[int, ...]
    rates: tuple[float, ...]
    steps: int
    pace_s: float
    slots_s: tuple[float, ...]


UNEQUAL = (1.0, 1.0, 0.5, 0.5, 0.25)
EQUAL = (1.0, 1.0, 1.0, 1.0)

_ALL = (
    NetWithSamples("digits", write_digits, 32, (150, 300, 900), UNEQUAL, 900, 0.05, (1.0, 2.0, 8.0)),
    NetWithSamples("resnet8", partial(write_digits, moved=True), 32, (300, 900), EQUAL, 200, 0.3, (6.0,)),
    NetWithSamples("chargpt", write_topics, 16, (200, 600), EQUAL, 200, 0.3, (6.0,)),
)
NETS: Mapping[str, NetWithSamples] = {net.name: net for net in _ALL}

SEEDS = (1, 2, 3)
