"""What all studies share: the option of knowledge, and where tables go."""

from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from analysis.studies.common import StudyCommand, knowledge_line, known_option, publish, simulate
from dally.errors import DallyError
from dally.jobs.job import Job
from dally.jobs.knowledge import Knowledge, Known
from dally.profiles.files import ProfileSet
from dally.testing.worlds import racks


@click.command()
@known_option
def study(known: Known) -> None:
    click.echo(knowledge_line(known, "Nobody goes by them."))


def test_what_policies_know_stands_above_the_table() -> None:
    assert CliRunner().invoke(study).output == "Running times known: exact. Nobody goes by them.\n"


def test_what_published_figures_do_not_assume_is_told() -> None:
    said = CliRunner().invoke(study, ["--knowledge", "none"]).output
    assert said.startswith("Running times known: none instead of exact, as the published figures assume.")
    assert str(Known(Knowledge.NONE)) in said


def test_tables_are_printed_apart_or_go_into_their_sections(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    publish([("a", "one"), ("b", "two")], None)
    assert capsys.readouterr().out == "one\n\ntwo\n"
    page = tmp_path / "page.md"
    page.write_text("<!-- a -->\n<!-- end a -->\n<!-- b -->\nold\n<!-- end b -->\n", encoding="utf-8")
    publish([("a", "one"), ("b", "two")], page)
    sections = page.read_text(encoding="utf-8").split("<!-- end a -->")
    assert sections == ["<!-- a -->\none\n", "\n<!-- b -->\ntwo\n<!-- end b -->\n"]
    with pytest.raises(DallyError, match=r"cannot write .*none\.md"):
        publish([("a", "one")], tmp_path / "none.md")


def test_what_goes_wrong_is_one_line() -> None:
    @click.command(cls=StudyCommand)
    def failing() -> None:
        raise DallyError("too few GPUs")

    result = CliRunner().invoke(failing)
    assert (result.exit_code, result.output) == (1, "Error: too few GPUs\n")


def test_a_run_in_memory_counts_its_events() -> None:
    jobs = [Job("a", 0, 2, 10), Job("b", 0, 2, 10)]
    done = simulate("fifo", jobs, racks([[2]]), ProfileSet("none", ()))
    assert (done.jct_s, done.events["start"], done.resizes, done.stops) == (15, 2, 0, 0)
    assert [record.job_id for record in done.records] == ["a", "b"]
