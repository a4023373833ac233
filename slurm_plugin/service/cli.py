"""Asking a running controller, and the words in which commands show its answers."""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from dally.errors import InputError
from dally.hostlist import fold
from dally.words import clean
from slurm_plugin.asking import NoControllerError, ask_page
from slurm_plugin.config import config_path, load_config

_TIMEOUT_S = 10.0
_MINUTE, _HOUR, _DAY = 60, 3600, 86_400
_ODD = (
    ArithmeticError,
    AttributeError,
    LookupError,
    TypeError,
    ValueError,
    OSError,
    MemoryError,
    RecursionError,
)
"""What becomes of an answer that has something else where numbers, texts or tables should be."""

UNHEALTHY = 3
"""Exit code of a command that was answered by a controller that is not well."""

config_option = click.option(
    "--config",
    type=click.Path(path_type=Path),
    help="Dally's configuration; $DALLY_CONFIG or /etc/dally/dally.toml by default.",
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


def ask(config: Path | None, page: str, quiet: bool = False) -> Mapping[str, Any]:
    """What the site's controller shows on a page.

    Args:
        config: The configuration, which says where the controller is; None for the usual one.
        page: Path of the page, like `/queue`.
        quiet: Do not say on standard error that nobody can prove who answers, where that is so.

    Raises:
        InputError: The configuration is wrong or says no address.
        NoControllerError: There is no answer, or none of this cluster's controller; the message names the
            address.
    """
    site = load_config(config)
    if not site.url:
        raise InputError(f"{config_path(config)}: url is empty, so the controller's address is not known")
    answer = ask_page(site, page, _TIMEOUT_S)
    if answer.told is None:
        raise NoControllerError(f"what answers at {site.url} is no controller of Dally's")
    if answer.status != 200:
        raise NoControllerError(f"the controller at {site.url} says: {answer.reason}")
    if not (answer.proven or quiet):
        click.echo(f"note: Slurm has no munge here, so nobody can prove who answers at {site.url}", err=True)
    return answer.told


@contextmanager
def understood() -> Iterator[None]:
    """For what is made of an answer.

    Raises:
        NoControllerError: The answer is not what this version of Dally shows.
    """
    try:
        yield
    except _ODD as error:
        raise NoControllerError("the answer is none of a controller of this version of Dally") from error


def aligned(rows: Sequence[Sequence[str]], gap: str = "  ", texts: int | None = None) -> Iterator[str]:
    """Rows as lines in columns; the first `texts` are words, the others numbers; None: all are words."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = zip(row, widths, strict=True)
        fit = (
            cell.ljust(width) if texts is None or place < texts else cell.rjust(width)
            for place, (cell, width) in enumerate(cells)
        )
        yield clean(gap.join(fit)).rstrip()


def clock(t: float) -> str:
    """A time of day, with its date unless it is near: `13:58:02`, `Nov 21 13:58`."""
    form = "%H:%M:%S" if abs(time.time() - t) < _DAY / 2 else "%b %d %H:%M"
    return time.strftime(form, time.localtime(t))


def lasting(seconds: float) -> str:
    """A time span in few characters: `45s`, `12m`, `3h05m`, `2d04h`."""
    whole = max(0, round(seconds))
    if whole < 2 * _MINUTE:
        return f"{whole}s"
    if whole < _HOUR:
        return f"{whole // _MINUTE}m"
    if whole < _DAY:
        return f"{whole // _HOUR}h{whole % _HOUR // _MINUTE:02}m"
    return f"{whole // _DAY}d{whole % _DAY // _HOUR:02}h"


def folded(nodes: dict[str, int]) -> str:
    """Nodes as Slurm writes them."""
    try:
        return fold(list(nodes))
    except InputError:
        return ",".join(nodes)
