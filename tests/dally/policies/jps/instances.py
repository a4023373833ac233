"""Random instances of multi-job placement, and one that is computed by hand."""

import numpy as np
from hypothesis import strategies as st

from dally.policies.jps.instance import Instance

BY_HAND = Instance(
    speeds=np.array([[1.0, 2.0], [1.0, 4.0]]),
    workers=np.array([2, 2]),
    work=np.array([12.0, 12.0]),
    comm_s=np.array([4.0, 0.0]),
    least=np.array([1, 1]),
    most=np.array([3, 3]),
)
"""Two slow and two fast workers. The second job gains more by fast ones; the first communicates.

Sizes 2 and 2: one of each for both, 12 / 3 + 4 / 2 = 6 s and 12 / 5 = 2.4 s; 8.4 s in sum. With the slow ones
for the first and the fast ones for the second, 12 / 2 + 4 / 2 = 8 s and 12 / 8 = 1.5 s, it would be 9.5 s.
Sizes 1 and 3: the first a fast one, 6 s; the second the rest, 12 / 6 = 2 s; 8 s in sum is the least of all.
Sizes 3 and 1: the first 12 / 4 + 4 * 2 / 3 = 5.67 s, the second 12 / 4 = 3 s; 8.67 s in sum.
"""


@st.composite
def instances(draw: st.DrawFn, most_jobs: int = 3, most_workers: int = 6, most_kinds: int = 3) -> Instance:
    """Small instances; all workers are accepted by all jobs, sizes are bounded by their number alone."""
    jobs = draw(st.integers(1, most_jobs))
    kinds = draw(st.integers(1, most_kinds))
    total = draw(st.integers(max(jobs, kinds), most_workers))
    cuts = sorted(draw(st.permutations(range(1, total)))[: kinds - 1])
    speed = st.integers(1, 40).map(lambda tenths: tenths / 10)
    rows = st.lists(st.lists(speed, min_size=kinds, max_size=kinds), min_size=jobs, max_size=jobs)
    numbers = st.lists(st.integers(1, 100).map(float), min_size=jobs, max_size=jobs)
    return Instance(
        speeds=np.array(draw(rows)),
        workers=np.diff([0, *cuts, total]),
        work=np.array(draw(numbers)),
        comm_s=np.array(draw(numbers)) - 1,
        least=np.ones(jobs, dtype=np.int64),
        most=np.full(jobs, total - jobs + 1),
    )


@st.composite
def bounded(draw: st.DrawFn) -> Instance:
    """Instances whose jobs have least and most sizes."""
    instance = draw(instances(most_jobs=4, most_workers=12))
    jobs, total = len(instance.work), int(instance.workers.sum())
    spare = total - jobs
    least = [1 + draw(st.integers(0, spare // jobs)) for _ in range(jobs)]
    most = [low + draw(st.integers(0, total)) for low in least]
    return Instance(
        instance.speeds, instance.workers, instance.work, instance.comm_s, np.array(least), np.array(most)
    )
