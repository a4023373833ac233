"""Wishes of several are all heard, and a job's folder begins anew."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from dally.errors import InputError
from workloads.elastic.__main__ import main
from workloads.elastic.folder import RendezvousFolder, RendezvousPoint


@pytest.fixture
def folder(tmp_path: Path) -> RendezvousFolder:
    made = RendezvousFolder(tmp_path / "ranks")
    made.prepare()
    return made


def test_the_newest_generation_has_all_wishes(folder: RendezvousFolder) -> None:
    assert folder.wanted() == (0, ())
    assert folder.ask(into=["a", "b"]) == 1
    assert folder.ask(into=["c"], out=["a"]) == 2
    assert folder.wanted() == (2, ["b", "c"])


def test_what_holds_already_makes_no_generation(folder: RendezvousFolder) -> None:
    folder.ask(into=["a"])
    assert folder.ask(into=["a"], out=["x"]) == 1


def test_a_wish_between_reading_and_writing_is_not_lost(
    folder: RendezvousFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other, publish = RendezvousFolder(tmp_path / "ranks"), RendezvousFolder._publish
    first = [True]

    def late(self: RendezvousFolder, number: int, names: list[str]) -> bool:
        if self is folder and first.pop() if first else False:
            other.ask(into=["b"])
        return publish(self, number, names)

    monkeypatch.setattr(RendezvousFolder, "_publish", late)
    assert folder.ask(into=["a"]) == 2
    assert folder.wanted() == (2, ["b", "a"])


def test_old_generations_are_removed(folder: RendezvousFolder, tmp_path: Path) -> None:
    for number in range(30):
        folder.ask(into=[str(number)])
    assert len(list((tmp_path / "ranks").iterdir())) == 20
    assert folder.wanted()[0] == 30


def test_a_start_of_the_job_begins_anew(folder: RendezvousFolder) -> None:
    folder.ask(into=["a"])
    folder.open(RendezvousPoint("gpu1", 4000, "x"), {"a": "gpu1"}, 0)
    folder.close()
    assert (folder.rendezvous(), folder.present(), folder.is_over()) == (
        RendezvousPoint("gpu1", 4000, "x"),
        {"a": "gpu1"},
        True,
    )
    folder.prepare()
    assert (folder.wanted(), folder.rendezvous(), folder.is_over()) == ((0, ()), None, False)
    with pytest.raises(InputError, match="no elastic job meets in "):
        folder.present()


def test_the_command_tells_members_and_asks_the_last_to_leave(
    folder: RendezvousFolder, tmp_path: Path
) -> None:
    path = str(tmp_path / "ranks")
    folder.ask(into=["a", "b", "c"])
    folder.open(RendezvousPoint("gpu1", 4000, "x"), {"a": "gpu1", "b": "gpu2", "c": "gpu3"}, 0)
    told = CliRunner().invoke(main, [path])
    assert (told.exit_code, told.output) == (0, "a gpu1\nb gpu2\nc gpu3\n")
    late = CliRunner().invoke(main, [path, "--ranks", "1", "--wait", "0"])
    assert (late.exit_code, late.output) == (
        1,
        "dally-ranks: the ranks did not leave within 0 s; they are still asked to\n",
    )
    assert folder.wanted() == (2, ["a"])
    wrong = CliRunner().invoke(main, [path, "--ranks", "3"])
    assert wrong.output == "dally-ranks: ranks is 3, must be positive and below the 3 that there are\n"
