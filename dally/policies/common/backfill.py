"""EASY backfill: one reservation, for the job at the head, that jobs behind it must not delay.

Source: Lifka, The ANL/IBM SP Scheduling System, 1995; Mu'alem and Feitelson, IEEE TPDS 12(6), 2001.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from math import inf

from dally.cluster.free import FreeGpus
from dally.cluster.topology import Allocation
from dally.jobs.job import Gang, Job
from dally.policies.common.placements import Gains

Release = tuple[float, Allocation]
"""When GPUs come free (seconds), as predicted, and which."""


@dataclass(frozen=True, slots=True)
class PromisedGpus:
    """GPUs promised to the head job.

    Attributes:
        shadow_s: When it can start at the latest, if the predictions hold; inf if that is unknown.
        domain: The domain it will start in.
        level: That domain's level.
        gang: What it asks for.
        extra: GPUs in the domain that it accepts and will leave free at the shadow time; 0 for a gang of
            equal shares, or one that shares its blocks with nobody, which any job there could break.
    """

    shadow_s: float
    domain: int
    level: int
    gang: Gang
    extra: int

    def refuses(self, free: FreeGpus, gpus: int, end_s: float) -> bool:
        """Whether no placement of so many GPUs until `end_s` would do, whatever it is: a quick first test."""
        anywhere = self.level == free.topology.top and free.accepted(self.gang) is None
        return anywhere and end_s > self.shadow_s and gpus > self.extra

    def after(self, free: FreeGpus, allocation: Allocation, end_s: float) -> "PromisedGpus | None":
        """What is left of the promise if a job takes GPUs until `end_s`; None if that delays the head."""
        if end_s <= self.shadow_s:
            return self
        topology, accepted = free.topology, None if self.gang.whole_blocks else free.accepted(self.gang)
        used = sum(
            gpus
            for machine, gpus in free.taken_by(allocation)
            if (accepted is None or topology.machines[machine].name in accepted)
            and topology.ancestors[machine][self.level] == self.domain
        )
        if used > self.extra:
            return None
        return PromisedGpus(self.shadow_s, self.domain, self.level, self.gang, self.extra - used)


def reserve(free: FreeGpus, job: Job, level: int, released: Iterable[Release]) -> PromisedGpus:
    """The reservation of a head job: the first domain of `level` that will have enough GPUs.

    Args:
        free: What is free now.
        job: The head job.
        level: It starts within one domain of this level.
        released: When GPUs come free, soonest first.
    """
    level = max(min(level, free.highest(job.gang)), int(job.gang.whole_blocks))
    gains = Gains(free, job.gang, level)
    found, shadow_s = None, inf
    for end_s, allocation in released:
        if end_s > shadow_s:
            break
        domains = gains.add(allocation)
        if found is None and domains:
            found, shadow_s = domains[0], end_s
    if found is None:
        return PromisedGpus(inf, free.topology.root.index, free.topology.top, job.gang, 0)
    is_open = job.gang.per_machine is None and not job.gang.whole_blocks
    extra = gains.spare(found) if is_open else 0
    return PromisedGpus(shadow_s, found, level, job.gang, extra)
