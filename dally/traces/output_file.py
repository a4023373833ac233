"""Writes a workload to a file as the common CSV: whole or not at all."""

import gzip
import io
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from dally.errors import InputError
from dally.jobs.job import Job
from dally.traces import common_csv


def write_workload(jobs: Sequence[Job], path: Path) -> None:
    """Write jobs as the common CSV, compressed if the name ends in `.gz`; the same jobs give the same bytes.

    The file appears under its name when it is complete; before that an older one stays as it is.

    Raises:
        InputError: The file cannot be written, or the name is taken by something other than a file.
    """
    path = path.resolve()
    if path.exists() and not path.is_file():
        raise InputError(f"{path}: is not a regular file")
    text = io.StringIO(newline="")
    common_csv.write(jobs, text)
    content = text.getvalue().encode()
    if path.suffix == ".gz":
        content = gzip.compress(content, mtime=0)
    _replace(path, content)


def _replace(path: Path, content: bytes) -> None:
    """Write a temporary file beside the target, then rename it."""
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        part.write_bytes(content)
        part.replace(path)
    except OSError as error:
        raise InputError(f"{path}: cannot write: {error.strerror or error}") from error
    finally:
        with suppress(OSError):
            part.unlink()
