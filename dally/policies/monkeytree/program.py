"""The program of MonkeyTree: the fewest workers that must leave a rack so that none has too many fragments.

What is minimised and what is bounded is published (arXiv 2602.08296); variables and constraints are ours.
"""

from dataclasses import dataclass

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import coo_array

from dally.policies.common.arrays import Flags, Ints

_FRAGMENT = 0.01
"""What a fragment counts against a worker that moves: of equally few moves, those that scatter least."""


@dataclass(frozen=True, slots=True)
class FragmentProblem:
    """Gangs over racks. The part of a gang in a rack that does not hold all of it is a fragment.

    Attributes:
        gpus: (gangs) GPUs that each has in these racks, 1 or more.
        unit: (gangs) They go to a rack in multiples of this, a divisor of `gpus`.
        beyond: (gangs) Whether it has GPUs in other racks too, so that all its parts are fragments.
        kind: (gangs) The GPU type that it is on, as a number.
        held: (gangs, racks) GPUs that a running gang has now; 0 of one that has yet to start.
        most: (gangs, racks) GPUs that a gang could have if no other had any.
        room: (kinds, racks) GPUs that these gangs may have together.
        spare: (racks) Fragments of them that a rack may have; less than 0 if it has too many of others.
    """

    gpus: Ints
    unit: Ints
    beyond: Flags
    kind: Ints
    held: Ints
    most: Ints
    room: Ints
    spare: Ints

    def fragments(self, given: Ints) -> Ints:
        """(racks) Fragments if the gangs have `given` (gangs, racks) GPUs."""
        whole = (given == self.gpus[:, None]) & ~self.beyond[:, None]
        return np.asarray(((given > 0) & ~whole).sum(axis=0))

    def excess(self, given: Ints) -> int:
        """Fragments beyond the bound, summed over the racks."""
        return int(np.maximum(self.fragments(given) - self.spare, 0).sum())


def solve(problem: FragmentProblem, nodes: int) -> Ints | None:
    """(gangs, racks) GPUs of each gang in each rack; None if nothing was found.

    The fewest fragments beyond the bound come first, then the fewest workers (GPUs) that leave a rack, then
    few fragments. For each gang and rack there are whole (0 or 1), part (units), fragment (0 or 1) and moved
    (GPUs), for each rack its excess, with gpus * whole + unit * part the GPUs given:

        sum over racks of given = gpus        part <= most * fragment       moved >= held - given
        sum over gangs of given <= room       sum over gangs of fragment - excess <= spare

    Args:
        problem: What is asked.
        nodes: Nodes of the search tree after which the best answer so far is taken.
    """
    gangs, racks = problem.held.shape
    cells = gangs * racks
    cell = np.arange(cells)
    gang, rack = cell // racks, cell % racks
    gpus, unit, beyond = problem.gpus[gang], problem.unit[gang], problem.beyond[gang]
    most, held, pool = problem.most.ravel(), problem.held.ravel(), problem.kind[gang] * racks + rack
    parts = np.minimum(most, gpus - np.where(beyond, 0, unit)) // unit
    whole, part, fragment, moved = (cell + block * cells for block in range(4))
    excess = np.arange(racks) + 4 * cells
    width = 4 * cells + racks
    rows = [
        _sums(gangs, width, (gang, whole, gpus), (gang, part, unit)),
        _sums(cells, width, (cell, part, 1), (cell, fragment, -parts)),
        _sums(problem.room.size, width, (pool, whole, gpus), (pool, part, unit)),
        _sums(racks, width, (rack, fragment, 1), (np.arange(racks), excess, -1)),
        _sums(cells, width, (cell, whole, gpus), (cell, part, unit), (cell, moved, 1)),
    ]
    least = [problem.gpus, -np.inf, -np.inf, -np.inf, held]
    greatest = [problem.gpus, 0, problem.room.ravel(), problem.spare, np.inf]
    upper = [~beyond & (gpus <= most), parts, np.ones(cells), held, np.full(racks, gangs)]
    weights = [0.0, 0.0, _FRAGMENT, 1.0, 1.0 + problem.gpus.sum()]
    sizes = [cells, cells, cells, cells, racks]
    found = milp(
        np.repeat(weights, sizes),
        integrality=np.repeat([1, 1, 1, 0, 0], sizes),
        bounds=Bounds(0, np.concatenate(upper)),
        constraints=[LinearConstraint(*each) for each in zip(rows, least, greatest, strict=True)],
        options={"node_limit": nodes},
    )
    if found.x is None:
        return None
    answer = np.rint(found.x).astype(np.int64)
    return np.asarray((gpus * answer[whole] + unit * answer[part]).reshape(gangs, racks))


def _sums(rows: int, width: int, *terms: tuple[Ints, Ints, Ints | int]) -> coo_array:
    """A matrix (rows, width) of sums, from terms (row, column, factor)."""
    row, column = (np.concatenate([term[place] for term in terms]) for place in (0, 1))
    factor = np.concatenate([np.broadcast_to(np.asarray(each), row.shape) for row, _, each in terms])
    return coo_array((factor, (row, column)), shape=(rows, width)).tocsc()
