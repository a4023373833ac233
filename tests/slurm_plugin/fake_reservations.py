"""The reservations of a Slurm in memory: who may make which, when they are over, and whose they are."""

from collections.abc import Container, Iterator
from dataclasses import replace

from slurm_plugin.client.orders import LockPartition, ReservationOrder, Reserve, UnlockPartition, Unreserve
from slurm_plugin.client.slurm import Reservation

FENCE_S = 60.0


class RefusedError(Exception):
    """Slurm says no, in these words."""


class FakeReservations:
    """All reservations, by name, each with its user.

    Args:
        nodes: The names of nodes that there are.
    """

    def __init__(self, nodes: Container[str]) -> None:
        self._nodes = nodes
        self._all: dict[str, tuple[Reservation, str]] = {}

    def __iter__(self) -> Iterator[Reservation]:
        return (reservation for reservation, _ in self._all.values())

    def __contains__(self, name: str) -> bool:
        return name in self._all

    def add(self, reservation: Reservation, user: str) -> None:
        """Reserve nodes for a user's jobs, or give what he has of that name another time."""
        self._all[reservation.name] = (reservation, user)

    def end(self, now: float) -> set[str]:
        """Take away those that are over; their names."""
        over = {each.name for each in self if each.end_s <= now}
        for name in over:
            del self._all[name]
        return over

    def on(self, node: str, until_s: float) -> list[tuple[str, str]]:
        """The names and users of those that keep a node for somebody before some time."""
        return [
            (each.name, user)
            for each, user in self._all.values()
            if node in each.nodes and each.start_s < until_s
        ]

    def opens(self, name: str, node: str, now: float) -> bool:
        """Whether jobs that asked for a reservation may use a node now; all may that asked for none."""
        each = self._all[name][0] if name in self._all else None
        return not name or (each is not None and each.start_s <= now < each.end_s and node in each.nodes)

    def run(self, order: ReservationOrder, now: float) -> None:
        """Carry out an order about reservations.

        Raises:
            RefusedError: Slurm would refuse it.
        """
        match order:
            case Reserve(name, nodes, user, minutes, start_s):
                self._check_new(name, nodes)
                begin_s = now if start_s is None else start_s
                self.add(Reservation(name, nodes, begin_s, begin_s + minutes * FENCE_S), user)
            case Unreserve(name, unused):
                reservation, user = self._get(name)
                if unused:
                    del self._all[name]
                    return
                if now < reservation.start_s + 1:
                    raise RefusedError("Error updating the reservation: Invalid time specified")
                self.add(replace(reservation, end_s=now), user)
            case LockPartition(name, node, user, start_s, renewed):
                if renewed:
                    self._get(name)
                else:
                    self._check_new(name, (node,))
                self.add(Reservation(name, (node,), start_s, start_s + FENCE_S), user)
            case UnlockPartition(name):
                self._get(name)
                del self._all[name]

    def _get(self, name: str) -> tuple[Reservation, str]:
        if name not in self._all:
            raise RefusedError("Requested reservation is invalid")
        return self._all[name]

    def _check_new(self, name: str, nodes: tuple[str, ...]) -> None:
        if name in self._all:
            raise RefusedError("Error creating the reservation: Duplicate reservation name")
        if any(node not in self._nodes for node in nodes):
            raise RefusedError("Error creating the reservation: Invalid node name specified")
