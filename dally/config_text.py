"""Files that people write, read as text or TOML: what is wrong in them is told in one line."""

import re
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from dally.atomic_file import MOST_BYTES, read_plain
from dally.errors import InputError

_DEEPEST = 32
_MOST = 2**63 - 1
"""The most whole number: TOML's own range."""

_KEY = r"""(?:[\w-]+|"[^"\n]*"|'[^'\n]*')[ \t]*\.[ \t]*"""
_DEEP_KEY = re.compile(rf"(?m)(?:^|[\[{{,])[ \t]*(?:{_KEY}){{{_DEEPEST + 1}}}")
"""A dotted key with too many parts, on which tomllib spends time and memory as their square."""

TOO_DEEP = f"it is nested more than {_DEEPEST} deep"
_TOO_LARGE = "a whole number has more than 64 bits"


def read_text(path: Path, errors: str = "strict", most_bytes: int = MOST_BYTES) -> str:
    """The text of a UTF-8 file, without a byte order mark.

    Args:
        path: The file.
        errors: What becomes of other bytes, as `bytes.decode` has it; "strict": an error.
        most_bytes: It may have so many.

    Raises:
        InputError: The file cannot be read, is no plain file, is too long or is not UTF-8.
    """
    try:
        return read_plain(path, most_bytes).decode("utf-8-sig", errors)
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


def parse_toml(text: str) -> dict[str, Any]:
    """The table that a TOML text is.

    Raises:
        InputError: It is not TOML, has whole numbers of more than 64 bits, or is nested beyond all use.
    """
    try:
        if _DEEP_KEY.search(text):
            raise RecursionError
        table = tomllib.loads(text)
        check_value(table)
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"not valid TOML: {error}") from error
    except RecursionError:
        raise InputError(f"not valid TOML: {TOO_DEEP}") from None
    except ValueError as error:
        raise InputError(f"not valid TOML: {_TOO_LARGE}") from error
    return table


def check_value(value: object) -> None:
    """Refuse what no reader can use and no message can show.

    Raises:
        ValueError: A whole number is too large, as Python itself says where it has thousands of digits.
        RecursionError: It is nested too deeply, as Python itself says of what is nested deeper still.
    """
    values = [value]
    for _ in range(_DEEPEST + 1):
        if any(isinstance(each, int) and abs(each) > _MOST for each in values):
            raise ValueError(_TOO_LARGE)
        # YAML's aliases make one value stand in many places: it is looked at once.
        outer = {id(each): each for each in values if isinstance(each, dict | list)}.values()
        values = [inner for each in outer for inner in (each.values() if isinstance(each, dict) else each)]
        if not values:
            return
    raise RecursionError
