"""`profile-models models`: what can be measured."""

import json
from dataclasses import asdict

import click
from rich.table import Table

from dally.commands.terminal import TextConsole
from workloads.registry import WORKLOADS


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print the figures as JSON.")
def command(as_json: bool) -> None:
    """List the models that can be measured."""
    models = WORKLOADS.values()
    if as_json:
        data = [asdict(model) | {"grad_bytes": model.grad_bytes} for model in models]
        click.echo(json.dumps(data, indent=2))
        return
    table = Table("model", "name", "parameters", "gradients", "samples per rank", "optimizer")
    for column in table.columns[2:5]:
        column.justify = "right"
    for model in models:
        table.add_row(
            model.name,
            model.title,
            f"{model.params / 1e6:.1f} M",
            f"{model.grad_bytes / 1e6:.1f} MB",
            f"{model.local_batch:,}",
            model.optimizer,
        )
    (TextConsole() if TextConsole().is_terminal else TextConsole(width=100)).print(table)
