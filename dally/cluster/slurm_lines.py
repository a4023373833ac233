"""The lines of Slurm's configuration files: comments, continued lines, includes and Key=Value pairs."""

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from dally.cluster.source import read_text
from dally.errors import InputError

_PAIR = re.compile(r"\s*([A-Za-z0-9_.]+)\s*[-+*/]?=\s*(?:\"([^\"]*)\"|(\S+))(?=\s|$)")
_FIRST_KEY = re.compile(r"\s*([A-Za-z0-9_.]+)\s*[-+*/]?=")
_INCLUDE = re.compile(r"\s*include\s+(\S+)\s*$", re.IGNORECASE)
_COMMENT = re.compile(r"(?<!\\)#.*")
_DEEPEST_INCLUDE = 8


@dataclass(frozen=True, slots=True)
class ConfLine:
    """One logical line: where it stands (`file, line n`) and its values by key in lower case."""

    where: str
    values: Mapping[str, str]

    @property
    def first_key(self) -> str:
        """The key the line begins with, which tells what it is about."""
        return next(iter(self.values))


def read_lines(path: Path, keys: Collection[str]) -> Iterator[ConfLine]:
    """The lines that begin with one of the keys, those of included files in their place.

    Lines about anything else are passed over unread: Slurm has hundreds of keys.

    Args:
        path: The file.
        keys: First keys of the wanted lines, in lower case.

    Raises:
        InputError: A file cannot be read, or a wanted line is not a row of Key=Value pairs.
    """
    yield from _read(path, keys, 0)


def _read(path: Path, keys: Collection[str], depth: int) -> Iterator[ConfLine]:
    for where, text in _logical_lines(path):
        include = _INCLUDE.match(text)
        if include and depth == _DEEPEST_INCLUDE:
            raise InputError(f"{where}: files include each other more than {_DEEPEST_INCLUDE} deep")
        if include:
            yield from _read(path.parent / include[1], keys, depth + 1)
        elif (first := _FIRST_KEY.match(text)) and first[1].lower() in keys:
            yield ConfLine(where, _pairs(where, text))


def _logical_lines(path: Path) -> Iterator[tuple[str, str]]:
    """Lines without comments, each joined with those it continues on; numbered by its first."""
    start, text = 1, ""
    for number, raw in enumerate(read_text(path).splitlines(), start=1):
        start = start if text else number
        text += _COMMENT.sub("", raw).rstrip()
        if text.endswith("\\"):
            text = text[:-1] + " "
            continue
        yield f"{path}, line {start}", text
        text = ""
    yield f"{path}, line {start}", text


def _pairs(where: str, text: str) -> dict[str, str]:
    values: dict[str, str] = {}
    position = 0
    while text[position:].strip():
        match = _PAIR.match(text, position)
        if match is None:
            raise InputError(f"{where}: {text[position:].strip()!r} is not Key=Value")
        values[match[1].lower()] = match[2] if match[2] is not None else match[3]
        position = match.end()
    return values


def required(line: ConfLine, key: str) -> str:
    """The value of a key that the line must have."""
    if key.lower() not in line.values:
        raise InputError(f"{line.where}: {key} is missing")
    return line.values[key.lower()]
