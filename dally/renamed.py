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


def now_called(name: str) -> str:
    """What to add to an error about an unknown name: its new name, or nothing."""
    return f"; it is called {_NOW[name]} now" if name in _NOW else ""
