"""Names that were given up: whoever still uses one is told what it is called now."""

_NOW = {
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


def now_called(name: str) -> str:
    """What to add to an error about an unknown name: its new name, or nothing."""
    return f"; it is called {_NOW[name]} now" if name in _NOW else ""


def given_up(knob: str) -> str:
    """What to add to an error about an unknown knob: what has taken its place, or nothing."""
    return f"; {_GIVEN_UP_KNOBS[knob]}" if knob in _GIVEN_UP_KNOBS else ""
