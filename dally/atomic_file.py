"""Files in folders that others may write to: written whole and never through a link, read only if plain.

The standard library is enough, as trainings load this, too.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

_FOLDER = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def write_atomically(
    path: Path, content: str | bytes, mode: int | None = 0o644, durable: bool = True
) -> None:
    """Write a file so that readers see the old content or the new one, and nothing between.

    The content, text as UTF-8, goes to a new file beside it, whose name nobody can know, and takes the name;
    a failure leaves nothing behind.

    Args:
        path: The file.
        content: All of it.
        mode: Who may read and write it; None: as the process has it for new files.
        durable: Wait until it is on the disk.

    Raises:
        OSError: It cannot be written; the error names the file, not the one beside it.
    """
    try:
        _write(path, content, mode, durable)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error


def _write(path: Path, content: str | bytes, mode: int | None, durable: bool) -> None:
    beside = path.with_name(f".{path.name}.{os.urandom(8).hex()}")
    handle = os.open(beside, _NEW, 0o666 if mode is None else mode)
    try:
        with os.fdopen(handle, "wb") as file:
            if mode is not None:
                os.fchmod(handle, mode)
            file.write(content.encode() if isinstance(content, str) else content)
            file.flush()
            if durable:
                os.fsync(handle)
        os.replace(beside, path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise


@contextmanager
def own_folder(shared: Path, *names: str) -> Iterator[Path]:
    """A folder of this user's below one in which all may write; made where it is missing.

    Others may have laid a folder of theirs there, or a link: the path that is given does not depend on names.

    Raises:
        OSError: It cannot be made, or one of the names is a link or somebody else's.
    """
    shared.mkdir(parents=True, exist_ok=True)
    handle = os.open(shared, _FOLDER)
    try:
        for name in names:
            with suppress(FileExistsError):
                os.mkdir(name, dir_fd=handle)
            inner = os.open(name, _FOLDER | os.O_NOFOLLOW, dir_fd=handle)
            os.close(handle)
            handle = inner
            if os.fstat(handle).st_uid != os.geteuid():
                raise PermissionError(errno.EPERM, "it belongs to another user", name)
        yield Path(f"/proc/self/fd/{handle}")
    finally:
        os.close(handle)


def open_plain(path: Path | str, owner: int) -> BinaryIO:
    """Open a file to be read that anybody may have named: only a plain one of this user's.

    It is looked at before it is opened to be read: to open a device, or a pipe, can do harm.

    Args:
        path: The file; links are followed, as what they lead to must be the user's.
        owner: The user's number.

    Raises:
        OSError: It cannot be read, is no plain file or somebody else's.
    """
    place = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        status = os.fstat(place)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "it is no plain file", str(path))
        if status.st_uid != owner:
            raise PermissionError(errno.EPERM, "it belongs to another user", str(path))
        return open(os.open(f"/proc/self/fd/{place}", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb")
    finally:
        os.close(place)
