"""How policies and generated workloads are asked for: `NAME[:knob=value,...]`."""

from dally.errors import InputError


def spec_name(spec: str) -> str:
    """The name in a specification."""
    return spec.partition(":")[0]


def spec_knobs(spec: str) -> dict[str, str]:
    """The knobs of a specification, as text.

    Raises:
        InputError: A knob has no value or is given twice.
    """
    _, colon, rest = spec.partition(":")
    knobs: dict[str, str] = {}
    for item in rest.split(",") if colon else []:
        name, equals, value = (part.strip() for part in item.partition("="))
        if not (name and equals and value):
            raise InputError(f"{item!r} is no knob, must be like name=value")
        if name in knobs:
            raise InputError(f"knob {name} is given twice")
        knobs[name] = value
    return knobs
