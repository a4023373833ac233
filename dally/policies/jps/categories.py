"""Categories: how many workers each job gets, without saying which. All of them, drawn ones, a guided one."""

from collections.abc import Iterator

import numpy as np

from dally.policies.common.arrays import Floats, Ints
from dally.policies.jps.instance import Instance, jain


def list_categories(instance: Instance) -> Iterator[Ints]:
    """All categories, the last jobs' sizes varying fastest; C(K - 1, S - 1) where sizes are unbounded."""
    least, most = instance.least.tolist(), instance.most.tolist()
    sizes = list(least)
    spans = [high - low for low, high in zip(least, most, strict=True)]
    behind = [sum(spans[job + 1 :]) for job in range(len(spans))]

    def fill(job: int, left: int) -> Iterator[Ints]:
        if job == len(least) - 1:
            yield np.array([*sizes[:job], least[job] + left])
            return
        # What the jobs behind cannot use this one must.
        for extra in range(max(0, left - behind[job]), min(left, spans[job]) + 1):
            sizes[job] = least[job] + extra
            yield from fill(job + 1, left - extra)

    return fill(0, _extra(instance))


def count_categories(instance: Instance) -> int:
    """How many categories there are."""
    ways = [1] + [0] * _extra(instance)
    for span in (instance.most - instance.least).tolist():
        sums = [0]
        for way in ways:
            sums.append(sums[-1] + way)
        ways = [sums[at + 1] - sums[max(0, at - span)] for at in range(len(ways))]
    return ways[-1]


def sample_categories(instance: Instance, rng: np.random.Generator, count: int) -> Ints:
    """(count, jobs) different categories drawn uniformly; all of them if there are no more."""
    total = count_categories(instance)
    if total <= 2 * count:
        listed = np.array([*list_categories(instance)])
        return np.asarray(listed[rng.permutation(total)[:count]])
    drawn: dict[tuple[int, ...], None] = {}
    while len(drawn) < count:
        rows = _draw(instance, rng, count - len(drawn)).tolist()
        drawn.update(dict.fromkeys(map(tuple, rows)))
    return np.array([*drawn])


def _draw(instance: Instance, rng: np.random.Generator, count: int) -> Ints:
    """(count, jobs) categories drawn uniformly, independently."""
    spans, extra = (instance.most - instance.least).tolist(), _extra(instance)
    # For each job, in how many ways those from it on can use up what is left. Only ratios within a row count:
    # each is scaled to 1, as the numbers themselves would leave floating point with many jobs.
    ways: list[Floats] = [np.concatenate([[1.0], np.zeros(extra)])]
    for span in reversed(spans):
        row = np.convolve(ways[0], np.ones(min(span, extra) + 1))[: extra + 1]
        ways.insert(0, row / row.max())
    sizes = np.tile(instance.least, (count, 1))
    for row in sizes:
        left = extra
        for job, span in enumerate(spans):
            likely = ways[job + 1][max(0, left - span) : left + 1][::-1]
            drawn = int(np.searchsorted(np.cumsum(likely), rng.random() * likely.sum(), side="right"))
            drawn = min(drawn, len(likely) - 1)
            row[job] += drawn
            left -= drawn
    return sizes


def _extra(instance: Instance) -> int:
    """Workers to hand out beyond the least ones."""
    return instance.placed - int(instance.least.sum())


def least_even_first(categories: Ints) -> Ints:
    """Categories by Jain's index of their sizes, ascending."""
    order = np.argsort([jain(sizes.astype(np.float64)) for sizes in categories], kind="stable")
    return np.asarray(categories[order])


def guided_category(instance: Instance) -> Ints:
    """Sizes in proportion to sqrt(T_i Pi_i / mean speed), within their bounds.

    That is where the sum of T_i Pi_i / (K_i * mean speed) is least for real sizes K_i of a given sum.
    """
    wish = np.sqrt(instance.work / np.maximum(instance.mean_speeds, 1e-12))
    low, high = 0.0, float((instance.most / np.maximum(wish, 1e-300)).max())
    for _ in range(60):  # bisection: the clipped sizes grow with the scale
        scale = (low + high) / 2
        if np.clip(scale * wish, instance.least, instance.most).sum() > instance.placed:
            high = scale
        else:
            low = scale
    sizes = np.clip(low * wish, instance.least, instance.most)
    # Whole sizes with the sum that is to be placed: what is cut off most gains one first.
    whole = np.floor(sizes + 1e-9).astype(np.int64)
    while (missing := instance.placed - int(whole.sum())) > 0:
        growing = np.flatnonzero(whole < instance.most)
        first = growing[np.argsort((whole - sizes)[growing], kind="stable")][:missing]
        whole[first] += 1
    return whole
