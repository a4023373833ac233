"""Where gangs must be so that no rack has too many fragments: the program, asked for ever more racks."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from dally.cluster.free import FreeGpus
from dally.cluster.topology import Allocation
from dally.jobs.job import Gang, JobKind
from dally.policies.common.arrays import Ints
from dally.policies.monkeytree.program import FragmentProblem, solve
from dally.policies.monkeytree.rack_fragments import RackFragments, Shares, split_racks
from dally.state import ClusterState, JobState

RACKS = 8
"""Racks looked at first; twice as many each time that this is not enough."""
CELLS = 1500
"""More are looked at only if gangs times racks are no more than this."""
NODES = 200
"""Nodes of the search tree of one program."""

Places = Mapping[str, Allocation]
"""GPUs by the name of a job."""


@dataclass(frozen=True, slots=True)
class Rearranged:
    """New places of gangs.

    Attributes:
        places: All GPUs of each gang that moves, or that starts elsewhere than it would have.
        before: Fragments of each rack that would have had too many.
        after: Fragments that these racks have instead.
    """

    places: Places
    before: Shares
    after: Shares


@dataclass(frozen=True, slots=True)
class _PlacedGang:
    """A gang that may be placed anew: what it has or would start on, all of one GPU type."""

    job: JobState
    runs: bool
    place: Allocation
    shares: Shares
    gpu_type: str

    @property
    def unit(self) -> int:
        """A rack has a multiple of so many GPUs of it."""
        return self.job.job.gang.step

    @property
    def share(self) -> int:
        """GPUs that stay together on a machine."""
        return self.job.job.gang.per_machine or 1

    def part(self, gpus: int) -> Gang:
        """So many GPUs of it."""
        return self.job.job.gang._replace(gpus=gpus, gpu_type=self.gpu_type)


class Rearrangement:
    """The search for places at one moment.

    Gangs on one machine stay where they are, and a bound from 2 up can be kept without them: put all others
    behind one another, rack by rack, and a rack has part of one that began before it and of one that goes on
    behind it. Only gangs that must not move, GPU types, shares of each machine, and segments can be in the
    way. Gangs whose segments are to be apart, or close together, or that share their blocks with nobody, are
    not moved.

    Args:
        state: The cluster before the starts.
        fragments: Its running gangs.
        starts: Where waiting jobs would start.
        bound: Fragments that a rack may have.
        may_move: Whether a running gang may move.
    """

    def __init__(
        self,
        state: ClusterState,
        fragments: RackFragments,
        starts: Places,
        bound: int,
        may_move: Callable[[JobState], bool],
    ) -> None:
        self._state, self._fragments, self._starts = state, fragments, starts
        self._bound, self._may_move = bound, may_move
        self._newcomers = [
            self._gang(state.jobs[name], place)
            for name, place in starts.items()
            if len(place) > 1 and state.jobs[name].job.kind is not JobKind.FORKED
        ]
        self._counts = Counter(fragments.counts)
        for gang in self._newcomers:
            self._counts.update(split_racks(gang.shares))
        self._over = self._too_many(self._counts)

    def best(self) -> Rearranged | None:
        """The places found with the fewest fragments beyond the bound; None if none have fewer than now."""
        best, least = None, self._excess(self._counts)
        for racks in self._scopes():
            places = self._ask(racks)
            after = Counter(self._counts)
            for name, place in places.items():
                held = self._starts.get(name) or self._state.jobs[name].allocation
                after.subtract(split_racks(self._fragments.shares(held)))
                after.update(split_racks(self._fragments.shares(place)))
            if self._excess(after) < least:
                least = self._excess(after)
                before = {rack: self._counts[rack] for rack in self._over}
                best = Rearranged(places, before, {rack: after[rack] for rack in self._over})
            if least == 0:
                break
        return best

    def _too_many(self, fragments: Counter[int]) -> list[int]:
        """Racks with more fragments than the bound, those with most first."""
        found = [rack for rack, count in fragments.items() if count > self._bound]
        return sorted(filter(self._fragments.bounded, found), key=lambda rack: (-fragments[rack], rack))

    def _excess(self, fragments: Counter[int]) -> int:
        return sum(fragments[rack] - self._bound for rack in self._too_many(fragments))

    def _gang(self, job: JobState, place: Allocation, runs: bool = False) -> _PlacedGang:
        gpu_type = self._state.topology.machines[place[0][0]].gpu_type
        return _PlacedGang(job, runs, place, self._fragments.shares(place), gpu_type)

    def _scopes(self) -> Iterator[Sequence[int]]:
        """Racks to look at: those with too many, those they share gangs with, then those with most free."""
        if not self._over:
            return
        near = dict.fromkeys(self._over)
        for gang in self._gangs(self._over):
            near |= dict.fromkeys(gang.shares)
        rest = sorted(
            set(self._fragments.racks) - set(near), key=lambda rack: (-self._state.free.on(rack), rack)
        )
        order, count = [*near, *rest], RACKS
        yield order[:count]
        while count < len(order):
            count *= 2
            if len(self._gangs(order[:count])) * count > CELLS:
                break
            yield order[:count]

    def _gangs(self, racks: Sequence[int]) -> list[_PlacedGang]:
        """The gangs with GPUs in these racks that may be placed anew."""
        running = (self._gang(job, job.allocation, True) for job in self._fragments.jobs(racks))
        found = [gang for gang in running if self._may_move(gang.job) and not gang.job.job.gang.layout]
        newcomers = (gang for gang in self._newcomers if not gang.job.job.gang.layout)
        found += [gang for gang in newcomers if not gang.shares.keys().isdisjoint(racks)]
        by_type = self._state.topology.by_type
        return [gang for gang in found if len(by_type(gang.place)) == 1]

    def _ask(self, racks: Sequence[int]) -> Places:
        """New places of the gangs in these racks; none if there is no answer, or machines cannot hold it."""
        gangs = self._gangs(racks)
        if not gangs:
            return {}
        with self._state.free.trial() as free:
            for place in self._starts.values():
                free.take(place)
            for gang in gangs:
                free.give(self._inside(gang, racks))
            given = solve(self._problem(free, gangs, racks), NODES)
            return {} if given is None else self._places(free, gangs, racks, given)

    def _inside(self, gang: _PlacedGang, racks: Sequence[int]) -> Allocation:
        """What a gang has in these racks."""
        return tuple(part for part in gang.place if self._fragments.rack(part[0]) in racks)

    def _problem(self, free: FreeGpus, gangs: Sequence[_PlacedGang], racks: Sequence[int]) -> FragmentProblem:
        """The program, with the GPUs of these gangs in these racks free."""
        types = self._state.topology.gpu_types
        now = np.array([[gang.shares.get(rack, 0) for rack in racks] for gang in gangs])
        others = Counter(self._counts)
        for gang in gangs:
            others.subtract(split_racks(gang.shares))
        most = [[free.held(rack, gang.part(gang.unit)) * gang.share for rack in racks] for gang in gangs]
        spare = [self._bound - others[r] if self._fragments.bounded(r) else len(gangs) for r in racks]
        return FragmentProblem(
            gpus=now.sum(axis=1),
            unit=np.array([gang.unit for gang in gangs]),
            beyond=np.array([not gang.shares.keys() <= set(racks) for gang in gangs]),
            kind=np.array([types.index(gang.gpu_type) for gang in gangs]),
            held=now * np.array([[gang.runs] for gang in gangs]),
            most=np.array(most),
            room=np.array([[free.on(rack, gpu_type) for rack in racks] for gpu_type in types]),
            spare=np.array(spare),
        )

    def _places(
        self, free: FreeGpus, gangs: Sequence[_PlacedGang], racks: Sequence[int], given: Ints
    ) -> Places:
        """GPUs as the program gave them; in racks where a gang has as many as before it keeps them."""
        parts: dict[str, Allocation] = {}
        asked: list[tuple[_PlacedGang, int, int]] = []
        for gang, row in zip(gangs, given.tolist(), strict=True):
            other = {rack: n for rack, n in zip(racks, row, strict=True) if n != gang.shares.get(rack, 0)}
            asked += [(gang, rack, gpus) for rack, gpus in other.items() if gpus]
            parts[gang.job.job_id] = self._inside(gang, [r for r in gang.shares if r not in other])
            free.take(self._inside(gang, [rack for rack in racks if rack not in other]))
        # Shares of machines first, then single GPUs of jobs that accept some machines only: others go
        # wherever some are left.
        choosy = sorted(asked, key=lambda ask: (-ask[0].unit, ask[0].job.job.machines is None))
        for gang, rack, gpus in choosy:
            if free.held(rack, gang.part(gpus)) < gang.part(gpus).units:
                return {}
            place = free.pack(rack, gang.part(gpus))
            free.take(place)
            parts[gang.job.job_id] += place
        placed = {name: tuple(sorted(place)) for name, place in parts.items()}
        return {name: placed[name] for gang in gangs if placed[name := gang.job.job_id] != gang.place}
