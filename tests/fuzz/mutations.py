"""Damage to a document, drawn from a seed: what editors, disks, older programs and users do to files."""

import re
from collections.abc import Callable
from random import Random

_WORD = re.compile(rb'"[^"\n]*"|[\w.+-]+')
_NUMBER = re.compile(rb"\d+(?:\.\d+)?")

_TOKENS = (
    b"",
    b"0",
    b"-1",
    b"0.5",
    b"1e308",
    b"1e999",
    b"-1e999",
    b"nan",
    b"NaN",
    b"Infinity",
    b"9223372036854775808",
    b"1" + b"0" * 400,
    b"9" * 5_000,
    b"n[1-99999999]",
    b"n[0-9][0-9][0-9][0-9][0-9][0-9][0-9]",
    b"n[1-4,3]",
    b"true",
    b"null",
    b"[]",
    b"{}",
    b'""',
    b'"\\ud800"',
    b"[[1]]",
    b'{"a": {"a": 1}}',
    b"'",
    b'"',
    b"\\",
    b"\0",
    b"\x1b[2J",
    b"\xff\xfe",
    "Zoë\u2028".encode(),
    b"\r\n",
    b"\n\n",
    b",",
    b"=",
    b"|",
    b":",
    b"#",
    b"x" * 70_000,
    b"9999-12-31T23:59:59",
    b"0001-01-01",
)
_NESTED = (b"[", b'{"a":', b"{a: ", b"a.", b"(", b"- ", b"[[")
_DEPTHS = (200, 3_000, 100_000)

Change = Callable[[bytes, Random], bytes]


def mutated(document: bytes, seed: str) -> bytes:
    """The document with one to three changes; the same ones for the same seed."""
    random = Random(seed)
    for _ in range(random.choice((1, 1, 2, 3))):
        document = random.choices(_CHANGES, _WEIGHTS)[0](document, random)
    return document


def _span(document: bytes, random: Random) -> tuple[int, int]:
    start = random.randint(0, len(document))
    return start, min(len(document), start + random.choice((1, 2, 8, 64, 512)))


def _other_bytes(document: bytes, random: Random) -> bytes:
    start, end = _span(document, random)
    return document[:start] + random.randbytes(end - start) + document[end:]


def _cut_out(document: bytes, random: Random) -> bytes:
    start, end = _span(document, random)
    return document[:start] + document[end:]


def _cut_short(document: bytes, random: Random) -> bytes:
    return document[: random.randint(0, len(document))]


def _repeated(document: bytes, random: Random) -> bytes:
    start, end = _span(document, random)
    return document[:end] + document[start:end] * random.choice((1, 3)) + document[end:]


def _token_inside(document: bytes, random: Random) -> bytes:
    at = random.randint(0, len(document))
    return document[:at] + random.choice(_TOKENS) + document[at:]


def _word_replaced(document: bytes, random: Random, pattern: re.Pattern[bytes] = _WORD) -> bytes:
    found = [*pattern.finditer(document)]
    if not found:
        return document
    word, other = random.choice(found), random.choice(found)[0]
    by = random.choice((other, *random.choices(_TOKENS, k=2)))
    return document[: word.start()] + by + document[word.end() :]


def _number_replaced(document: bytes, random: Random) -> bytes:
    return _word_replaced(document, random, _NUMBER)


def _lines_changed(document: bytes, random: Random) -> bytes:
    lines = document.splitlines(keepends=True)
    if not lines:
        return document
    one, other = random.randrange(len(lines)), random.randrange(len(lines))
    match random.randrange(3):
        case 0:
            lines[one], lines[other] = lines[other], lines[one]
        case 1:
            del lines[one]
        case _:
            lines.insert(other, lines[one])
    return b"".join(lines)


def _nested(document: bytes, random: Random) -> bytes:
    at, depth = random.randint(0, len(document)), random.choices(_DEPTHS, (8, 4, 1))[0]
    return document[:at] + random.choice(_NESTED) * depth + document[at:]


_CHANGES: tuple[Change, ...] = (
    _other_bytes,
    _cut_out,
    _cut_short,
    _repeated,
    _token_inside,
    _word_replaced,
    _number_replaced,
    _lines_changed,
    _nested,
)
_WEIGHTS = (3, 2, 1, 2, 3, 6, 6, 3, 1)
