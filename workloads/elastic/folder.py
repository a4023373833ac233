"""The files by which ranks of an elastic job find each other, in a folder that all share; needs no torch.

`generation-N` lists who is asked to be in the job from the next change on: the newest counts. Anybody may
write the next one: each appears whole, and only once, so that no wish is lost. `meeting` says where the job's
first rank is reached, `present` who trains, and `over` that the job ended in order.
"""

import json
import os
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from dally.atomic_file import write_atomically
from dally.errors import InputError

_KEPT = 20
"""Generations whose files stay."""


@dataclass(frozen=True, slots=True)
class RendezvousPoint:
    """Where newcomers meet the first rank of a group.

    Attributes:
        host: Its machine.
        port: It listens there.
        group: Name of the group, another one after each change.
    """

    host: str
    port: int
    group: str


class RendezvousFolder:
    """The folder by which the ranks of one elastic job find each other.

    Args:
        path: Of it; its parent must exist.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def prepare(self) -> None:
        """Make the folder, without what a start of the job before has left.

        Raises:
            OSError: It cannot be written.
        """
        self._path.mkdir(exist_ok=True)
        names = ("meeting", "present", "over")
        for file in (*self._generations().values(), *(self._path / name for name in names)):
            file.unlink(missing_ok=True)

    def wanted(self) -> tuple[int, Sequence[str]]:
        """The newest generation's number, 0 if there is none, and who is asked to be in it."""
        while files := self._generations():
            newest = max(files)
            if (names := _read(files[newest])) is not None:
                return newest, names
        return 0, ()

    def ask(self, into: Iterable[str] = (), out: Iterable[str] = ()) -> int:
        """Ask that members come into the job, and others leave it; the newest generation's number."""
        into, out = list(into), set(out)
        while True:
            number, names = self.wanted()
            wanted = [*(name for name in names if name not in out)]
            wanted += [name for name in into if name not in names]
            if wanted == list(names) or self._publish(number + 1, wanted):
                return self.wanted()[0]

    def open(self, point: RendezvousPoint, hosts: Mapping[str, str], step: int) -> None:
        """Say where the first rank is met from now on, and who trains, on which machines."""
        _write(self._path / "present", {"step": step, "members": dict(hosts)})
        _write(self._path / "meeting", asdict(point))

    def rendezvous(self) -> RendezvousPoint | None:
        """Where the first rank is met; None if nobody is there."""
        content = _read(self._path / "meeting")
        return RendezvousPoint(**content) if content else None

    def present(self) -> Mapping[str, str]:
        """Which members train, in order of rank, on which machines.

        Raises:
            InputError: No job meets there.
        """
        content = _read(self._path / "present")
        if content is None:
            raise InputError(f"no elastic job meets in {self._path}")
        members: Mapping[str, str] = content["members"]
        return members

    def close(self) -> None:
        """Note that the job has ended in order."""
        (self._path / "over").touch()

    def is_over(self) -> bool:
        """Whether the job has ended in order."""
        return (self._path / "over").exists()

    def _publish(self, number: int, names: Sequence[str]) -> bool:
        """Write a generation, whole; False if another has."""
        mine = self._path / f".{uuid.uuid4().hex}"
        _write(mine, list(names))
        try:
            os.link(mine, self._path / f"generation-{number}")
        except FileExistsError:
            return False
        finally:
            mine.unlink()
        for old, file in self._generations().items():
            if old <= number - _KEPT:
                file.unlink(missing_ok=True)
        return True

    def _generations(self) -> dict[int, Path]:
        return {int(file.name.rpartition("-")[2]): file for file in self._path.glob("generation-*")}


def _write(file: Path, content: object) -> None:
    write_atomically(file, json.dumps(content) + "\n")


def _read(file: Path) -> Any:
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
