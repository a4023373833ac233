"""Slurm's `--constraint`, judged node by node."""

import re
from collections import deque
from functools import lru_cache

from dally.errors import InputError

_WORD = re.compile(r"[()&|,]|[^\s()&|,]+")
_ONE_FOR_ALL = re.compile(r"([^\[\]*]*)\[([^\[\]*&(),]+)\]([^\[\]*]*)")
"""`[rack1|rack2]`: all nodes have the one feature, or all the other; at most once."""

_LONGEST = 1024
"""Slurm itself takes no longer one."""

_RELATED = re.compile(r"[\[\]*]")
"""`ib*2` and the like, by which the nodes of a job depend on each other."""


def alternatives(constraint: str) -> tuple[str, ...]:
    """What all nodes of a job must meet, one of these; of `ib&[rack1|rack2]` it is `ib&rack1` and `ib&rack2`.

    Raises:
        InputError: It relates the nodes of a job to each other otherwise, or is longer than Slurm takes.
    """
    if len(constraint) > _LONGEST:
        raise InputError(f"--constraint has {len(constraint):,} characters, Slurm takes {_LONGEST:,} at most")
    if found := _ONE_FOR_ALL.fullmatch(constraint):
        before, features, after = found.groups()
        return tuple(f"{before}{feature}{after}" for feature in dict.fromkeys(features.split("|")))
    if _RELATED.search(constraint):
        raise InputError(f"--constraint={constraint} relates the nodes of a job to each other")
    return (constraint,)


class _NonsenseError(Exception):
    pass


@lru_cache(maxsize=1 << 12)
def satisfies(constraint: str, features: frozenset[str]) -> bool:
    """Whether a node with these features meets a constraint, like `a100&(ib|roce)`.

    As in Slurm, `,` means `&`, and without parentheses operators are taken from left to right. Of
    `[rack1|rack2]` one will do.

    Raises:
        InputError: It relates the nodes of a job to each other, or makes no sense.
    """
    each = alternatives(constraint)
    if len(each) > 1:
        return any(satisfies(one, features) for one in each)
    words = deque(_WORD.findall(each[0]))
    try:
        met = _operators(words, features)
        if words:
            raise _NonsenseError
    except (_NonsenseError, RecursionError):
        raise InputError(f"--constraint={constraint} makes no sense") from None
    return met


def _operators(words: deque[str], features: frozenset[str]) -> bool:
    met = _operand(words, features)
    while words and words[0] in "&|,":
        operator = words.popleft()
        right = _operand(words, features)
        met = met or right if operator == "|" else met and right
    return met


def _operand(words: deque[str], features: frozenset[str]) -> bool:
    """A feature, or what stands in parentheses."""
    word = words.popleft() if words else ")"
    if word == "(":
        met = _operators(words, features)
        if not words or words.popleft() != ")":
            raise _NonsenseError
        return met
    if word in ")&|,":
        raise _NonsenseError
    return word in features
