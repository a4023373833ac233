"""Prints what others wrote, in files and in Slurm, so that a terminal takes it as text."""

from collections.abc import Iterable
from typing import Any

import click
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

from dally.words import clean, cut


def say(text: str, err: bool = False) -> None:
    """Print one line, of a screenful at most; ends of lines in it are blanks, as others may have put them."""
    click.echo(cut(clean(text)), err=err)


class TextConsole(Console):
    """A console whose texts have none but its own escape sequences, and no markup."""

    def __init__(self, **options: Any) -> None:
        super().__init__(markup=False, **options)

    def print(self, *objects: Any, **options: Any) -> None:
        """Print; a text is one line, as `say` has it."""
        for each in objects:
            if isinstance(each, Text):
                each.plain = clean(each.plain)
        super().print(*(clean(each) if isinstance(each, str) else each for each in objects), **options)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """The pieces of what is printed."""
        for text, style, control in super().render(renderable, options):
            yield Segment(text if control else "\n".join(map(clean, text.split("\n"))), style, control)
