"""How many GPUs ONES lets a job have: doubled as it reaches them, fewer once it ran longer than others.

Source: Bian et al., ONES, SC 2021; when limits are worked out anew is a reconstruction.
"""

from dataclasses import asdict, dataclass
from typing import Any

from dally.jobs.job import Job, JobKind
from dally.profiles.costs import CostModel

ASKED_FACTOR = 4
"""GPUs that an elastic job may have at most, over those it asked for."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """What a job can run on, GPUs: from `least` to `most` by steps of `step`."""

    least: int
    most: int
    step: int

    @classmethod
    def of(cls, job: Job, costs: CostModel) -> "Sizes":
        """Those of a job; one that is not elastic has one size, that of one copy if it is forked."""
        step = job.gang.per_machine or 1
        if job.kind is not JobKind.ELASTIC:
            return cls(job.gpus, job.gpus, step)
        most = min(costs.most_gpus(job), ASKED_FACTOR * job.gpus) // step * step
        return cls(-(-job.least_gpus // step) * step, most, step)


@dataclass(slots=True)
class SizeLimits:
    """What the policy remembers of a job.

    Attributes:
        number: By which candidates know it.
        limit: R, the GPUs that it may have as long as others want some.
        largest: max_size, the GPUs that it may have if they are left over.
        scheduled: How much of it was done when it was last started or changed, 0 to 1.
    """

    number: int
    limit: int
    largest: int
    scheduled: float = 0.0

    def grow(self, sizes: Sizes, held: int) -> None:
        """It runs on so many GPUs: double what it reached."""
        if held >= self.largest:
            self.largest = min(2 * self.largest, sizes.most)
        self.limit = self.largest

    def shrink(self, sizes: Sizes, held: int, run_s: float, median_s: float, strength: float) -> None:
        """Give it less if it has run for longer than the median job.

        Args:
            sizes: What it can run on.
            held: Its GPUs.
            run_s: How long it has run, seconds.
            median_s: How long jobs like it have, seconds.
            strength: sigma.
        """
        if run_s > median_s > 0:
            less = max(1, int(2 * held / (strength * run_s / median_s + 1)))
            self.limit = max(sizes.least, min(self.limit, less + less % 2))

    def halve(self, sizes: Sizes) -> None:
        """It was stopped."""
        self.limit = max(sizes.least, self.limit // 2)

    def plain(self) -> dict[str, Any]:
        """Its fields, for JSON."""
        return asdict(self)
