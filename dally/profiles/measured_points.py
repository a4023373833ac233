"""Which measured points speak for a shape, and how to carry them over to it."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from dally.profiles.allreduce import ring_factor
from dally.profiles.schema import TIERS, Point, PointLink
from dally.topology import Link, Shape, slowest

_SAME = 0.01
"""Two links are the same if they differ by no more than this fraction."""


@dataclass(frozen=True, slots=True)
class Blend:
    """Measured points, each with its weight; weights sum to 1."""

    parts: tuple[tuple[float, Point], ...]

    @property
    def points(self) -> tuple[Point, ...]:
        """The points without their weights."""
        return tuple(point for _, point in self.parts)


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
    """Choose the points nearest to a shape.

    Those in blocked rank order and under the nearest bandwidth come first. A point of just this spread stands
    alone; else, of those on the nearest number of machines, the two with fewer and more GPUs per machine are
    mixed linearly (all-reduce times on T4 nodes grow about linearly with them), or the nearest one is taken.

    Args:
        points: At least one.
        shape: A gang of two or more GPUs.
    """
    points = _nearest_link(_blocked(points), shape)
    exact = [point for point in points if same_spread(point, shape)]
    if exact:
        return Blend(((1.0, exact[0]),))
    nodes = len(shape.machines)
    nearest = min((point.shape.nodes for point in points), key=lambda count: (abs(count - nodes), -count))
    group = [point for point in points if point.shape.nodes == nearest]
    return _between(sorted(group, key=lambda point: point.shape.gpus_per_node), shape.gpus / nodes)


def carried_over_s(point: Point, shape: Shape, comm_s: float, reductions: int) -> float:
    """Communication time measured at a point, carried over to a shape, seconds.

    The time grows with the ring factor, 2(n-1)/n for n machines (n GPUs inside one), and with the inverse of
    the bandwidth; a known difference of latency adds to each of the 2(n-1) steps.

    Args:
        point: Where it was measured.
        shape: Where it is wanted.
        comm_s: The measured time.
        reductions: All-reduces within that time.
    """
    scaled_s = comm_s * ring_factor(_ring_size(len(shape.machines), shape.gpus))
    scaled_s /= ring_factor(_ring_size(point.shape.nodes, point.shape.gpus))
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
    notes = []
    if not all(same_spread(point, shape) for point in blend.points):
        near = " and ".join(f"{point.shape.nodes}x{point.shape.gpus_per_node}" for point in blend.points)
        spread = "+".join(str(count) for count in shape.machines)
        racks = f" over {len(shape.racks)} racks" if len(shape.racks) > 1 else ""
        notes.append(f"GPUs spread {spread}{racks} not measured, taken from {near}")
    links = [point.link for point in blend.points if not same_link(point.link, shape)]
    crossed = crossed_link(shape)
    if links and links[0] is not None and crossed is not None:
        was, now = links[0].bandwidth_bps / 1e9, crossed.bandwidth_bps / 1e9
        notes.append(f"measured on links of {was:g} Gb/s, scaled to {now:g} Gb/s")
    orders = {point.shape.rank_order for point in blend.points} - {None, "blocked"}
    notes += [f"measured in rank order {order}" for order in sorted(filter(None, orders))]
    return "; ".join(notes)


def _ring_size(nodes: int, gpus: int) -> int:
    return nodes if nodes > 1 else gpus


def _blocked(points: Sequence[Point]) -> Sequence[Point]:
    """The points in blocked rank order, as gangs are started; all if none is."""
    return [point for point in points if point.shape.rank_order in (None, "blocked")] or points


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


def _between(group: Sequence[Point], per_node: float) -> Blend:
    """Mix the neighbours of this many GPUs per machine, of points sorted by it."""
    below = [point for point in group if point.shape.gpus_per_node <= per_node]
    above = [point for point in group if point.shape.gpus_per_node >= per_node]
    if not below or not above or below[-1] is above[0]:
        return Blend(((1.0, below[-1] if below else above[0]),))
    low, high = below[-1], above[0]
    share = (per_node - low.shape.gpus_per_node) / (high.shape.gpus_per_node - low.shape.gpus_per_node)
    return Blend(((1.0 - share, low), (share, high)))
