"""`dally top`: the live controller on one screen, drawn again and again."""

import shutil
import signal
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.live import Live
from rich.text import Text

from dally.errors import InputError
from slurm_plugin.asking import NoControllerError
from slurm_plugin.service.cli import UNHEALTHY, ask, config_option, understood
from slurm_plugin.service.top_view import ControllerView, screen


@click.command(
    epilog="""\b
Examples:
  dally top
  dally top --every 10        over a slow line
  dally top --once | less     all jobs, once"""
)
@config_option
@click.option(
    "--every",
    "every_s",
    type=click.FloatRange(min=0.5),
    default=2.0,
    show_default=True,
    metavar="SECONDS",
    help="How often the controller is asked.",
)
@click.option("--once", is_flag=True, help="Print it once, without colours where nobody looks, and end.")
def command(config: Path | None, every_s: float, once: bool) -> None:
    """Watch the controller: its health, the GPUs, timers, why jobs wait, and the jobs. Ctrl-C ends it.

    If the controller does not answer, it says so and goes on trying. With --once, the exit code is 3 if it
    answers but is not well, 1 if it does not answer.
    """
    console = Console(highlight=False)
    if once:
        view = look(config, ControllerView({}))
        if view.trouble:
            raise NoControllerError(view.trouble)
        width, height = shutil.get_terminal_size((80, 0))
        with understood():
            lines = screen(view, time.monotonic(), width, height - 1 if height else None)
            healthy = view.status["healthy"]
        console.print(lines, no_wrap=True, crop=False)
        if not healthy:
            sys.exit(UNHEALTHY)
        return
    if not console.is_terminal or console.is_dumb_terminal:
        raise InputError("this is no terminal that can be drawn on again; use --once")
    with suppress(KeyboardInterrupt), _ended_by_term():
        _watch(config, every_s, console)


def look(config: Path | None, before: ControllerView) -> ControllerView:
    """What the controller says now; what it said before, and why there is no more, if it does not answer.

    Raises:
        InputError: The configuration is wrong or says no address.
    """
    try:
        status = ask(config, "/status", quiet=True)
        jobs: Sequence[Mapping[str, Any]] = ()
        if "now_s" in status:  # the jobs of the same cycle; asked for only if there was one since
            unchanged = status["now_s"] == before.status.get("now_s")
            with understood():
                jobs = before.jobs if unchanged else ask(config, "/queue", quiet=True)["jobs"]
    except NoControllerError as error:
        return replace(before, trouble=str(error))
    return ControllerView(status, jobs, time.monotonic())


def _watch(config: Path | None, every_s: float, console: Console) -> None:
    view = ControllerView({})

    def drawn() -> Text:
        if not (view.status or view.trouble):
            return Text("asking the controller")
        try:
            with understood():
                return screen(view, time.monotonic(), console.width, console.height)
        except NoControllerError as error:
            return screen(ControllerView({}, trouble=str(error)), 0.0, console.width, console.height)

    with Live(get_renderable=drawn, console=console, screen=True, refresh_per_second=1) as live:
        while True:
            view = look(config, view)
            live.refresh()
            time.sleep(every_s)


@contextmanager
def _ended_by_term() -> Iterator[None]:
    """SIGTERM ends it as Ctrl-C does: the terminal must be put right."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
