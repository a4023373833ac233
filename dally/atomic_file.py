"""Files in folders that others may write to: written whole and never through a link, read only if plain.

The standard library is enough, as trainings load this, too.
"""

from __future__ import annotations

import errno
import os
import pwd
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import BufferedIOBase
from pathlib import Path
from typing import BinaryIO

_FOLDER = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_HARMLESS = ("/dev/null", "/dev/stdin", "/dev/fd/", "/proc/self/fd/")
_PART = 2**20

MOST_BYTES = 2**24
"""Files that people write have no more."""


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
        PermissionError: One of the names is a link, no folder or somebody else's, or it may not be made.
        OSError: It cannot be made.
    """
    shared.mkdir(parents=True, exist_ok=True)
    handle = os.open(shared, _FOLDER)
    try:
        for name in names:
            shared /= name
            try:
                with suppress(FileExistsError):
                    os.mkdir(name, 0o755, dir_fd=handle)
                inner = os.open(name, _FOLDER | os.O_NOFOLLOW, dir_fd=handle)
            except NotADirectoryError:
                raise PermissionError(errno.EPERM, "it is no folder", str(shared)) from None
            except PermissionError as error:
                raise PermissionError(error.errno, error.strerror, str(shared)) from None
            os.close(handle)
            handle = inner
            if os.fstat(handle).st_uid != os.geteuid():
                raise PermissionError(errno.EPERM, "it belongs to another user", str(shared))
        yield Path(f"/proc/self/fd/{handle}")
    finally:
        os.close(handle)


def open_plain(path: Path | str, owner: int | None = None, follow: bool = True) -> BinaryIO:
    """Open a file to be read that anybody may have named or laid: only a plain one.

    It is looked at before it is opened to be read: to open a device, or a pipe, can do harm.

    Args:
        path: The file.
        owner: The number of the user to whom it must belong; None: to anybody.
        follow: Whether it may be a link.

    Raises:
        OSError: It cannot be read, is no plain file or somebody else's.
    """
    place = os.open(path, os.O_PATH | os.O_CLOEXEC | (0 if follow else os.O_NOFOLLOW))
    try:
        status = os.fstat(place)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "it is no plain file", str(path))
        if owner not in (None, status.st_uid):
            raise PermissionError(errno.EPERM, "it belongs to another user", str(path))
        return open(os.open(f"/proc/self/fd/{place}", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb")
    finally:
        os.close(place)


def read_plain(path: Path | str, most_bytes: int = MOST_BYTES) -> bytes:
    """All of a file that a person names and anybody may have written: of a plain one, or of an own pipe.

    Args:
        path: The file; named `/dev/stdin` and the like, it is a pipe of this process. Other pipes, and all
            devices but `/dev/null`, are refused.
        most_bytes: It may have so many.

    Raises:
        OSError: It cannot be read, is no plain file or too long.
    """
    with open(path, "rb") if str(path).startswith(_HARMLESS) else open_plain(path) as file:
        return read_within(file, most_bytes)


def read_within(file: BinaryIO | BufferedIOBase, most_bytes: int) -> bytes:
    """What is left of a stream, which may be unpacked as it is read.

    Raises:
        OSError: It cannot be read, or has more bytes.
    """
    data = bytearray()
    while len(data) <= most_bytes and (part := file.read(_PART)):
        data += part
    if len(data) > most_bytes:
        raise OSError(errno.EFBIG, f"it has more than {most_bytes:,} bytes")
    return bytes(data)


def user_name(number: int) -> str:
    """What a user is called; his number where this machine knows no name."""
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return str(number)
