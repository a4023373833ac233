"""Rolls for tests: jobs with linear speeds unless told otherwise."""

from collections.abc import Sequence

import numpy as np
from hypothesis import strategies as st

from dally.policies.ones.job_arrays import JobArrays


def arrays(
    capacity: int,
    least: Sequence[int],
    most: Sequence[int],
    limit: Sequence[int] | None = None,
    new: Sequence[bool] | None = None,
    left_s: Sequence[float] | None = None,
    step: Sequence[int] | None = None,
    numbers: Sequence[int] | None = None,
    held: Sequence[int] | None = None,
    resize_s: float = 0.0,
    restart_s: float = 0.0,
) -> JobArrays:
    """Jobs whose speed is the number of their GPUs; old unless new, waiting unless they hold some."""
    jobs = len(least)
    fresh = np.array(new if new is not None else [False] * jobs)
    rows = [np.arange(each + 1, dtype=float) for each in most]
    return JobArrays(
        capacity=capacity,
        numbers=np.array(numbers if numbers is not None else range(jobs)),
        least=np.array(least),
        step=np.array(step if step is not None else [1] * jobs),
        limit=np.array(limit if limit is not None else most),
        most=np.array(most),
        held=np.array(held if held is not None else [0] * jobs),
        resize_s=np.full(jobs, resize_s),
        restart_s=np.full(jobs, restart_s),
        new=fresh,
        shrinks=np.array(least) < np.array(most),
        old=~fresh,
        left_s=np.array(left_s if left_s is not None else [1.0] * jobs),
        speeds=np.concatenate(rows),
        offsets=np.cumsum([0, *map(len, rows[:-1])]),
    )


@st.composite
def job_arrays(draw: st.DrawFn) -> JobArrays:
    """Up to eight jobs on up to sixteen GPUs."""
    jobs = draw(st.integers(1, 8))
    step = [draw(st.integers(1, 2)) for _ in range(jobs)]
    least = [draw(st.integers(1, 4)) * each for each in step]
    limit = [low + draw(st.integers(0, 3)) * each for low, each in zip(least, step, strict=True)]
    most = [low + draw(st.integers(0, 3)) * each for low, each in zip(limit, step, strict=True)]
    return arrays(
        capacity=draw(st.integers(1, 16)),
        least=least,
        most=most,
        limit=limit,
        step=step,
        new=[draw(st.booleans()) for _ in range(jobs)],
        left_s=[draw(st.integers(0, 9)) * 100.0 for _ in range(jobs)],
        numbers=draw(st.permutations(range(jobs))),
    )
