"""Host lists as Slurm writes them, `gpu[001-018,020],login1`: expanding and folding.

Ranges are ClusterShell's `RangeSet`. Its `NodeSet` would do more, but it also knows groups (`@rack1`) and set
operators, and reads configuration of the machine it is on: the same text must mean the same hosts everywhere.
"""

import re
from collections.abc import Sequence
from itertools import cycle, groupby, product

from ClusterShell.RangeSet import AUTOSTEP_DISABLED, RangeSet, RangeSetException

from dally.errors import InputError

_PIECES = re.compile(r",(?![^\[]*\])")
_PIECE = re.compile(r"([\w.:/+-]|\[[0-9,\s-]+\])+", re.ASCII)
_BRACKETS = re.compile(r"\[([^\]]*)\]")
_NUMBER_AT_END = re.compile(r"\d*$", re.ASCII)


def expand(hostlist: str) -> tuple[str, ...]:
    """All names of a host list; pieces in the order written, those of one bracket in numeric order.

    Raises:
        InputError: The list is empty or malformed, or gives a name twice.
    """
    names = [name for piece in _PIECES.split(hostlist) for name in _expand_piece(piece.strip(), hostlist)]
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise InputError(f"host list {hostlist!r} has {name} twice")
        seen.add(name)
    return tuple(names)


def _expand_piece(piece: str, hostlist: str) -> Sequence[str]:
    if not _PIECE.fullmatch(piece):
        raise InputError(f"{hostlist!r} is not a host list such as gpu[001-018,020],login1")
    if "[" not in piece:
        return (piece,)
    try:  # split gives text and range in turn
        parts = [
            _numbers(part) if is_range else [part]
            for part, is_range in zip(_BRACKETS.split(piece), cycle((False, True)), strict=False)
        ]
    except (RangeSetException, AssertionError) as error:  # a range of more than 1e9 fails an assertion
        raise InputError(f"{hostlist!r} is not a host list: {error}") from error
    return ["".join(choice) for choice in product(*parts)]


def _numbers(ranges: str) -> list[str]:
    return list(RangeSet(ranges, autostep=AUTOSTEP_DISABLED).striter())


def fold(names: Sequence[str]) -> str:
    """A short host list that expands to exactly these names, in this order.

    Raises:
        InputError: A name cannot stand in a host list.
    """
    for name in names:
        if "[" in name or not _PIECE.fullmatch(name):
            raise InputError(f"name {name!r} cannot stand in a host list")
    return ",".join(_fold_run(prefix, list(run)) for prefix, run in groupby(names, key=_prefix))


def _prefix(name: str) -> str:
    """A name without the number it ends in."""
    return _NUMBER_AT_END.sub("", name, count=1)


def _fold_run(prefix: str, names: Sequence[str]) -> str:
    """Fold names with the same prefix, if their numbers are in order."""
    if len(names) == 1 or prefix in names:
        return ",".join(names)
    numbers = RangeSet.fromlist([name[len(prefix) :] for name in names], autostep=AUTOSTEP_DISABLED)
    folded = f"{prefix}[{numbers}]"
    return folded if list(_expand_piece(folded, folded)) == list(names) else ",".join(names)
