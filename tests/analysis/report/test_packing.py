"""What the page's script unfolds is what was packed."""

import base64
import json
import zlib
from typing import Any

import numpy as np

from analysis.report.packing import ALIGNED, Pack


def unfolded(text: str) -> tuple[dict[str, Any], bytes]:
    """Directory and arrays, read as unpack.js does."""
    content = zlib.decompress(base64.b64decode(text))
    length = int.from_bytes(content[:4], "little")
    assert (4 + length) % ALIGNED == 0
    return json.loads(content[4 : 4 + length]), content[4 + length :]


def test_arrays_begin_where_the_directory_says_aligned() -> None:
    pack = Pack()
    pack.array("small", [1, 2, 3], "u1")
    pack.array("large", [1.5, -2], "f4")
    directory, content = unfolded(pack.text())
    kind, offset, size = directory["arrays"]["large"]
    assert (kind, offset % ALIGNED, size) == ("f4", 0, 8)
    assert np.frombuffer(content[offset : offset + size], "<f4").tolist() == [1.5, -2]


def test_repeated_texts_are_kept_once_and_line_breaks_cannot_shift_them() -> None:
    pack = Pack()
    pack.chosen("model", ["vgg11", "two\nlines", "vgg11"])
    directory, content = unfolded(pack.text())
    _, offset, size = directory["arrays"]["model.names"]
    assert content[offset : offset + size].decode() == "vgg11\ntwo lines"
    assert np.frombuffer(content[:12], "<u4").tolist() == [0, 1, 0]


def test_values_are_there_as_they_were() -> None:
    pack = Pack()
    pack.value("runs", ["a", "ü"])
    assert unfolded(pack.text())[0]["values"] == {"runs": ["a", "ü"]}
