"""Gets the nodes of a run from a Slurm that others use too: chosen, queued for, and held while it runs."""

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from math import ceil
from time import monotonic

from dally.cluster.hostlist import fold
from profiler.driver.plan import NoRoomError, PlannedRack, only_hosts, place
from profiler.launch.slurm import Allocation, SlurmClient
from profiler.launch.slurm_nodes import PartitionNode, SlurmError, ask, job_reason
from profiler.spec import MeasurementRun

_FIRST_LOOK_S = 2.0
_TELL_AGAIN_S = 300.0
_HOPELESS = (
    *("BadConstraints", "PartitionTimeLimit", "PartitionNodeLimit", "InvalidAccount", "InvalidQOS"),
    *("AssocMaxWallDurationPerJobLimit", "QOSMaxWallDurationPerJobLimit"),
)
"""Reasons for which a job pends that no other job's end changes."""


@dataclass(frozen=True, slots=True)
class SlurmQueue:
    """What queues for the nodes of runs, one run at a time.

    Attributes:
        slurm: The cluster, as it was when the runs were planned.
        racks: Its racks.
        read: Reads the nodes of the partition as they are now.
        wait_s: Longest that one run waits for its nodes.
        look_s: How often it looks whether others would do sooner.
    """

    slurm: SlurmClient
    racks: Sequence[PlannedRack]
    read: Callable[[], Sequence[PartitionNode]]
    wait_s: float
    look_s: float = 30.0

    @contextmanager
    def hold(
        self, run: MeasurementRun, say: Callable[[str], None]
    ) -> Iterator[tuple[MeasurementRun, SlurmClient]]:
        """Wait for nodes and hold them until the end, however it comes.

        Args:
            run: As planned.
            say: Told what it waits for.

        Yields:
            The run on the nodes that it got, and what launches it there.

        Raises:
            NoRoomError: No nodes lie as the run needs them, or they did not come in time.
            SlurmError: Slurm refused the job.
        """
        placed = soonest(run, self.racks, _by_name(self.read()))
        allocation = Allocation(self.slurm.job_options(placed))
        try:
            placed, job = _Wait(self, run, placed, allocation, say).for_nodes()
            yield placed, self.slurm.with_job(job)
        finally:
            allocation.stop()


def soonest(
    run: MeasurementRun, racks: Sequence[PlannedRack], nodes: Mapping[str, PartitionNode]
) -> MeasurementRun:
    """A run on nodes that are free the soonest, across a link like that between its planned hosts.

    Raises:
        NoRoomError: No usable nodes lie as it needs them.
    """
    alike = _linked_alike(racks, only_hosts(racks, run.hosts))

    def placed(free_s: float) -> MeasurementRun | None:
        there = {node.name for node in nodes.values() if node.free_s is not None and node.free_s <= free_s}
        return place(run, only_hosts(alike, there))

    times_s = sorted({node.free_s for node in nodes.values() if node.free_s is not None})
    first = bisect_left(times_s, True, key=lambda free_s: placed(free_s) is not None)
    for free_s in times_s[first:]:
        found = placed(free_s)
        if found and found.link == run.link:
            return found
    raise NoRoomError("the nodes that lie as it needs them are drained, down or reserved for others")


def _linked_alike(racks: Sequence[PlannedRack], planned: Sequence[PlannedRack]) -> tuple[PlannedRack, ...]:
    """The racks and hosts with links like some of those that are planned."""
    uplinks = {rack.uplink for rack in planned}
    links = {host.link for rack in planned for host in rack.hosts}
    alike = {
        host.name for rack in racks if rack.uplink in uplinks for host in rack.hosts if host.link in links
    }
    return only_hosts(racks, alike)


class _Wait:
    """One wait for the nodes of a run, whose job is aimed anew when others are free sooner."""

    def __init__(
        self,
        queue: SlurmQueue,
        run: MeasurementRun,
        placed: MeasurementRun,
        allocation: Allocation,
        say: Callable[[str], None],
    ) -> None:
        self._queue, self._run, self._placed = queue, run, placed
        self._allocation, self._say = allocation, say
        self._start_s = monotonic()
        self._told, self._told_s = "", 0.0

    def for_nodes(self) -> tuple[MeasurementRun, str]:
        """The run on the nodes that it got, and the job that has them."""
        pause_s = min(_FIRST_LOOK_S, self._queue.wait_s)
        while (got := self._allocation.wait(pause_s)) is None:
            self._look()
            pause_s = min(self._queue.look_s, max(0.0, self._queue.wait_s - self._waited_s))
        if set(got) != set(self._placed.hosts):
            raise SlurmError(f"Slurm gave {fold(got)}, not {fold(sorted(self._placed.hosts))}")
        assert self._allocation.job
        return self._placed, self._allocation.job

    @property
    def _waited_s(self) -> float:
        return monotonic() - self._start_s

    def _look(self) -> None:
        """Aim anew where that helps, tell how it stands, or give up."""
        reason = ""
        try:
            nodes = _by_name(self._queue.read())
            self._aim(nodes)
            job = self._allocation.job
            reason = job_reason(job) if job else ""
            idle = f"{_idle(self._placed, nodes)} of {len(self._placed.hosts)} idle"
            stands = f"{idle}; job {job or 'not yet'} pending ({reason or 'not looked at yet'})"
        except SlurmError as error:  # the job waits on, also where slurmctld is restarted
            stands = str(error)
        what = f"waiting for {_described(self._placed)}: {stands}"
        if reason in _HOPELESS:
            raise NoRoomError(f"gave up {what}; Slurm never starts it")
        if self._waited_s >= self._queue.wait_s:
            raise NoRoomError(f"gave up {what}, after {_minutes(self._waited_s)}")
        if what != self._told or monotonic() - self._told_s > _TELL_AGAIN_S:
            self._say(f"{what}, {_minutes(self._waited_s)} so far")
            self._told, self._told_s = what, monotonic()

    def _aim(self, nodes: Mapping[str, PartitionNode]) -> None:
        """Let the job take other nodes where these are idle or its own cannot be used; it keeps its place."""
        better, job = soonest(self._run, self._queue.racks, nodes), self._allocation.job
        sooner = _idle(better, nodes) == len(better.hosts) > _idle(self._placed, nodes)
        if job and (sooner or not _usable(self._placed, nodes)):
            others = self._queue.slurm.others(better.hosts)
            with suppress(SlurmError):  # it has just started where it was, or Slurm does not let it
                ask("scontrol", "update", f"JobId={job}", f"ExcNodeList={others}")
                self._placed = better


def _by_name(nodes: Sequence[PartitionNode]) -> dict[str, PartitionNode]:
    return {node.name: node for node in nodes}


def _idle(run: MeasurementRun, nodes: Mapping[str, PartitionNode]) -> int:
    """How many of a run's hosts are idle."""
    return sum(host in nodes and nodes[host].idle for host in run.hosts)


def _usable(run: MeasurementRun, nodes: Mapping[str, PartitionNode]) -> bool:
    return all(host in nodes and nodes[host].free_s is not None for host in run.hosts)


def _described(run: MeasurementRun) -> str:
    hosts, racks = fold(sorted(run.hosts)), run.shape.racks
    if len(run.hosts) == 1:
        return f"node {hosts}"
    return f"{len(run.hosts)} nodes of {'one rack' if racks == 1 else f'{racks} racks'}, {hosts}"


def _minutes(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 60 else f"{ceil(seconds / 60)} min"
