"""The option of studies that says what all their policies know of running times, and the words for it."""

from collections.abc import Callable
from typing import Any

import click

from dally.jobs.knowledge import EXACTLY, Knowledge, Known

known_option: Callable[[Callable[..., Any]], Callable[..., Any]] = click.option(
    "--knowledge",
    "known",
    type=click.Choice([each.value for each in Knowledge]),
    default=Knowledge.EXACT.value,
    show_default=True,
    callback=lambda context, option, value: Known(Knowledge(value)),
    help="Of running times, the same for all policies; exact is what the published simulations assume.",
)


def told(known: Known, who: str) -> str:
    """What the policies of a table know, for the line above it.

    Args:
        known: What they know.
        who: Which of them go by that, and what the published ones knew; a sentence.
    """
    other = "" if known == EXACTLY else " instead of exact, as the published figures assume"
    return f"Running times known: {known}{other}. {who}"
