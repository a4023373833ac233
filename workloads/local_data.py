"""Samples from a file: an .npz of `inputs` and `targets`, as `numpy.savez` writes; some may be held out."""

import struct
import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from dally.errors import InputError
from workloads.task import Numbers, Task

HELD_OUT = "test_"
"""What the names of those arrays begin with that are not trained on."""

_LENGTHS_AT = 26
"""Where the header of a zip file's member has the lengths of its name and extra field, which end it."""

_UNREADABLE = (
    *(OSError, EOFError, KeyError, ValueError, NotImplementedError),
    *(zipfile.BadZipFile, zlib.error, struct.error),
)
"""What reading a file that is no .npz, or a broken one, may raise."""


class LocalData:
    """Samples of a file; read when they are drawn, unless the file is compressed."""

    def __init__(self, path: Path, task: Task, prefix: str = "") -> None:
        """Open the file and check that its numbers are what the model takes.

        Args:
            path: Of the file.
            task: What is trained.
            prefix: Of the names of its arrays.

        Raises:
            InputError: It cannot be read, or does not fit the model.
        """
        self._inputs = _open(path, f"{prefix}inputs", task.inputs)
        self._targets = _open(path, f"{prefix}targets", task.targets)
        self._task = task
        self.count = len(self._inputs)
        if self.count == 0:
            raise InputError(f"{path} has no samples")
        if len(self._targets) != self.count:
            raise InputError(
                f"{path} has {self.count} inputs and {len(self._targets)} targets, must be as many"
            )

    def draw(self, samples: Sequence[int]) -> tuple[NDArray[np.generic], NDArray[np.generic]]:
        """Inputs and targets of the samples of these indices, along the first axis of each."""
        inputs, targets = self._inputs[samples], self._targets[samples]
        return inputs.astype(self._task.inputs.dtype), targets.astype(self._task.targets.dtype)


def find_held_out(path: Path, task: Task) -> LocalData | None:
    """The samples of a file that are held out of training; None if it has none.

    Raises:
        InputError: They do not fit the model.
    """
    with zipfile.ZipFile(path) as archive:
        has_some = f"{HELD_OUT}inputs.npy" in archive.namelist()
    return LocalData(path, task, HELD_OUT) if has_some else None


def _open(path: Path, name: str, wanted: Numbers) -> NDArray[np.generic]:
    try:
        array = _map(path, f"{name}.npy")
    except _UNREADABLE as error:
        raise InputError(f"{path} is not an .npz file with an array {name}: {error}") from error
    if array.shape[1:] != wanted.shape or array.dtype.kind not in "iu":
        raise InputError(
            f"{name} of {path} are {array.dtype} of shape {array.shape}, "
            f"must be whole numbers of shape (samples, {', '.join(map(str, wanted.shape))})"
        )
    if array.size and (array.dtype != np.uint8 or min(wanted.limits) < 256):
        axes = tuple(range(array.ndim)) if len(wanted.limits) == 1 else tuple(range(array.ndim - 1))
        low, high = np.min(array, axis=axes), np.max(array, axis=axes)
        if np.any(low < 0) or np.any(high >= wanted.limits):
            raise InputError(
                f"{name} of {path} go from {low} to {high}, must be 0 or more and below {wanted.limits}"
            )
    return array


def _map(path: Path, member: str) -> NDArray[np.generic]:
    """An array of the file, mapped into memory where it is stored as it is."""
    with zipfile.ZipFile(path) as archive:
        info = archive.getinfo(member)
        if info.compress_type != zipfile.ZIP_STORED:
            with archive.open(member) as file:
                return npy.read_array(file, allow_pickle=False)
    with path.open("rb") as file:
        file.seek(info.header_offset + _LENGTHS_AT)
        file.seek(sum(struct.unpack("<HH", file.read(4))), 1)
        version = npy.read_magic(file)
        read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
        shape, fortran, dtype = read(file)
        if dtype.hasobject:
            raise ValueError("it holds objects")
        return np.memmap(path, dtype, "r", file.tell(), shape, "F" if fortran else "C")
