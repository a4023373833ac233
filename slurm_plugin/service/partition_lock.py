"""Keeps two controllers off one partition: each says in Slurm itself that it is at work there.

It does so by a reservation that begins hundreds of days ahead, so that it keeps no job from starting, and
that it moves on every half minute: its begin tells the last sign of life to all who can ask this Slurm.
Clocks may be wrong, so a sign that seems old is taken for the last only if none follows while one waits.
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
"""After so long without a sign of life a controller seems dead."""

WATCH_S = 90.0
"""It is dead, and another may take its place, if none comes for so long while that one looks.

One that lives may pause for a minute between two (`daemon.LONGEST_BACKOFF_S`).
"""

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
        steady: Seconds that pass, whatever the time of day.
    """

    def __init__(
        self, slurm: Slurm, folder: Path, tell: Callable[[str], None], steady: Callable[[], float]
    ) -> None:
        host = socket.gethostname()
        digest = hashlib.sha256(f"{host}:{folder.absolute()}".encode()).hexdigest()[:8]
        self._slurm, self._tell, self._steady = slurm, tell, steady
        self._who = f"{_NO_NAME.sub('-', host.partition('.')[0])}.{digest}"
        self._held: set[str] = set()
        self._due_s, self._told = -inf, ""
        self._signs: dict[str, tuple[float, float]] = {}  # of others: the last, and when it was first seen

    def hold(self, nodes: Mapping[str, str], now: float) -> float:
        """Give a sign of life for each partition, if it is time; called in each cycle.

        Args:
            nodes: A node of each partition.
            now: The time, seconds since 1970.

        Returns:
            Seconds to wait before this is called again, as another controller seems dead and may not be; 0
            if the partitions are ours.

        Raises:
            OccupiedError: Another controller is at work on one of them.
            SlurmUnavailableError: Slurm did not answer.
        """
        if self._steady() < self._due_s:
            return 0.0
        names = {partition: f"{_name_start(partition)}{self._who}" for partition in nodes}
        shown = self._look(names, now)
        left_s = {other: since_s + WATCH_S - self._steady() for other, (_, since_s) in self._signs.items()}
        if not self._held and (wait_s := max(left_s.values(), default=0.0)) > 0:
            return wait_s
        others = [other for name in names.values() for other in _others(name, shown)]
        dead = [UnlockPartition(other) for other in others if left_s.get(other, 0.0) <= 0]
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
        self._due_s = self._steady() + RENEW_S
        return 0.0

    def release(self) -> None:
        """Give the partitions up.

        Raises:
            SlurmUnavailableError: Slurm did not answer.
        """
        held, self._held, self._due_s = sorted(self._held), set(), -inf
        if held:
            self._slurm.run([UnlockPartition(name) for name in held])

    def _look(self, names: Mapping[str, str], now: float) -> Shown:
        """The reservations, once nobody else is known to be at work on our partitions."""
        shown = {each.name: each for each in self._slurm.reservations() if each.name.startswith(PREFIX)}
        signs, self._signs = self._signs, {}
        for partition, name in names.items():
            for other in _others(name, shown):
                if name in shown and name < other:
                    continue  # that one ends, as it finds ours
                sign_s = shown[other].start_s - AHEAD_S
                before_s, since_s = signs.get(other, (sign_s, self._steady()))
                is_alive = sign_s != before_s or -_MOST_AHEAD_S < now - sign_s < SILENT_S
                self._signs[other] = sign_s, self._steady() if sign_s != before_s else since_s
                if is_alive:
                    host = other.removeprefix(_name_start(partition)).partition(".")[0]
                    raise OccupiedError(
                        f"another controller is at work on partition {partition}, on host {host}, sign of "
                        f"life {max(0.0, now - sign_s):.0f} s ago; stop it first. If it is dead, this may "
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
