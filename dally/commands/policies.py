"""`dally policies`: each policy with a sentence, its knobs and its source."""

import json
import textwrap
from collections.abc import Iterator
from dataclasses import asdict

import click

from dally.errors import DallyError
from dally.policies.base import Policy
from dally.policies.registry import knobs, policy_names, policy_type


@click.command(epilog="\b\nExample:\n  dally policies tiresias")
@click.argument("names", nargs=-1)
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
def command(names: tuple[str, ...], as_json: bool) -> None:
    """List the scheduling policies, or those named, with their knobs and sources.

    A knob is set where a policy is named: NAME:knob=value,knob=value.
    """
    policies = [policy_type(name) for name in names] if names else list(_all_that_work())
    if as_json:
        data = [
            {
                "name": each.name,
                "summary": each.summary,
                "source": each.source,
                "knobs": [*map(asdict, knobs(each))],
            }
            for each in policies
        ]
        click.echo(json.dumps(data, indent=2))
        return
    for each in policies:
        click.secho(each.name, bold=True)
        click.echo(textwrap.fill(each.summary, 100, initial_indent="  ", subsequent_indent="  "))
        for knob in knobs(each):
            click.echo(f"    {f'{knob.name}={knob.default}':<22} {knob.help} ({knob.valid})")
        click.echo(textwrap.fill(f"Source: {each.source}", 100, initial_indent="  ", subsequent_indent="  "))


def _all_that_work() -> Iterator[type[Policy]]:
    """All policies; of one that is broken, or lacks a package, a line, so that the others can be seen."""
    for name in policy_names():
        try:
            yield policy_type(name)
        except DallyError as error:
            click.echo(f"dally: {error}", err=True)
