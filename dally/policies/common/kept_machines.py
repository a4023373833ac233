"""What a waiting job keeps from those behind it: what is free of the machines that it accepts."""

from collections.abc import Iterable

from dally.cluster.free import FreeGpus
from dally.jobs.job import Gang
from dally.state import JobState


class KeptMachines:
    """The machines that jobs wait for in one plan, on trial: nothing of them is free to jobs behind.

    In a strict order nobody passes a job that cannot start. If it accepts some machines only, like those of a
    reservation, of a GPU type or with as many GPUs as it wants on each, jobs behind it may start elsewhere,
    where they take nothing that it could use.

    Args:
        free: In a trial.
    """

    def __init__(self, free: FreeGpus) -> None:
        self._free = free
        self._waiting: dict[frozenset[str] | None, JobState] = {}
        self._machines: set[int] = set()
        self._taken: list[tuple[int, int]] = []

    def __contains__(self, machine: int) -> bool:
        return machine in self._machines

    @property
    def all(self) -> bool:
        """Whether jobs wait that accept any machine between them, so that nobody behind may start."""
        return None in self._waiting or len(self._machines) == len(self._free.topology.machines)

    def keep(self, job: JobState) -> None:
        """A job waits: what is free of its machines is kept for it."""
        names = self._free.accepted(job.job.gang)
        if names in self._waiting:
            return
        self._waiting[names] = job
        if names is None:
            return
        topology, index = self._free.topology, self._free.topology.machine_index
        kept = {index[name] for name in names if name in index}
        kept.update(topology.beside(kept) if job.job.whole_blocks else ())
        new = sorted(kept - self._machines)
        taken = tuple((machine, gpus) for machine in new if (gpus := self._free.on(machine)))
        self._free.take(taken)
        self._machines.update(new)
        self._taken += taken

    def keeps_all_of(self, job: JobState) -> bool:
        """Whether a job behind accepts only such machines for which the same jobs wait."""
        return self._free.accepted(job.job.gang) in self._waiting

    def waits_before(self, gang: Gang) -> JobState | None:
        """The first job that keeps all machines from a gang, else one that keeps some; None if none does."""
        some: JobState | None = None
        accepted = self._free.accepted(gang)
        for names, job in self._waiting.items():
            if names is None or (accepted is not None and names >= accepted):
                return job
            if accepted is None or not names.isdisjoint(accepted):
                some = some or job
        return some

    def give_back(self) -> None:
        """What was kept is free again."""
        self._free.give(tuple(self._taken))
        self._taken.clear()


class UnclaimedMachines:
    """Machines that no job may use for which GPUs are kept: of others, the first to wait there goes first.

    Else it would be passed there for as long as those jobs wait elsewhere, as in another partition.

    Args:
        free: The free GPUs.
        first: The jobs for which GPUs are kept.
    """

    def __init__(self, free: FreeGpus, first: Iterable[JobState]) -> None:
        self._free = free
        self._claimed = frozenset[str]()
        self._known = set[frozenset[str] | None]()
        self._first: list[JobState] = []
        for gang in {job.job.gang for job in first}:
            self._claim(free.accepted(gang))

    def wants(self, job: JobState) -> None:
        """Another job cannot start now."""
        names = self._free.accepted(job.job.gang)
        if None in self._known or names in self._known:
            return
        if names is not None and self._claimed.isdisjoint(names):
            self._first.append(job)
        self._claim(names)

    def take_first(self) -> list[JobState]:
        """The jobs found since this was asked last that are the first on machines of their own."""
        found, self._first = self._first, []
        return found

    def _claim(self, names: frozenset[str] | None) -> None:
        """Nobody is the first any more on such machines; None: on any."""
        self._known.add(names)
        self._claimed |= names or frozenset()
