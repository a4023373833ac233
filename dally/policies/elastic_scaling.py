"""Elastic scaling: sizes with the greatest sum of speed-ups, by dynamic programming."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf

import numpy as np

from dally.policies.common.gpu_pool import Pool
from dally.policies.common.growth import SizeValues, share_out
from dally.policies.common.in_sizes import InSizes, remaining_s
from dally.policies.common.knobs import knob
from dally.policies.common.sizing import SizeTarget
from dally.profiles.goodput import Batching
from dally.state import JobState
from dally.words import plural


@dataclass(frozen=True, slots=True)
class ElasticScalingKnobs:
    """Settings of `elastic-scaling`."""

    interval_s: float = knob(60.0, "how often all jobs are sized anew though nothing happens, s", above=0)


class ElasticScaling(InSizes):
    """Sizes the jobs anew when one arrives or ends, and at each interval.

    The sum of the jobs' speed-ups over one GPU, each at the best batch that it may have there, is greatest.
    Jobs whose least sizes do not fit wait in order of arrival. The batch goes with the GPUs, within limits.
    """

    name = "elastic-scaling"
    summary = "Sizes and batches of all jobs with the greatest sum of speed-ups."
    source = "Saxena et al., Effective elastic scaling of deep learning workloads, arXiv 2006.13878, 2020"
    knobs_type = ElasticScalingKnobs
    batching = Batching.LINEAR
    plans_by = "samples left, and speeds on each number of GPUs"
    eager = True
    in_turn = True

    def allocate(self, jobs: Sequence[JobState], pool: Pool, now: float) -> Mapping[str, SizeTarget]:
        """Sizes by dynamic programming over jobs and GPUs, by their speed-ups over one GPU.

        The least size, if it is more, counts as if the job scaled perfectly up to it. A resize counts as the
        speed that it leaves over the rest of the job.
        """
        wants = []
        for job in jobs:
            row, left_s = self.speeds.row(job, now), self.left_s(job, now, pool.total)
            least = int(np.flatnonzero(row)[0])
            speeds = remaining_s(job, now) / left_s
            worth = np.where(speeds > 0, speeds / row[least] * least, -inf)
            wants.append(SizeValues(worth, job.job.gpu_type))
        sizes = share_out(wants, pool)
        total = sum(float(want.worth[size]) for want, size in zip(wants, sizes, strict=True))
        among = f"{plural(len(jobs), 'job')} on {plural(pool.total, 'GPU')}"
        why = f"greatest sum of speed-ups, {total:.4g} of {among}"
        return {job.job_id: SizeTarget(size, why) for job, size in zip(jobs, sizes, strict=True)}
