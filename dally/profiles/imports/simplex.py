"""Minimises a function of a few variables without derivatives (Nelder and Mead, Computer Journal 7, 1965)."""

from collections.abc import Callable, Sequence

Vector = list[float]


def minimise(cost: Callable[[Vector], float], start: Sequence[float], steps: int) -> Vector:
    """The best point found in a number of steps, from a simplex of unit edges at the start."""
    corners = [list(start)]
    for axis in range(len(start)):
        corners.append([value + (position == axis) for position, value in enumerate(start)])
    simplex = sorted((cost(corner), corner) for corner in corners)
    for _ in range(steps):
        simplex = sorted(_improved(cost, simplex))
    return simplex[0][1]


def _improved(
    cost: Callable[[Vector], float], simplex: list[tuple[float, Vector]]
) -> list[tuple[float, Vector]]:
    """Move the worst corner through the centre of the others, or shrink towards the best."""
    others, (worst_cost, worst) = simplex[:-1], simplex[-1]
    centre = [sum(values) / len(others) for values in zip(*(corner for _, corner in others), strict=True)]

    def along(factor: float) -> tuple[float, Vector]:
        point = [middle + factor * (end - middle) for middle, end in zip(centre, worst, strict=True)]
        return cost(point), point

    reflected = along(-1.0)
    if reflected[0] < others[0][0]:
        return [*others, min(reflected, along(-2.0))]
    if reflected[0] < others[-1][0]:
        return [*others, reflected]
    contracted = along(-0.5 if reflected[0] < worst_cost else 0.5)
    if contracted[0] < min(worst_cost, reflected[0]):
        return [*others, contracted]
    best = others[0][1]
    shrunk = [
        [(value + goal) / 2 for value, goal in zip(corner, best, strict=True)] for _, corner in simplex[1:]
    ]
    return [others[0], *((cost(corner), corner) for corner in shrunk)]
