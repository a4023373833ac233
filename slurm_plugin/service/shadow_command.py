"""`dally shadow`: what a shadow controller would have done otherwise than Slurm did, by user and account."""

import json
from collections.abc import Iterator
from pathlib import Path

import click

from dally.errors import InputError
from slurm_plugin.config import load_config
from slurm_plugin.controller.journal import MOST_EVENTS, NAME, read_events
from slurm_plugin.service.cli import aligned, clock, config_option, json_option, lasting
from slurm_plugin.service.shadow_report import Rows, ShadowRow, shadow_rows, total

_HEADS = ("USER", "ACCOUNT", "JOBS", "EARLIER", "BY", "SAME", "LATER", "WAITED", "STOPPED", "MOVED")
_TEXTS = 2


@click.command(epilog="\b\nExample:\n  dally controller --shadow     # for a week, then\n  dally shadow")
@config_option
@json_option
def command(config: Path | None, as_json: bool) -> None:
    """Tell what would have been different: earlier and later starts, and jobs stopped for others.

    It reads the events of `dally controller --shadow`, which may be at work. Each decision was taken on the
    cluster as Slurm had it; what would have followed from it is not counted.
    """
    folder = Path(load_config(config).state_dir) / "shadow"
    if not (folder / NAME).exists():
        raise InputError(f"{folder} has no journal: run `dally controller --shadow` for some days first")
    events = read_events(folder, most=MOST_EVENTS)
    began_s, ended_s = (events[0]["t"], events[-1]["t"]) if events else (0.0, 0.0)
    rows = shadow_rows(events, ended_s)
    if as_json:
        by_user = [
            {"user": user, "account": account, **row.as_data()} for (user, account), row in rows.items()
        ]
        said = {"from_s": began_s, "to_s": ended_s, "total": total(rows).as_data(), "rows": by_user}
        click.echo(json.dumps(said, indent=2))
        return
    if not events:
        raise InputError(f"{folder / NAME} has no events yet")
    click.echo(f"from {clock(began_s)} to {clock(ended_s)} ({lasting(ended_s - began_s)})")
    for line in table(rows):
        click.echo(line)


def table(rows: Rows) -> Iterator[str]:
    """The lines of the table, all users together in the last."""
    cells = [_HEADS, *(_cells(user, account, row) for (user, account), row in rows.items())]
    cells.append(_cells("all", "", total(rows)))
    return aligned(cells, " ", _TEXTS)


def _cells(user: str, account: str, row: ShadowRow) -> tuple[str, ...]:
    data = row.as_data()
    gained, waited = (
        "-" if (mean_s := data[name]) is None else lasting(mean_s)
        for name in ("mean_gained_s", "mean_wait_s")
    )
    return (
        user,
        account or "-",
        str(row.jobs),
        str(row.earlier),
        gained,
        str(row.same),
        str(row.later),
        waited,
        str(row.preemptions),
        str(row.migrations),
    )
