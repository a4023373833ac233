"""Reads the knobs of a generated workload: numbers and mixes, from text."""

from dally.errors import InputError


def knob_number(name: str, text: str, *, low: float, high: float = float("inf")) -> float:
    """A number between `low` and `high`, both allowed unless infinite.

    Raises:
        InputError: The text is no such number.
    """
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not low <= value <= high or value == float("inf"):
        bound = f"at least {low:g}" if high == float("inf") else f"from {low:g} to {high:g}"
        raise InputError(f"{name} is {text!r}, must be a number {bound}")
    return value


def knob_whole(name: str, text: str, *, low: int, high: int) -> int:
    """A whole number between `low` and `high`, both allowed.

    Raises:
        InputError: The text is no such number.
    """
    value = knob_number(name, text, low=low, high=high)
    if not value.is_integer():
        raise InputError(f"{name} is {text!r}, must be a whole number")
    return int(value)


def knob_mix(name: str, text: str) -> tuple[tuple[int, float], ...]:
    """A mix of GPU counts: `8`, or counts with weights like `1:60/8:30/16:10`.

    Raises:
        InputError: A count or weight is wrong, or a count is given twice.
    """
    mix: dict[int, float] = {}
    for item in text.split("/"):
        count_text, colon, weight_text = item.partition(":")
        count = knob_whole(name, count_text, low=1, high=1_000_000)
        if count in mix:
            raise InputError(f"{name}: {count} GPUs are given twice")
        mix[count] = knob_number(name, weight_text, low=1e-9) if colon else 1.0
    return tuple(mix.items())
