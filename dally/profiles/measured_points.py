"""Which measured points speak for a shape, and how to carry them over to it."""

import math
from collections.abc import Sequence

from dally.cluster.topology import Link, Shape, slowest
from dally.profiles.allreduce import ring_factor
from dally.profiles.schema import TIERS, Point, PointLink

_SAME = 0.01
"""Two links are the same if they differ by no more than this fraction."""


Blend = Sequence[tuple[float, Point]]
"""Measured points, each after its weight; weights sum to 1, and may be negative where a line goes on."""


def tier_of(shape: Shape) -> str:
    """The tier of measurements that speaks for a shape; levels above the rack all count as network."""
    return TIERS[min(shape.level, len(TIERS) - 1)]


def crossed_link(shape: Shape) -> Link | None:
    """The least bandwidth and greatest latency of the links a gang crosses; None if it crosses none."""
    return slowest([ring.link for ring in shape.rings]) if shape.rings else None


def same_spread(point: Point, shape: Shape) -> bool:
    """Whether a point was measured with the GPUs spread exactly so."""
    spread = (point.shape.gpus_per_node,) * point.shape.nodes
    racks = point.shape.racks
    return spread == shape.machines and racks in (None, max(1, len(shape.racks)))


def same_link(link: PointLink | None, shape: Shape) -> bool:
    """Whether a point's link is the shape's; an unknown one counts as the same."""
    crossed = crossed_link(shape)
    if link is None or crossed is None:
        return True
    latency_s = crossed.latency_s if link.latency_s is None else link.latency_s
    return math.isclose(link.bandwidth_bps, crossed.bandwidth_bps, rel_tol=_SAME) and math.isclose(
        latency_s, crossed.latency_s, rel_tol=_SAME
    )


def blend_points(points: Sequence[Point], shape: Shape) -> Blend:
    """Choose the points that speak for a shape.

    Those in blocked rank order and under the nearest bandwidth come first. A point of just this spread stands
    alone. Else those on the nearest number of machines speak (`_on_nearest_machines`), for as many GPUs a
    machine as lie half way between the fullest and the mean. For more machines than were measured they have
    half of the say, and all points together the other half: the nearest alone inherits whatever is odd about
    its number of machines.

    Args:
        points: At least one.
        shape: A gang of two or more GPUs.
    """
    points = [point for point in points if point.shape.rank_order in (None, "blocked")] or points
    points = _nearest_link(points, shape)
    exact = [point for point in points if same_spread(point, shape)]
    if exact:
        return [(1.0, exact[0])]
    nodes, sizes = len(shape.machines), [point.shape.gpus_per_node for point in points]
    per_node = min(max(sizes), max(min(sizes), (max(shape.machines) + shape.gpus / nodes) / 2))
    weights = _on_nearest_machines(points, nodes, per_node)
    if nodes > max(point.shape.nodes for point in points):
        away = per_node - sum(sizes) / len(points)
        pooled = [1 / len(points) + away * slope for slope in _growth(points)]
        weights = [(one + other) / 2 for one, other in zip(weights, pooled, strict=True)]
    return [(weight, point) for weight, point in zip(weights, points, strict=True) if weight]


def carried_over_s(point: Point, shape: Shape, comm_s: float, reductions: int) -> float:
    """Communication time measured at a point, carried over to a shape, seconds.

    The time grows with the ring factor, 2(n-1)/n for n GPUs, and with the inverse of the bandwidth; a known
    difference of latency adds to each of the 2(n-1) steps.

    Args:
        point: Where it was measured.
        shape: Where it is wanted.
        comm_s: The measured time.
        reductions: All-reduces within that time.
    """
    scaled_s = comm_s * ring_factor(shape.gpus) / ring_factor(point.shape.gpus)
    crossed = crossed_link(shape)
    if same_link(point.link, shape) or point.link is None or crossed is None:
        return scaled_s
    scaled_s *= point.link.bandwidth_bps / crossed.bandwidth_bps
    if point.link.latency_s is not None:
        steps = 2 * (shape.rings[-1].members - 1) * shape.rings[-1].hops
        scaled_s += reductions * steps * (crossed.latency_s - point.link.latency_s)
    return max(0.0, scaled_s)


def difference_note(blend: Blend, shape: Shape) -> str:
    """In words how the shape differs from the points chosen for it; empty if it does not."""
    notes, points = [], [point for _, point in blend]
    if not all(same_spread(point, shape) for point in points):
        near = " and ".join(f"{point.shape.nodes}x{point.shape.gpus_per_node}" for point in points)
        spread = "+".join(str(count) for count in shape.machines)
        racks = f" over {len(shape.racks)} racks" if len(shape.racks) > 1 else ""
        notes.append(f"GPUs spread {spread}{racks} not measured, taken from {near}")
    links = [point.link for point in points if not same_link(point.link, shape)]
    crossed = crossed_link(shape)
    if links and links[0] is not None and crossed is not None:
        was, now = links[0].bandwidth_bps / 1e9, crossed.bandwidth_bps / 1e9
        notes.append(f"measured on links of {was:g} Gb/s, scaled to {now:g} Gb/s")
    orders = {point.shape.rank_order for point in points} - {None, "blocked"}
    notes += [f"measured in rank order {order}" for order in sorted(filter(None, orders))]
    return "; ".join(notes)


def _nearest_link(points: Sequence[Point], shape: Shape) -> Sequence[Point]:
    crossed = crossed_link(shape)
    if crossed is None:
        return points

    def distance(point: Point) -> float:
        if point.link is None:
            return 0.0
        return abs(math.log(point.link.bandwidth_bps / crossed.bandwidth_bps))

    least = min(distance(point) for point in points)
    return [point for point in points if distance(point) <= least + _SAME]


def _on_nearest_machines(points: Sequence[Point], nodes: int, per_node: float) -> list[float]:
    """The weight of each point by the nearest number of machines; of two as near, the larger.

    Of its points, the neighbours in GPUs per machine are mixed linearly (all-reduce times on T4 nodes grow
    about so). Where only one side was measured on that many machines, how the time grows with the GPUs of a
    machine comes from the other numbers of machines.
    """
    nearest = min((point.shape.nodes for point in points), key=lambda count: (abs(count - nodes), -count))
    sizes = {
        place: point.shape.gpus_per_node for place, point in enumerate(points) if point.shape.nodes == nearest
    }
    below = max((place for place in sizes if sizes[place] <= per_node), key=sizes.__getitem__, default=None)
    above = min((place for place in sizes if sizes[place] >= per_node), key=sizes.__getitem__, default=None)
    weights = [0.0] * len(points)
    if below is not None and above is not None:
        apart = sizes[above] - sizes[below]
        share = (per_node - sizes[below]) / apart if apart else 0.0
        weights[below] += 1.0 - share
        weights[above] += share
        return weights
    edge = above if below is None else below
    assert edge is not None, "some point is on the nearest number of machines"
    weights = [(per_node - sizes[edge]) * slope for slope in _growth(points)]
    weights[edge] += 1.0
    return weights


def _growth(points: Sequence[Point]) -> list[float]:
    """Weights that give the growth of time with one more GPU on each machine: a straight line's slope.

    It is fitted within each number of machines, and over all where no number was measured with two sizes.
    """
    slopes = _slope([(point.shape.nodes, point.shape.gpus_per_node) for point in points])
    return slopes or _slope([(0, point.shape.gpus_per_node) for point in points]) or [0.0] * len(points)


def _slope(sizes: Sequence[tuple[int, int]]) -> list[float]:
    """Weights of (group, size) that sum up to the common slope of their groups; none if no size varies."""
    groups: dict[int, list[int]] = {}
    for group, size in sizes:
        groups.setdefault(group, []).append(size)
    centres = {group: sum(members) / len(members) for group, members in groups.items()}
    away = [size - centres[group] for group, size in sizes]
    square = sum(distance**2 for distance in away)
    return [distance / square for distance in away] if square else []
