"""Reads a cluster file's text, and puts the file's name before what is wrong in it."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dally.errors import InputError


def read_text(path: Path) -> str:
    """The text of a UTF-8 file, without a byte order mark.

    Raises:
        InputError: The file cannot be read or is not UTF-8.
    """
    try:
        return path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: byte 0x{error.object[error.start]:02x} is not UTF-8") from error


@contextmanager
def naming(source: object) -> Iterator[None]:
    """Put a file's name, or file and line, before the message of an `InputError` raised inside."""
    try:
        yield
    except InputError as error:
        raise InputError(f"{source}: {error}") from error
