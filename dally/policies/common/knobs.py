"""The settings of a policy, as fields of its dataclass of knobs."""

from collections.abc import Sequence
from dataclasses import field
from typing import TypeVar

Value = TypeVar("Value", bool, int, float, str)


def knob(default: Value, text: str, choices: Sequence[str] = ()) -> Value:
    """A field of a dataclass of knobs.

    Args:
        default: Its value unless the user sets it.
        text: Says what it is, for the help.
        choices: The values that it may have; any if there are none.
    """
    known = {"choices": tuple(choices)} if choices else {}
    return field(default=default, metadata={"help": text, **known})
