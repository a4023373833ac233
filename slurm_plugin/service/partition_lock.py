"""Keeps two controllers off one partition: each says in Slurm itself that it is at work there.

It does so by a reservation that begins hundreds of days ahead, so that it keeps no job from starting, and
that it moves on every half minute: its begin tells the last sign of life to all who can ask this Slurm.
"""

import getpass
import hashlib
import re
import socket
from collections.abc import Callable, Iterator, Mapping
from math import inf
from pathlib import Path

from dally.errors import DallyError
from slurm_plugin.client.orders import LockPartition, UnlockPartition
from slurm_plugin.client.slurm import Reservation, Slurm

PREFIX = "dally_controller"
AHEAD_S = 500 * 86_400.0
"""Longer than the year that Slurm takes for a job without a time limit."""

RENEW_S = 30.0
SILENT_S = 120.0
"""After so long without a sign of life a controller counts as dead, and another may take its place."""

_MOST_AHEAD_S = 300.0
_NO_NAME = re.compile(r"[^A-Za-z0-9_-]")

Shown = Mapping[str, Reservation]


class OccupiedError(DallyError):
    """Another controller is at work on one of our partitions."""


class PartitionLocks:
    """What one controller holds of its partitions.

    Args:
        slurm: Who keeps the reservations.
        folder: Its state folder, which with the host's name tells it from others.
        tell: Told why the reservations cannot be had, once; then it goes on without.
    """

    def __init__(self, slurm: Slurm, folder: Path, tell: Callable[[str], None]) -> None:
        host = socket.gethostname()
        digest = hashlib.sha256(f"{host}:{folder.absolute()}".encode()).hexdigest()[:8]
        self._slurm, self._tell = slurm, tell
        self._who = f"{_NO_NAME.sub('-', host.partition('.')[0])}.{digest}"
        self._held: set[str] = set()
        self._due_s, self._told = -inf, ""

    def hold(self, nodes: Mapping[str, str], now: float) -> None:
        """Give a sign of life for each partition, if it is time; called in each cycle.

        Args:
            nodes: A node of each partition.
            now: The time, seconds since 1970.

        Raises:
            OccupiedError: Another controller is at work on one of them.
            SlurmUnavailableError: Slurm did not answer.
        """
        if now < self._due_s:
            return
        names = {partition: f"{_name_start(partition)}{self._who}" for partition in nodes}
        shown = self._look(names, now)
        dead = [UnlockPartition(other) for name in names.values() for other in _others(name, shown)]
        signs = [
            LockPartition(name, nodes[partition], getpass.getuser(), now + AHEAD_S, renewed=name in shown)
            for partition, name in names.items()
        ]
        answers = self._slurm.run([*dead, *signs])[len(dead) :]
        refusal = next(filter(None, answers), "")
        if refusal and refusal != self._told:
            self._tell(refusal)
        self._told = refusal
        self._held = {sign.name for sign, answer in zip(signs, answers, strict=True) if answer is None}
        if any(not sign.renewed for sign in signs):
            self._look(names, now)  # another may have begun in the same moment
        self._due_s = now + RENEW_S

    def release(self) -> None:
        """Give the partitions up.

        Raises:
            SlurmUnavailableError: Slurm did not answer.
        """
        held, self._held, self._due_s = sorted(self._held), set(), -inf
        if held:
            self._slurm.run([UnlockPartition(name) for name in held])

    def _look(self, names: Mapping[str, str], now: float) -> Shown:
        """The reservations, once nobody else is at work on our partitions."""
        shown = {each.name: each for each in self._slurm.reservations() if each.name.startswith(PREFIX)}
        for partition, name in names.items():
            for other in _others(name, shown):
                silent_s = now - (shown[other].start_s - AHEAD_S)
                is_first = name not in shown or other < name
                if is_first and -_MOST_AHEAD_S < silent_s < SILENT_S:
                    host = other.removeprefix(_name_start(partition)).partition(".")[0]
                    raise OccupiedError(
                        f"another controller is at work on partition {partition}, on host {host}, sign of "
                        f"life {max(0.0, silent_s):.0f} s ago; stop it first. If it is dead, this one may "
                        f"start {SILENT_S:.0f} s after that sign, or at once after "
                        f"`scontrol delete ReservationName={other}`"
                    )
        return shown


def _name_start(partition: str) -> str:
    """How the names of all reservations for a partition begin."""
    return f"{PREFIX}.{_NO_NAME.sub('-', partition)}."


def _others(name: str, shown: Shown) -> Iterator[str]:
    """The reservations of other controllers for the partition that one is for."""
    place = ".".join(name.split(".")[:2]) + "."
    return (other for other in shown if other.startswith(place) and other != name)
