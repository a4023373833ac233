"""`dally testbed drill`, as far as it starts nothing."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from dally.errors import InputError
from testbed.commands.drill import command
from testbed.drills.catalogue import DRILLS, Drill


def test_the_list_has_every_drill_and_does_nothing() -> None:
    done = CliRunner().invoke(command, ["--list"])
    assert done.exit_code == 0
    assert [line.split()[0] for line in done.output.splitlines()] == [drill.name for drill in DRILLS]


def test_an_unknown_name_is_refused_before_anything_starts(tmp_path: Path) -> None:
    done = CliRunner().invoke(command, ["controller-kill", "fire", "--out", str(tmp_path / "out")])
    assert isinstance(done.exception, InputError)
    assert "fire" in str(done.exception)
    assert not (tmp_path / "out").exists()


def test_without_a_folder_it_is_a_usage_error() -> None:
    assert CliRunner().invoke(command, ["controller-kill"]).exit_code == 2


def test_a_folder_that_holds_something_is_refused(tmp_path: Path) -> None:
    (tmp_path / "controller-kill").mkdir()
    (tmp_path / "controller-kill" / "precious").touch()
    done = CliRunner().invoke(command, ["controller-kill", "--out", str(tmp_path)])
    assert isinstance(done.exception, InputError)


@pytest.mark.parametrize("drill", DRILLS, ids=lambda drill: drill.name)
def test_every_drill_can_tell_whether_its_fault_struck(drill: Drill) -> None:
    assert drill.shows
