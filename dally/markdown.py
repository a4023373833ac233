"""Markdown that programs write: tables, and the sections of a document that hold them."""

from collections.abc import Iterable, Sequence

from dally.errors import InputError


def replace_section(text: str, name: str, body: str) -> str:
    """Put a body between the comments `<!-- NAME -->` and `<!-- end NAME -->` of a document.

    Raises:
        InputError: The document lacks one of them.
    """
    start, end = opening(name), f"<!-- end {name} -->"
    if start not in text or end not in text:
        raise InputError(f"the document has no section {start} ... {end}")
    before, rest = text.split(start, 1)
    return f"{before}{start}\n{body}\n{end}{rest.split(end, 1)[1]}"


def opening(name: str) -> str:
    """The comment that a section begins with."""
    return f"<!-- {name} -->"


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
