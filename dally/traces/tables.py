"""Comma-separated text as numbered rows, and the check of a header line."""

import csv
import io
from collections.abc import Collection, Iterator, Sequence

from dally.errors import InputError


def csv_rows(source: str, text: str) -> Iterator[tuple[int, list[str]]]:
    """Yield (line number, fields) of each row that is not blank, the header first.

    Raises:
        InputError: The quoting is broken, so that what follows cannot be split into rows.
    """
    rows = csv.reader(io.StringIO(text, newline=""), strict=True)
    try:
        for fields in rows:
            if fields:
                yield rows.line_num, fields
    except csv.Error as error:
        raise InputError(f"{source}, line {rows.line_num}: broken CSV: {error}") from error


def check_header(
    source: str, header: Sequence[str], required: Collection[str], known: Collection[str] | None = None
) -> None:
    """Check a header's columns.

    Args:
        source: The file's name, for messages.
        header: The columns found.
        required: Columns that must be there.
        known: All columns allowed; None allows any.

    Raises:
        InputError: Columns are missing, repeated or unknown; the message lists them.
    """
    if missing := [name for name in required if name not in header]:
        raise InputError(f"{source}: missing columns: {', '.join(missing)}; found: {', '.join(header)}")
    if repeated := sorted({name for name in header if header.count(name) > 1}):
        raise InputError(f"{source}: columns given twice: {', '.join(repeated)}")
    if known is not None and (unknown := [repr(name) for name in header if name not in known]):
        raise InputError(f"{source}: unknown columns: {', '.join(unknown)}; known: {', '.join(known)}")
