"""Text of users made safe to print: no terminal obeys it, and it cannot pass for another line."""

_LONGEST = 200


def plain(text: str, longest: int = _LONGEST) -> str:
    r"""A text in one line of printable characters, cut to a length.

    Control characters, line ends, invisible characters and those that turn the direction of writing are shown
    as Python would write them, like `\x1b`; backslashes stay as they are.
    """
    shown = "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode() for char in text[:longest]
    )
    return shown if len(text) <= longest else f"{shown}…"
