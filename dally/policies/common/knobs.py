"""The settings of a policy, as fields of its dataclass of knobs."""

from collections.abc import Sequence
from dataclasses import field
from typing import TypeVar

Value = TypeVar("Value", bool, int, float, str)


def knob(
    default: Value,
    text: str,
    choices: Sequence[str] = (),
    *,
    least: float | None = None,
    above: float | None = None,
    most: float | None = None,
) -> Value:
    """A field of a dataclass of knobs.

    Args:
        default: Its value unless the user sets it.
        text: Says what it is, for the help.
        choices: The values that it may have; any if there are none.
        least: The least number that it may be.
        above: It must be more than this number.
        most: The greatest number that it may be.
    """
    valid = {"choices": tuple(choices) or None, "least": least, "above": above, "most": most}
    known = {name: bound for name, bound in valid.items() if bound is not None}
    return field(default=default, metadata={"help": text, **known})
