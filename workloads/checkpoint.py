"""Checkpoints: one file, that is always a whole one, whenever the job or the machine dies."""

import os
import pickle
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import torch

from dally.errors import DallyError, InputError
from workloads.group import first_line

_FORMAT = 1

_UNREADABLE = (
    *(OSError, RuntimeError, EOFError, pickle.UnpicklingError),
    *(LookupError, TypeError, ValueError, AttributeError),
)
"""What reading a file that is no checkpoint may raise."""


class CheckpointError(DallyError):
    """A checkpoint could not be written."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """What a job needs to go on.

    Attributes:
        identity: The settings that must be the same in the job that goes on.
        step: Iterations done.
        samples: Samples taken, in the order of `workloads.samples`.
        state: What `Trainer.state` gave.
    """

    identity: Mapping[str, str | float | None]
    step: int
    samples: int
    state: Mapping[str, Any]


def save_checkpoint(checkpoint: Checkpoint, path: Path) -> None:
    """Write a checkpoint in the place of the one before.

    Raises:
        CheckpointError: It could not be written, the disk being full for one; the one before is still there.
    """
    partial = path.with_name(f".{path.name}.partial")
    try:
        with partial.open("wb") as file:
            # By hand, as `asdict` would copy the whole model.
            content = {field.name: getattr(checkpoint, field.name) for field in fields(checkpoint)}
            torch.save({"format": _FORMAT, **content}, file)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
        sync_folder(path.parent)
    except (OSError, RuntimeError) as error:
        with suppress(OSError):
            partial.unlink()
        # torch hides what the system said behind an error of its own.
        cause = error.__context__ if isinstance(error.__context__, OSError) else error
        reason = (isinstance(cause, OSError) and cause.strerror) or first_line(cause)
        raise CheckpointError(f"checkpoint {path} cannot be written: {reason}") from error


def load_checkpoint(path: Path, identity: Mapping[str, str | float | None]) -> Checkpoint | None:
    """Read a checkpoint; None if there is no file.

    Args:
        path: Of the file.
        identity: The settings of the job that is to go on.

    Raises:
        InputError: The file is not a checkpoint, or one of a job with other settings.
    """
    if not path.exists():
        return None
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
        if content.pop("format") != _FORMAT:
            raise ValueError("of another version")
        checkpoint = Checkpoint(**content)
    except _UNREADABLE as error:
        raise InputError(f"{path} is not a checkpoint of this program: {first_line(error)}") from error
    for name, value in identity.items():
        if checkpoint.identity.get(name) != value:
            raise InputError(
                f"{path} is of a job with {name} {checkpoint.identity.get(name)}, and this one has {value}; "
                "take the same, or another file"
            )
    return checkpoint


def sync_folder(folder: Path) -> None:
    """Make a rename in a folder last, also if the machine loses power."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
