"""Bounds of numbers that people give: beyond them nothing can be meant, and sums of floats lose seconds."""

from dally.errors import InputError

LEAST, MOST = 1e-6, 1e12
"""Of seconds, a millionth and 30,000 years."""


def check_number(name: str, value: float, least: float = LEAST, most: float = MOST) -> None:
    """Refuse a number that is out of its bounds, or none.

    Raises:
        InputError: It is; the message names it and what is valid.
    """
    if not least <= value <= most:
        shown = f"{value:g}" if isinstance(value, float) else f"{value!s:.20}"
        valid = "a positive number" if least == LEAST else f"{least:g} or more,"
        raise InputError(f"{name} is {shown}, must be {valid} up to {most:g}")
