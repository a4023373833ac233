import click
from click.testing import CliRunner

from analysis.studies.known_option import known_option, told
from dally.jobs.knowledge import Knowledge, Known


@click.command()
@known_option
def study(known: Known) -> None:
    click.echo(told(known, "Nobody goes by them."))


def test_what_policies_know_stands_above_the_table() -> None:
    assert CliRunner().invoke(study).output == "Running times known: exact. Nobody goes by them.\n"


def test_what_published_figures_do_not_assume_is_told() -> None:
    said = CliRunner().invoke(study, ["--knowledge", "none"]).output
    assert said.startswith("Running times known: none instead of exact, as the published figures assume.")
    assert str(Known(Knowledge.NONE)) in said
