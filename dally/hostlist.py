"""Host lists as Slurm writes them, `gpu[001-018,020],login1`: expanding and folding.

Ranges are ClusterShell's `RangeSet`. Its `NodeSet` would do more, but it also knows groups (`@rack1`) and set
operators, and reads configuration of the machine it is on: the same text must mean the same hosts everywhere.
"""

import re
from collections.abc import Sequence
from itertools import cycle, groupby, product

from ClusterShell.RangeSet import AUTOSTEP_DISABLED, RangeSet, RangeSetException

from dally.errors import InputError

MOST_NAMES = 65_536
"""What one host list may stand for: as many nodes as Slurm itself can have."""

_SEPARATOR = re.compile(r"\[[^\[\]]*\]|,")
"""A comma between pieces; those in brackets are passed over with their brackets."""

_PIECE = re.compile(r"(?:[\w.:/+-]++|\[[0-9,\s-]++\])++", re.ASCII)
_BRACKETS = re.compile(r"\[([^\]]*)\]")
_RANGE = re.compile(r"\s*([0-9]{1,18})\s*(?:-\s*([0-9]{1,18})\s*)?", re.ASCII)
_LONGEST_SHOWN = 120
_LONGEST_NAME = 255


def expand(hostlist: str, most: int = MOST_NAMES) -> tuple[str, ...]:
    """All names of a host list; pieces in the order written, those of one bracket in numeric order.

    Args:
        hostlist: The list.
        most: The most names that it may stand for; more are not even made.

    Raises:
        InputError: The list is empty or malformed, stands for more than `most`, or gives a name twice.
    """
    ends = [found.start() for found in _SEPARATOR.finditer(hostlist) if found[0] == ","]
    starts = [0, *(end + 1 for end in ends)]
    pieces = [hostlist[start:end].strip() for start, end in zip(starts, [*ends, None], strict=True)]
    if sum(_count(piece, hostlist) for piece in pieces) > most:
        raise InputError(f"host list {_shown(hostlist)} stands for more than {most:,} names, the most")
    if any(len(_BRACKETS.sub("0" * 18, piece)) > _LONGEST_NAME for piece in pieces if "[" in piece):
        raise InputError(f"host list {_shown(hostlist)} stands for names of over {_LONGEST_NAME} letters")
    names = [name for piece in pieces for name in _expand_piece(piece, hostlist)]
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise InputError(f"host list {_shown(hostlist)} has {name} twice")
        seen.add(name)
    return tuple(names)


def _count(piece: str, hostlist: str) -> int:
    """How many names a piece stands for, found without making them."""
    if not _PIECE.fullmatch(piece):
        raise InputError(f"{_shown(hostlist)} is not a host list such as gpu[001-018,020],login1")
    count = 1
    for ranges in _BRACKETS.findall(piece):
        length = 0
        for text in ranges.split(","):
            found = _RANGE.fullmatch(text)
            if found is None or int(found[2] or found[1]) < int(found[1]):
                raise InputError(
                    f"{_shown(hostlist)} is not a host list: {_shown(text)} is no range such as 001-018"
                )
            length += int(found[2] or found[1]) - int(found[1]) + 1
        count *= length
    return count


def _shown(text: str) -> str:
    """A text of the user's as a message can hold it."""
    quoted = repr(text)
    return quoted if len(quoted) <= _LONGEST_SHOWN else f"{quoted[:_LONGEST_SHOWN]}..."


def _expand_piece(piece: str, hostlist: str) -> Sequence[str]:
    if "[" not in piece:
        return (piece,)
    try:  # split gives text and range in turn
        parts = [
            [*RangeSet(part, autostep=AUTOSTEP_DISABLED).striter()] if is_range else [part]
            for part, is_range in zip(_BRACKETS.split(piece), cycle((False, True)), strict=False)
        ]
    except RangeSetException as error:
        raise InputError(f"{_shown(hostlist)} is not a host list: {error}") from error
    return ["".join(choice) for choice in product(*parts)]


def fold(names: Sequence[str]) -> str:
    """A short host list that expands to exactly these names, in this order.

    Raises:
        InputError: A name cannot stand in a host list.
    """
    for name in names:
        if "[" in name or not _PIECE.fullmatch(name):
            raise InputError(f"name {name!r} cannot stand in a host list")
    folded = []
    for prefix, run in groupby(names, key=lambda name: name.rstrip("0123456789")):
        alike = list(run)
        if len(alike) > 1 and prefix not in alike:
            numbers = [name[len(prefix) :] for name in alike]
            ranges = f"{prefix}[{RangeSet.fromlist(numbers, autostep=AUTOSTEP_DISABLED)}]"
            if list(_expand_piece(ranges, ranges)) == alike:  # a range set sorts; the order must stay
                alike = [ranges]
        folded += alike
    return ",".join(folded)
