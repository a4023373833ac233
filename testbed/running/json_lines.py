"""Files of JSON lines that grow during a run; a kill in the middle of a line loses that line only."""

import json
import os
from pathlib import Path
from typing import Any


def append_line(path: Path, **said: object) -> None:
    """Add one object."""
    with path.open("ab+") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - 1))
        whole = file.read(1) in (b"", b"\n")
        file.write((("" if whole else "\n") + json.dumps(said, ensure_ascii=False) + "\n").encode())


def read_lines(path: Path) -> list[dict[str, Any]]:
    """The objects of a file; none if there is no such file."""
    return parse_lines(path.read_text("utf-8", "replace")) if path.exists() else []


def parse_lines(text: str) -> list[dict[str, Any]]:
    """The objects in a text; what is no object, as the end of a line that was cut off, is left out."""
    found = []
    for line in text.splitlines():
        try:
            said = json.loads(line)
        except ValueError:
            continue
        if isinstance(said, dict):
            found.append(said)
    return found
