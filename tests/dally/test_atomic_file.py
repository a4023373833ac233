"""A file is written whole or not at all."""

import errno
import os
import stat
from pathlib import Path

import pytest

from dally.atomic_file import open_plain, own_folder, read_plain, write_atomically


def test_the_text_replaces_the_old_one_with_the_mode_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("old")
    write_atomically(path, "new", 0o600)
    assert path.read_text() == "new"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert os.listdir(tmp_path) == ["a.txt"]


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_a_failure_leaves_the_old_text_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    path = tmp_path / "a.txt"
    path.write_text("old")
    monkeypatch.setattr(os, call, fail)
    with pytest.raises(OSError, match="No space left"):
        write_atomically(path, "new")
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["a.txt"]


def test_the_error_names_the_file_that_was_asked_for(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    for path in (tmp_path / "missing" / "a.txt", tmp_path / "folder"):
        with pytest.raises(OSError) as error:
            write_atomically(path, "new")
        assert (error.value.filename, error.value.filename2) == (str(path), None)


def test_links_laid_in_a_shared_folder_lead_nowhere(tmp_path: Path) -> None:
    """A folder of one's own is not found by its name again: it may be a link by then."""
    shared, mine = tmp_path / "shared", tmp_path / "mine"
    mine.mkdir()
    with own_folder(shared, "17", "run") as folder:
        (shared / "17").rename(shared / "stolen")
        (shared / "17").symlink_to(mine)
        (folder / "a.txt").symlink_to(tmp_path / "b.txt")
        write_atomically(folder / "a.txt", "new", mode=None, durable=False)
    assert (shared / "stolen" / "run" / "a.txt").read_text() == "new"
    with pytest.raises(OSError, match="no folder"), own_folder(shared, "17", "run"):
        pass
    assert (os.listdir(mine), (tmp_path / "b.txt").exists()) == ([], False)


def test_another_users_folder_is_not_taken_for_ones_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "17").mkdir()
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    with pytest.raises(PermissionError, match="another user"), own_folder(tmp_path, "17"):
        pass


def test_only_a_plain_file_of_its_user_is_read(tmp_path: Path) -> None:
    (tmp_path / "plain").write_text("said")
    (tmp_path / "link").symlink_to("plain")
    os.mkfifo(tmp_path / "pipe")
    for name in ("plain", "link"):
        with open_plain(tmp_path / name, os.getuid()) as file:
            assert file.read() == b"said"
    for path in (tmp_path, tmp_path / "pipe", Path("/dev/zero")):
        with pytest.raises(OSError, match="no plain file"):
            open_plain(path, os.getuid())
    with pytest.raises(PermissionError, match="another user"):
        open_plain(tmp_path / "plain", os.getuid() + 1)
    with pytest.raises(OSError, match="no plain file"):
        open_plain(tmp_path / "link", follow=False)


def test_an_own_pipe_is_read_and_all_has_bounds(tmp_path: Path) -> None:
    """As of `dally trace <(sacct ...)`."""
    reading, writing = os.pipe()
    os.write(writing, b"said")
    os.close(writing)
    assert read_plain(f"/dev/fd/{reading}") == b"said"
    os.close(reading)
    (tmp_path / "pipe").symlink_to("/dev/stdin")
    (tmp_path / "sparse").touch()
    os.truncate(tmp_path / "sparse", 2**40)
    for name, told in (("pipe", "no plain file"), ("sparse", "more than 16,777,216 bytes")):
        with pytest.raises(OSError, match=told):
            read_plain(tmp_path / name)
