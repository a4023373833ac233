"""Every input format, damaged in 250 ways: read, or refused in one line, in bounded time and memory."""

import traceback
from pathlib import Path

import pytest

from dally.errors import DallyError
from tests.fuzz.formats import FORMATS, Read
from tests.fuzz.limits import bounded_memory, bounded_time
from tests.fuzz.mutations import mutated

MUTATIONS = 250
MOST_PROCESSOR_S = 10.0
"""For one document; all are small and are read in milliseconds."""

MOST_BYTES = 512 * 2**20
_MOST_TOLD = 5
_SHOWN = 400


def wrong(read: Read, path: Path) -> str:
    """What is wrong with how a document is read; empty if nothing is."""
    try:
        with bounded_time(MOST_PROCESSOR_S):
            read(path)
    except DallyError as error:
        lines = str(error).splitlines()
        return "" if len(lines) == 1 else f"not one line but {lines!r}"
    except Exception as error:
        frame = traceback.extract_tb(error.__traceback__)[-1]
        return f"{type(error).__name__} at {Path(frame.filename).name}:{frame.lineno}: {error}"
    return ""


@pytest.mark.parametrize("name", FORMATS)
def test_a_damaged_document_is_read_or_refused_in_one_line(name: str, tmp_path: Path) -> None:
    form = FORMATS[name]
    (tmp_path / "made").mkdir()
    files = form.files(tmp_path / "made")
    found = []
    with bounded_memory(MOST_BYTES):
        for number in range(MUTATIONS):
            folder = tmp_path / str(number % 2)
            empty(folder)
            document = mutated(files[form.file], f"{name} {number}")
            for beside, content in {**files, form.file: document}.items():
                (folder / beside).write_bytes(content)
            if said := wrong(form.read, folder / form.file):
                found.append(f"{name}, mutation {number}: {said[:_SHOWN]}\n  {document[:_SHOWN]!r}")
    assert not found, f"{len(found)} of {MUTATIONS}:\n" + "\n".join(found[:_MOST_TOLD])


def empty(folder: Path) -> None:
    """Make a folder that holds nothing of the document before."""
    folder.mkdir(exist_ok=True)
    for left in folder.iterdir():
        left.unlink()


def test_a_document_that_takes_too_long_or_too_much_is_found(tmp_path: Path) -> None:
    def endless(path: Path) -> None:
        while True:
            pass

    with pytest.MonkeyPatch.context() as patch, bounded_memory(MOST_BYTES):
        patch.setattr("tests.fuzz.test_formats.MOST_PROCESSOR_S", 0.1)
        assert "TooLongError" in wrong(endless, tmp_path)
        assert "MemoryError" in wrong(lambda path: bytearray(2 * MOST_BYTES), tmp_path)


@pytest.mark.parametrize("name", FORMATS)
def test_the_sound_document_is_read(name: str, tmp_path: Path) -> None:
    form = FORMATS[name]
    (tmp_path / "made").mkdir()
    for file, content in form.files(tmp_path / "made").items():
        (tmp_path / file).write_bytes(content)
    form.read(tmp_path / form.file)
