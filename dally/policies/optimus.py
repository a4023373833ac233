"""Optimus: GPUs one by one to the job whose remaining time each shortens most."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dally.policies.common.gpu_pool import Pool
from dally.policies.common.growth import SizeValues, climb
from dally.policies.common.in_sizes import InSizes
from dally.policies.common.knobs import knob
from dally.policies.common.sizing import SizeTarget, held_gpus
from dally.profiles.goodput import Batching
from dally.state import JobState
from dally.words import plural


@dataclass(frozen=True, slots=True)
class OptimusKnobs:
    """Settings of `optimus`."""

    interval_s: float = knob(600.0, "how often all jobs are sized anew, s; 60 in Pollux's simulator", above=0)


class Optimus(InSizes):
    """Sizes the jobs greedily at each interval.

    Each job gets its least size, then the step goes to whoever gains the most seconds of remaining time per
    GPU by it, until there are no GPUs or no gains. Who runs is not stopped; waiting jobs are admitted by
    their least sizes, smallest first. The batch stays. Remaining work is known exactly (Optimus+Oracle).
    """

    name = "optimus"
    summary = "GPUs one by one to the job whose remaining time each shortens most."
    source = (
        "Peng et al., Optimus: an efficient dynamic resource scheduler for deep learning clusters, EuroSys "
        "2018; with an oracle for the work left, as compared with in Qiao et al., Pollux, OSDI 2021"
    )
    knobs_type = OptimusKnobs
    batching = Batching.FIXED
    plans_by = "samples left, and speeds on each number of GPUs"
    eager = False
    in_turn = False

    def rank(self, job: JobState) -> tuple[float, ...]:
        """Smallest first."""
        return (job.job.least_gpus,)

    def wait_reason(self, job: JobState) -> str:
        return "smaller jobs go first, then those who came before"

    def allocate(self, jobs: Sequence[JobState], pool: Pool, now: float) -> Mapping[str, SizeTarget]:
        """Sizes by marginal gain; none if nobody waits and the changes would cost more than they gain."""
        left_s = [self.left_s(job, now, pool.total) for job in jobs]
        wants = [SizeValues(-row, job.job.gpu_type) for row, job in zip(left_s, jobs, strict=True)]
        sizes = climb(wants, pool)
        held = [held_gpus(job) for job in jobs]
        if all(held):
            after, before = (
                sum(row[size] for row, size in zip(left_s, some, strict=True)) for some in (sizes, held)
            )
            sizes = sizes if after < before else held
        among = f"{plural(len(jobs), 'job')} on {plural(pool.total, 'GPU')}"
        why = f"greatest gain in remaining time per GPU, among {among}"
        return {job.job_id: SizeTarget(size, why) for job, size in zip(jobs, sizes, strict=True)}
