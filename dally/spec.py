"""How policies and generated workloads are asked for: `NAME[:knob=value,...]`, and what old names became."""

from dally.errors import InputError

_RENAMED = {
    "dally-paper": "dally",
    "author": "dally",
    "author-batch": "dally-batch",
    "author-poisson": "dally-poisson",
    "author-128": "dally-128",
    "author-256": "dally-256",
    "author-512": "dally-512",
    "author-1024": "dally-1024",
}

_GIVEN_UP_KNOBS = dict.fromkeys(
    ("estimates", "newcomer_s"),
    "what is known of running times is --knowledge of a simulation and `knowledge` of dally.toml now",
) | {"last_share": "it is gone, as it helped nobody: docs/results/ablation.md"}


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


def now_called(name: str) -> str:
    """What to add to an error about an unknown name: its new name, or nothing."""
    return f"; it is called {_RENAMED[name]} now" if name in _RENAMED else ""


def given_up(knob: str) -> str:
    """What to add to an error about an unknown knob: what has taken its place, or nothing."""
    return f"; {_GIVEN_UP_KNOBS[knob]}" if knob in _GIVEN_UP_KNOBS else ""
