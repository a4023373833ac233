"""A CSV table of hosts, read strictly: the expected header, every row complete, no host twice."""

import csv
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from dally.cluster.hostlist import expand
from dally.cluster.source import naming
from dally.errors import InputError


@dataclass(frozen=True, slots=True)
class HostRow:
    """One row: its line number, the host of its first column, and the other columns in order."""

    line: int
    host: str
    fields: tuple[str, ...]


def header_of(text: str) -> tuple[str, ...]:
    """The column names of a CSV text, blanks around them dropped; empty for an empty text."""
    return tuple(name.strip() for name in text.lstrip().split("\n", 1)[0].split(","))


def read_hosts(text: str, columns: Sequence[str]) -> Iterator[HostRow]:
    """The rows below the header, the host being the first column.

    Raises:
        InputError: The header is another, a row does not fill the columns, or a host comes twice.
    """
    if header_of(text) != tuple(columns):
        raise InputError(f"header is {', '.join(header_of(text))!r}, must be {', '.join(columns)!r}")
    first_line: dict[str, int] = {}
    for line, raw in _rows(text):
        host, *fields = [field.strip() for field in raw]
        if len(raw) != len(columns) or not all((host, *fields)):
            raise InputError(f"line {line}: {','.join(raw)!r} does not fill the columns {', '.join(columns)}")
        if host in first_line:
            raise InputError(f"line {line}: host {host} is already in line {first_line[host]}")
        first_line[host] = line
        with naming(f"line {line}"):
            expand(host)
        yield HostRow(line, host, tuple(fields))


def _rows(text: str) -> Iterator[tuple[int, list[str]]]:
    """The rows below the header with their line numbers, blank ones left out."""
    reader = csv.reader(text.lstrip().splitlines())
    try:
        next(reader)
        for row in reader:
            if row:
                yield reader.line_num, row
    except csv.Error as error:
        raise InputError(f"line {reader.line_num}: broken CSV: {error}") from error
