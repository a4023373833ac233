"""Writes text of the Python language reference as samples: `python -m workloads.reference_text FILE.npz`.

Its source is `pydoc_data.topics`, which Python ships: what `help()` tells of keywords and symbols, English
prose and code; 373,000 characters in Python 3.11, other numbers in others. Of paragraphs that are there more
than once only the first counts, so that none that is held out is trained on. The last tenth is held out.
"""

import sys
from pathlib import Path
from pydoc_data.topics import topics
from typing import Any

import numpy as np
from numpy.typing import NDArray

from workloads.local_data import HELD_OUT
from workloads.registry import find_workload

_HELD_OUT = 0.1


def write_reference(path: Path) -> None:
    """Write all text in pieces; targets are the inputs, one character on."""
    text = reference()
    size = find_workload("chargpt").size
    assert size
    cut = len(text) - round(_HELD_OUT * len(text))
    arrays: dict[str, Any] = {}
    for prefix, part in (("", text[:cut]), (HELD_OUT, text[cut:])):
        pieces = (len(part) - 1) // size * size
        arrays[f"{prefix}inputs"] = part[:pieces].reshape(-1, size)
        arrays[f"{prefix}targets"] = part[1 : pieces + 1].reshape(-1, size)
    np.savez(path, **arrays)


def reference() -> NDArray[np.uint8]:
    """Each paragraph once, as ASCII; a question mark stands for other characters."""
    whole = "\n\n".join(topics[name] for name in sorted(topics)).encode("ascii", "replace")
    paragraphs = (part.strip(b"\n") for part in whole.split(b"\n\n"))
    return np.frombuffer(b"\n\n".join(dict.fromkeys(paragraphs)), np.uint8)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python -m workloads.reference_text FILE.npz")
    write_reference(Path(sys.argv[1]))
