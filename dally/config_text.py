"""TOML and YAML as plain data: whatever is wrong with what people wrote there is one line."""

import re
import tomllib
from typing import Any

import yaml

from dally.errors import InputError

_DEEPEST = 32
_MOST = 2**63 - 1
"""The most whole number: TOML's own range."""

_DEEP_KEY = re.compile(rf"(?m)(?:^|[\[{{,])\s*(?:[\w-]+\s*\.\s*){{{_DEEPEST + 1}}}")
"""A dotted key with too many parts, on which tomllib spends time and memory as their square."""

_TOO_DEEP = f"it is nested more than {_DEEPEST} deep"
_TOO_LARGE = "a whole number has more than 64 bits"


def parse_toml(text: str) -> dict[str, Any]:
    """The table that a TOML text is.

    Raises:
        InputError: It is not TOML, has whole numbers of more than 64 bits, or is nested beyond all use.
    """
    try:
        if _DEEP_KEY.search(text):
            raise RecursionError
        table = tomllib.loads(text)
        _check(table)
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"not valid TOML: {error}") from error
    except RecursionError:
        raise InputError(f"not valid TOML: {_TOO_DEEP}") from None
    except ValueError as error:
        raise InputError(f"not valid TOML: {_TOO_LARGE}") from error
    return table


def parse_yaml(text: str) -> Any:
    """What a YAML text is.

    Raises:
        InputError: It is not YAML, has numbers or dates that there are not, or is nested beyond all use.
    """
    try:
        value = yaml.safe_load(text)
        _check(value)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise InputError(f"line {line}: not valid YAML: {error.problem}") from error
    except yaml.YAMLError as error:
        raise InputError(f"not valid YAML: {error}") from error
    except RecursionError:
        raise InputError(f"not valid YAML: {_TOO_DEEP}") from None
    except ValueError as error:
        raise InputError(f"not valid YAML: {error}") from error
    return value


def _check(value: object) -> None:
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
