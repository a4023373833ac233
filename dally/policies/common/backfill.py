"""EASY backfill: one reservation, for the job at the head, that jobs behind it must not delay.

Source: Lifka, The ANL/IBM SP Scheduling System, 1995; Mu'alem and Feitelson, IEEE TPDS 12(6), 2001.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from math import inf

from dally.cluster.free import FreeGpus
from dally.cluster.topology import Allocation, Topology
from dally.jobs.job import Job
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
        gpu_type: The type of GPU it needs; None for any.
        extra: GPUs of that kind in the domain that it will leave free at the shadow time; 0 for a gang of
            equal shares, which any job there could break.
    """

    shadow_s: float
    domain: int
    level: int
    gpu_type: str | None
    extra: int

    def refuses(self, topology: Topology, gpus: int, end_s: float) -> bool:
        """Whether no placement of so many GPUs until `end_s` would do, whatever it is: a quick first test."""
        anywhere = self.level == topology.top and self.gpu_type is None
        return anywhere and end_s > self.shadow_s and gpus > self.extra

    def after(self, topology: Topology, allocation: Allocation, end_s: float) -> "PromisedGpus | None":
        """What is left of the promise if a job takes GPUs until `end_s`; None if that delays the head."""
        if end_s <= self.shadow_s:
            return self
        used = sum(
            gpus
            for machine, gpus in allocation
            if self.gpu_type in (None, topology.machines[machine].gpu_type)
            and topology.ancestors[machine][self.level] == self.domain
        )
        if used > self.extra:
            return None
        return PromisedGpus(self.shadow_s, self.domain, self.level, self.gpu_type, self.extra - used)


def reserve(free: FreeGpus, job: Job, level: int, released: Iterable[Release]) -> PromisedGpus:
    """The reservation of a head job: the first domain of `level` that will have enough GPUs.

    Args:
        free: What is free now.
        job: The head job.
        level: It starts within one domain of this level.
        released: When GPUs come free, soonest first.
    """
    level = min(level, free.topology.widest)
    gains = Gains(free, job.gang, level)
    found, shadow_s = None, inf
    for end_s, allocation in released:
        if end_s > shadow_s:
            break
        domain = gains.add(allocation)
        if found is None and domain is not None:
            found, shadow_s = domain, end_s
    if found is None:
        return PromisedGpus(inf, free.topology.root.index, free.topology.top, job.gpu_type, 0)
    extra = gains.spare(found) if job.gang.per_machine is None else 0
    return PromisedGpus(shadow_s, found, level, job.gpu_type, extra)
