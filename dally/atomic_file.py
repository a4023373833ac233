"""Writing a file so that no half of one is ever seen."""

import os
import tempfile
from pathlib import Path


def write_atomically(path: Path, content: str | bytes, mode: int = 0o644) -> None:
    """Write a file so that readers see the old content or the new one, and nothing between.

    The content, text as UTF-8, goes to a file beside it, onto the disk, and takes the name; a failure leaves
    nothing behind.

    Raises:
        OSError: It cannot be written; the error names the file, not the one beside it.
    """
    try:
        _write(path, content, mode)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error


def _write(path: Path, content: str | bytes, mode: int) -> None:
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(name, mode)
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
