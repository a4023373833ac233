"""Reads a trace file's bytes, plain or gzip, and turns what can go wrong into one line."""

import gzip
import hashlib
import zlib
from dataclasses import dataclass
from pathlib import Path

from dally.errors import InputError

_GZIP_MAGIC = b"\x1f\x8b"


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A trace file's text.

    Attributes:
        text: All of it, without a byte order mark. Bytes that are not UTF-8 are lone surrogates
            (`surrogateescape`), for the reader to refuse the row that they are in.
        sha256: Hex digest of the bytes as stored, so of the compressed ones if it is compressed.
    """

    text: str
    sha256: str


def read_source(path: Path) -> SourceFile:
    """Read a UTF-8 file; gzip is recognised by its first bytes, not by its name.

    Raises:
        InputError: The file cannot be read, is empty, is damaged gzip, or its first line is not UTF-8.
    """
    try:
        stored = path.read_bytes()
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}") from error
    plain = _unpack(path, stored) if stored.startswith(_GZIP_MAGIC) else stored
    if not plain.strip():
        raise InputError(f"{path}: the file is empty")
    return SourceFile(_decode(path, plain), hashlib.sha256(stored).hexdigest())


def _unpack(path: Path, stored: bytes) -> bytes:
    """The contents of a gzip file."""
    try:
        return gzip.decompress(stored)
    except EOFError as error:
        raise InputError(f"{path}: the gzip file ends early, it is truncated") from error
    except (gzip.BadGzipFile, zlib.error) as error:
        raise InputError(f"{path}: damaged gzip file: {error}") from error


def _decode(path: Path, plain: bytes) -> str:
    """The text of UTF-8 bytes; wrong ones further down are for the reader of their row."""
    try:
        return plain.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        if b"\n" in plain[: error.start].lstrip():
            return plain.decode("utf-8-sig", "surrogateescape")
        line = plain.count(b"\n", 0, error.start) + 1
        raise InputError(f"{path}, line {line}: byte 0x{plain[error.start]:02x} is not UTF-8") from error
