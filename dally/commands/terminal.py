"""Prints what others wrote, in files and in Slurm, so that a terminal takes it as text."""

from collections.abc import Iterable

import click
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from dally.words import clean, cut


def say(text: str, err: bool = False) -> None:
    """Print lines, each of a screenful at most."""
    click.echo("\n".join(cut(clean(line)) for line in text.split("\n")), err=err)


class TextConsole(Console):
    """A console whose texts have none but its own escape sequences."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """The pieces of what is printed."""
        for text, style, control in super().render(renderable, options):
            yield Segment(text if control else "\n".join(map(clean, text.split("\n"))), style, control)
