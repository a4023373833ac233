"""Data for a page's script: arrays and texts in one deflated block, which the browser unfolds by itself."""

import base64
import json
import zlib
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

ALIGNED = 8
"""Arrays begin at a multiple of so many bytes, as the script's typed arrays must."""

_LEVEL = 9


def deflated(content: bytes) -> str:
    """Bytes as base64 of zlib's format."""
    return base64.b64encode(zlib.compress(content, _LEVEL)).decode("ascii")


class Pack:
    """Arrays, texts and plain values by name; `unpack.js` reads what it gives."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._size = 0
        self._arrays: dict[str, tuple[str, int, int]] = {}
        self._values: dict[str, Any] = {}

    def value(self, name: str, value: object) -> None:
        """Add something small that JSON can hold."""
        self._values[name] = value

    def array(self, name: str, values: ArrayLike, kind: str) -> None:
        """Add numbers as a little-endian array of one of numpy's kinds: u1, u2, u4, i4, f4."""
        self._add(name, kind, np.asarray(values).astype(f"<{kind}").tobytes())

    def texts(self, name: str, texts: Iterable[str]) -> None:
        """Add short texts; a line break in one becomes a space."""
        self._add(name, "text", "\n".join(text.replace("\n", " ") for text in texts).encode())

    def chosen(self, name: str, texts: Iterable[str]) -> None:
        """Add texts of which many are the same: their numbers, and each once."""
        known: dict[str, int] = {}
        self.array(name, [known.setdefault(text, len(known)) for text in texts], "u4")
        self.texts(f"{name}.names", known)

    def text(self) -> str:
        """Everything, deflated: four bytes that give the length of a JSON directory, that, and the arrays."""
        directory: Mapping[str, object] = {"values": self._values, "arrays": self._arrays}
        head = json.dumps(directory, separators=(",", ":")).encode()
        head += b" " * (-(len(head) + 4) % ALIGNED)
        return deflated(len(head).to_bytes(4, "little") + head + b"".join(self._parts))

    def _add(self, name: str, kind: str, content: bytes) -> None:
        self._arrays[name] = kind, self._size, len(content)
        self._parts.append(content + bytes(-len(content) % ALIGNED))
        self._size += len(self._parts[-1])
