"""A wrong clock for the controller alone."""

from pathlib import Path

from testbed.drills.stepped_clock import stepped, wrong_time


def test_only_dally_gets_the_wrong_clock(tmp_path: Path) -> None:
    file = tmp_path / "by"
    assert stepped(("python", "-m", "other", "-c"), file) == ("python", "-m", "other", "-c")
    assert stepped(("keep", "python", "-m", "dally", "controller"), file) == (
        *("keep", "python", "-m", "testbed.drills.stepped_clock", str(file)),
        "controller",
    )


def test_the_clock_is_wrong_by_what_stands_in_the_file_at_that_moment(tmp_path: Path) -> None:
    file = tmp_path / "by"
    now = wrong_time(file, lambda: 1000.0)
    assert now() == 1000.0
    file.write_text("-300.5")
    assert now() == 699.5
    file.write_text("60")
    assert now() == 1060.0


def test_a_file_that_is_being_written_leaves_the_clock_right(tmp_path: Path) -> None:
    file = tmp_path / "by"
    file.write_text("")
    assert wrong_time(file, lambda: 1000.0)() == 1000.0
