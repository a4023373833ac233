"""Raw files are read whole, a cut last line is dropped, and anything else wrong is named."""

from dataclasses import replace
from pathlib import Path

import pytest

from dally.errors import InputError
from profiler.messages import Finished, Started, format_line
from profiler.report.raw import read_folder, read_raw
from tests.profiler.report.machine import ENV, FAR, SOLO, measure, write_raw

RAW = measure(FAR)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    write_raw(RAW, tmp_path / "run.jsonl")
    return tmp_path / "run.jsonl"


def test_what_was_written_is_read(path: Path) -> None:
    assert read_raw(path) == RAW


def test_a_file_without_finished_is_partial(path: Path) -> None:
    write_raw(replace(RAW, finished=False), path)
    assert read_raw(path) == replace(RAW, finished=False)


def test_a_last_line_that_was_cut_off_is_dropped(path: Path) -> None:
    write_raw(replace(RAW, finished=False), path)
    whole = path.read_bytes()
    last = whole.rstrip(b"\n").rindex(b"\n") + 1
    for end in (last + 1, last + 40, len(whole) - 2):
        path.write_bytes(whole[:end])
        assert read_raw(path).trained == RAW.trained[:-1]


def test_a_last_line_that_lacks_only_its_end_counts(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])
    assert read_raw(path) == RAW


def test_ranks_that_never_met_leave_nothing_but_the_order(path: Path) -> None:
    path.write_text(format_line(RAW.run) + "\n")
    raw = read_raw(path)
    assert (raw.env, raw.trained, raw.finished) == (None, (), False)


@pytest.mark.parametrize(
    ("number", "line", "message"),
    [
        (1, format_line(Finished(1.0)), "run.jsonl:1: must be a whole line of kind run"),
        (2, format_line(RAW.run), "run.jsonl:2: lines must be one run, one started"),
        (2, format_line(RAW.reduced[0]), "run.jsonl:2: lines must be one run, one started"),
        (3, format_line(Started(ENV)), "run.jsonl:3: lines must be one run, one started"),
        (3, "{", "run.jsonl:3: not a JSON line"),
        (3, '{"kind": "gossip"}', "run.jsonl:3: unknown kind of line 'gossip'"),
        (3, '{"kind": "allreduce", "bytes": -1}', "run.jsonl:3: "),
        (4, format_line(Finished(1.0)), "run.jsonl:5: lines must be one run"),
    ],
)
def test_a_wrong_line_is_named_in_one_line(path: Path, number: int, line: str, message: str) -> None:
    lines = path.read_text().splitlines()
    lines[number - 1] = line
    path.write_text("\n".join(lines) + "\n")
    with pytest.raises(InputError) as caught:
        read_raw(path)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_bytes_that_are_no_text_are_named(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b"\xff\xfe\n")
    with pytest.raises(InputError, match=r"run\.jsonl:\d+: "):
        read_raw(path)


@pytest.mark.parametrize("text", ["", '{"kind": "ru'])
def test_a_file_without_a_whole_first_line_is_refused(path: Path, text: str) -> None:
    path.write_text(text)
    with pytest.raises(InputError, match=r"run\.jsonl:1: must be a whole line of kind run"):
        read_raw(path)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"gone\.jsonl cannot be read: No such file"):
        read_raw(tmp_path / "gone.jsonl")


def test_a_folder_is_read_by_name_partial_files_too(path: Path) -> None:
    write_raw(measure(SOLO), path.with_name("alone.partial.jsonl"))
    assert read_folder(path.parent) == (measure(SOLO), RAW)


def test_a_folder_without_raw_files_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="has no raw files"):
        read_folder(tmp_path)
