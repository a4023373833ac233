"""Checked dataclasses out of plain data, JSON or TOML: what is unknown, missing or wrong is named."""

import json
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from enum import StrEnum
from types import NoneType, UnionType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from dally.errors import InputError

_LARGEST = 1e300
_NAMES = {
    int: "a whole number of 0 or more",
    float: "a number of 0 or more",
    str: "a string",
    bool: "true or false",
}
_Value = TypeVar("_Value")


def decode(kind: type[_Value], value: object) -> _Value:
    """Build a dataclass, nested ones too, from what `json.loads` or a reader of TOML gave.

    Fields may be numbers of 0 or more, strings, booleans, enumerations of strings, dataclasses, None, tuples
    of any of these and mappings from strings to them.

    Raises:
        InputError: The data does not fit; the message names the field, the value and what is valid.
    """
    built = _decode(kind, value, "")
    assert isinstance(built, kind)
    return built


def _decode(kind: Any, value: object, place: str) -> object:
    """Check JSON against a type and build it; `place` is the path of the field, for messages."""
    options = get_args(kind) if isinstance(kind, UnionType) else (kind,)
    if NoneType in options:
        if value is None:
            return None
        (kind,) = (option for option in options if option is not NoneType)
    if is_dataclass(kind):
        return _decode_object(kind, value, place)
    if get_origin(kind) is tuple:
        if not isinstance(value, list):
            raise InputError(f"{place} is {shown(value)}, must be a list")
        return tuple(_decode(get_args(kind)[0], item, f"{place}[{at}]") for at, item in enumerate(value))
    if get_origin(kind) is Mapping:
        items = _items(value, place)
        return {key: _decode(get_args(kind)[1], item, f"{place}.{key}") for key, item in items.items()}
    if issubclass(kind, StrEnum):
        if value not in [str(choice) for choice in kind]:
            raise InputError(f"{place} is {shown(value)}; valid: {', '.join(kind)}")
        return kind(value)
    return _decode_scalar(kind, value, place)


def _decode_object(kind: Any, value: object, place: str) -> object:
    items = _items(value, place)
    known = {item.name: item for item in fields(kind)}
    prefix = f"{place}." if place else ""
    for key in items:
        if key not in known:
            raise InputError(f"unknown key {prefix}{key}; valid: {', '.join(known)}")
    for key, item in known.items():
        if key not in items and item.default is MISSING and item.default_factory is MISSING:
            raise InputError(f"{prefix}{key} is missing")
    hints = get_type_hints(kind)
    values = {key: _decode(hints[key], item, f"{prefix}{key}") for key, item in items.items()}
    try:
        return kind(**values)
    except InputError as error:
        raise InputError(f"{prefix}{error}") from error


def _decode_scalar(kind: type, value: object, place: str) -> object:
    if kind in (str, bool) and isinstance(value, kind):
        return value
    if kind in (int, float) and isinstance(value, (int, kind)) and not isinstance(value, bool):
        assert isinstance(value, int | float)
        if 0 <= value <= _LARGEST:
            return kind(value)
    raise InputError(f"{place} is {shown(value)}, must be {_NAMES[kind]}")


def _items(value: object, place: str) -> Mapping[str, object]:
    if not isinstance(value, dict):
        raise InputError(f"{place or 'the profile'} is {shown(value)}, must be an object")
    return value


def shown(value: object) -> str:
    """A value as JSON, cut to what a message can hold."""
    text = json.dumps(value, default=str)  # TOML has dates, which JSON has not
    return text if len(text) <= 40 else text[:37] + "..."
