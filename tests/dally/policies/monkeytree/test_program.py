"""The program of MonkeyTree on cases small enough to count, and against all answers there are."""

from collections.abc import Iterator
from itertools import product

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dally.policies.common.arrays import Ints
from dally.policies.monkeytree.program import FragmentProblem, solve


def problem(
    held: list[list[int]],
    room: list[int],
    bound: int,
    new: tuple[int, ...] = (),
    unit: int = 1,
    beyond: tuple[int, ...] = (),
) -> FragmentProblem:
    """Gangs of one GPU type by what they have in each rack; those whose number is in `new` only would."""
    gangs, racks = len(held), len(room)
    now = np.array(held)
    numbers = range(gangs)
    return FragmentProblem(
        gpus=now.sum(axis=1),
        unit=np.full(gangs, unit),
        beyond=np.array([number in beyond for number in numbers]),
        kind=np.zeros(gangs, dtype=int),
        held=now * np.array([[number not in new] for number in numbers]),
        most=np.tile(room, (gangs, 1)),
        room=np.array([room]),
        spare=np.full(racks, bound),
    )


def solved(asked: FragmentProblem) -> list[list[int]]:
    found = solve(asked, nodes=200)
    assert found is not None
    rows: list[list[int]] = found.tolist()
    return rows


def moves(asked: FragmentProblem, found: Ints) -> int:
    """Workers that leave a rack."""
    return int(np.maximum(asked.held - found, 0).sum())


def test_nobody_moves_where_no_rack_has_too_many() -> None:
    held = [[2, 2, 0], [2, 0, 2]]
    assert solved(problem(held, [4, 4, 4], bound=2)) == held


def test_the_fewest_workers_move() -> None:
    """One of the gangs must be in one rack; the second has only one GPU elsewhere."""
    held = [[2, 3, 0], [2, 0, 1]]
    assert solved(problem(held, [5, 5, 2], bound=1)) == [[2, 3, 0], [3, 0, 0]]


def test_who_has_yet_to_start_goes_anywhere_for_nothing() -> None:
    held = [[2, 2, 0, 0], [2, 0, 2, 0], [1, 0, 0, 1]]
    found = solved(problem(held, [5, 2, 2, 2], bound=2, new=(2,)))
    assert found == [[2, 2, 0, 0], [2, 0, 2, 0], [0, 0, 0, 2]]


def test_units_stay_together() -> None:
    """The last rack has room for 3 of the 4 GPUs that should leave the first: no unit of 4 fits."""
    held = [[4, 4, 0], [4, 4, 0]]
    asked = problem(held, [8, 8, 3], bound=1, unit=4)
    assert sorted(solved(asked)) == [[0, 8, 0], [8, 0, 0]]


def test_a_gang_that_goes_on_elsewhere_is_a_fragment_wherever_it_is() -> None:
    """It cannot get away: the other one has to."""
    held = [[2, 0], [2, 1]]
    assert solved(problem(held, [4, 4], bound=1, beyond=(0,))) == [[2, 0], [0, 3]]


def test_what_cannot_be_kept_is_missed_by_as_little_as_can_be() -> None:
    """Gangs of 3, 3 and 2 fill two racks of 4: one of them must be in both."""
    asked = problem([[1, 2], [1, 2], [2, 0]], [4, 4], bound=0)
    found = np.array(solved(asked))
    assert asked.excess(asked.held) == 4
    assert asked.excess(found) == 2


PROBLEMS = st.tuples(
    st.lists(st.lists(st.integers(0, 2), min_size=3, max_size=3), min_size=2, max_size=3).filter(
        lambda rows: all(sum(row) for row in rows)
    ),
    st.lists(st.integers(0, 2), min_size=3, max_size=3),
    st.integers(0, 2),
    st.booleans(),
)


def answers(asked: FragmentProblem) -> Iterator[Ints]:
    """All ways to give each gang its GPUs."""
    rows = [
        [row for row in product(range(gpus + 1), repeat=asked.held.shape[1]) if sum(row) == gpus]
        for gpus in asked.gpus
    ]
    for answer in product(*rows):
        found = np.array(answer)
        if (found.sum(axis=0) <= asked.room[0]).all():
            yield found


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(drawn=PROBLEMS)
def test_no_other_answer_is_better(drawn: tuple[list[list[int]], list[int], int, bool]) -> None:
    """Excess first, then moves."""
    held, free, bound, starting = drawn
    room = [sum(column) + more for column, more in zip(zip(*held, strict=True), free, strict=True)]
    asked = problem(held, room, bound, new=(0,) if starting else ())
    best = min((asked.excess(each), moves(asked, each)) for each in answers(asked))
    found = np.array(solved(asked))
    assert (asked.excess(found), moves(asked, found)) == best
