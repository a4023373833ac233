"""Gets the nodes of a run from a Slurm that others use too: chosen, queued for, and held while it runs."""

import os
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from math import ceil
from pathlib import Path
from time import monotonic
from typing import Generic, TypeVar

from dally.cluster import DefaultLinks, load_cluster
from dally.cluster.topology import Domain, Topology
from dally.errors import InputError
from dally.hostlist import fold
from dally.hosts.processes import Command
from dally.profiles.schema import PointLink
from profiler.driver.plan import NoRoomError, PlannedHost, PlannedRack, only_hosts, place
from profiler.launch.rank_commands import Launcher
from profiler.launch.slurm import Allocation, SlurmClient
from profiler.launch.slurm_nodes import (
    PartitionNode,
    SlurmError,
    ask,
    configuration_folder,
    job_reason,
    read_nodes,
    slurm_version,
)
from profiler.launch.user_program import UserProgram
from profiler.spec import MeasurementRun, PlannedRun

_Run = TypeVar("_Run", bound=PlannedRun)
_ASSUMED = DefaultLinks()
_FIRST_CHECK_S = 2.0
_REPEAT_S = 300.0
_HOPELESS = (
    *("BadConstraints", "PartitionTimeLimit", "PartitionNodeLimit", "InvalidAccount", "InvalidQOS"),
    *("AssocMaxWallDurationPerJobLimit", "QOSMaxWallDurationPerJobLimit"),
)
"""Reasons for which a job pends that no other job's end changes."""


def only_gpu_type(topology: Topology, gpu_type: str | None) -> str:
    """The GPU type to measure: the one asked for, or the only one there is.

    Raises:
        InputError: There is no such type, or there are several and none is asked for.
    """
    types = topology.gpu_types
    if gpu_type is None and len(types) == 1:
        return types[0]
    if gpu_type in types and gpu_type is not None:
        return gpu_type
    asked = "several GPU types and none asked for" if gpu_type is None else f"no GPU type {gpu_type}"
    raise InputError(f"{topology.name} has {asked}; --gpu-type can be {', '.join(filter(None, types))}")


def racks_of(topology: Topology, gpu_type: str) -> tuple[PlannedRack, ...]:
    """The machines with one type of GPU, rack by rack, a rank for each GPU; racks without are left out."""
    racks = []
    for domain in topology.level_domains[1]:  # racks
        machines = [index for index in domain.children if topology.machines[index].gpu_type == gpu_type]
        hosts = tuple(
            PlannedHost(
                topology.machines[index].name, topology.machines[index].gpus, _link(topology.domains[index])
            )
            for index in machines
        )
        if hosts:
            racks.append(PlannedRack(hosts, _link(domain)))
    return tuple(racks)


def _link(domain: Domain) -> PointLink | None:
    """The uplink of a domain; None if it is only assumed, as Slurm's files tell none."""
    uplink = domain.uplink
    if uplink is None or uplink == _ASSUMED.uplink(domain.level):
        return None
    return PointLink(uplink.bandwidth_bps, uplink.latency_s)


@dataclass(frozen=True, slots=True)
class SlurmQueue(Launcher[MeasurementRun]):
    """What queues for the nodes of runs, one run at a time.

    Attributes:
        slurm: The cluster, as it was when the runs were planned.
        racks: Its racks.
        read: Reads the nodes of the partition as they are now.
        wait_s: Longest that one run waits for its nodes.
        poll_s: How often it checks whether other nodes are free sooner.
    """

    slurm: SlurmClient
    racks: Sequence[PlannedRack]
    read: Callable[[], Sequence[PartitionNode]]
    wait_s: float
    poll_s: float = 30.0

    def commands(self, run: MeasurementRun) -> tuple[Command, ...]:
        """The srun of a run, which gets the nodes itself."""
        return self.slurm.commands(run)

    @contextmanager
    def hold(self, run: _Run, say: Callable[[str], None]) -> Iterator[tuple[_Run, SlurmClient]]:
        """Wait for nodes and hold them; raises SlurmError, too, where Slurm refuses the job."""
        wait = _Wait(self, run, say)
        try:
            job = wait.until_held()
            yield wait.placed, replace(self.slurm, job=job)
        finally:
            wait.allocation.stop()


@dataclass(frozen=True, slots=True)
class MeasuredPartition:
    """The nodes of a partition with one type of GPU.

    Attributes:
        name: None for the default one.
        gpu_type: The type.
        racks: All such nodes.
        nodes: All nodes of the partition as they were at first, by name.
        read: Reads them as they are now.
    """

    name: str | None
    gpu_type: str
    racks: tuple[PlannedRack, ...]
    nodes: Mapping[str, PartitionNode]
    read: Callable[[], Sequence[PartitionNode]]

    @property
    def usable(self) -> tuple[PlannedRack, ...]:
        """The racks without nodes that are drained, down or reserved for others."""
        return only_hosts(self.racks, [node.name for node in self.nodes.values() if node.free_s is not None])

    def queue(self, timeout_s: float, wait_s: float) -> SlurmQueue:
        """What queues there for runs of at most so many seconds, each for at most as many as told."""
        slurm = SlurmClient(self.nodes, self.name, timeout_s, slurm_version())
        return SlurmQueue(slurm, self.racks, self.read, wait_s)


def read_partition(name: str | None, cluster: Path | None, gpu_type: str | None) -> MeasuredPartition:
    """Ask Slurm for a partition, None for the default one; its topology is from the file, or from Slurm's.

    Raises:
        InputError: There is no such GPU type, several and none is asked for, or a file is wrong.
        SlurmError: Slurm does not answer, or has no such partition or reservation.
    """
    topology = load_cluster(cluster or configuration_folder())
    gpu_type = only_gpu_type(topology, gpu_type)
    reservations = tuple(filter(None, os.environ.get("SLURM_RESERVATION", "").split(",")))  # as for srun
    read = partial(read_nodes, name, reservations)
    nodes = {node.name: node for node in read()}
    return MeasuredPartition(name, gpu_type, racks_of(topology, gpu_type), nodes, read)


@dataclass(frozen=True, slots=True)
class SlurmProgramPlace(Launcher[PlannedRun]):
    """Nodes of a Slurm cluster, one job for each run.

    Attributes:
        program: The program.
        queue: What queues for the nodes.
        client: The cluster; inside `hold`, in the job that holds the nodes.
    """

    program: UserProgram
    queue: SlurmQueue
    client: SlurmClient

    def commands(self, run: PlannedRun) -> tuple[Command, ...]:
        """An srun for each node, so that each is told its number whatever order Slurm has."""
        per_node = run.shape.gpus_per_node
        return tuple(
            replace(command, argv=self.client.on_node(command.host, per_node, command.argv))
            for command in self.program.commands(run, self.client.nodes[run.hosts[0]].address)
        )

    @contextmanager
    def hold(
        self, run: PlannedRun, say: Callable[[str], None]
    ) -> Iterator[tuple[PlannedRun, Launcher[PlannedRun]]]:
        """Wait for the nodes of a run and hold them."""
        with self.queue.hold(run, say) as (placed, client):
            yield placed, replace(self, client=client)


def place_soonest(run: _Run, racks: Sequence[PlannedRack], nodes: Mapping[str, PartitionNode]) -> _Run:
    """A run on nodes that are free the soonest, across a link like that between its planned hosts.

    Raises:
        NoRoomError: No usable nodes lie as it needs them.
    """
    planned = only_hosts(racks, run.hosts)
    uplinks = {rack.uplink for rack in planned}
    links = {host.link for rack in planned for host in rack.hosts}
    alike = only_hosts(
        [rack for rack in racks if rack.uplink in uplinks],
        {host.name for rack in racks for host in rack.hosts if host.link in links},
    )

    def placed(free_s: float) -> _Run | None:
        there = {node.name for node in nodes.values() if node.free_s is not None and node.free_s <= free_s}
        return place(run, only_hosts(alike, there))

    times_s = sorted({node.free_s for node in nodes.values() if node.free_s is not None})
    first = bisect_left(times_s, True, key=lambda free_s: placed(free_s) is not None)
    for free_s in times_s[first:]:
        found = placed(free_s)
        if found and found.link == run.link:
            return found
    raise NoRoomError("the nodes that lie as it needs them are drained, down or reserved for others")


class _Wait(Generic[_Run]):
    """One wait for the nodes of a run, whose job asks for other nodes when these are free sooner.

    Attributes:
        placed: The run on the nodes that it asks for, at last on those that it got.
        allocation: The job.
    """

    def __init__(self, queue: SlurmQueue, run: _Run, say: Callable[[str], None]) -> None:
        self._queue, self._run, self._say = queue, run, say
        self.placed = place_soonest(run, queue.racks, {node.name: node for node in queue.read()})
        self.allocation = Allocation(queue.slurm.job_options(self.placed))
        self._start_s = monotonic()
        self._shown, self._shown_s = "", 0.0

    def until_held(self) -> str:
        """Wait; the job that has the nodes."""
        pause_s = min(_FIRST_CHECK_S, self._queue.wait_s)
        while (got := self.allocation.wait(pause_s)) is None:
            self._check()
            pause_s = min(self._queue.poll_s, max(0.0, self._queue.wait_s - self._waited_s))
        if set(got) != set(self.placed.hosts):
            raise SlurmError(f"Slurm gave {fold(got)}, not {fold(sorted(self.placed.hosts))}")
        assert self.allocation.job
        return self.allocation.job

    @property
    def _waited_s(self) -> float:
        return monotonic() - self._start_s

    def _check(self) -> None:
        """Ask for other nodes where that helps, show how long it has waited and for what, or give up."""
        reason = ""
        try:
            nodes = {node.name: node for node in self._queue.read()}
            self._retarget(nodes)
            job = self.allocation.job
            reason = job_reason(job) if job else ""
            idle = f"{_idle(self.placed, nodes)} of {len(self.placed.hosts)} idle"
            stands = f"{idle}; job {job or 'not yet'} pending ({reason or 'not looked at yet'})"
        except SlurmError as error:  # the job waits on, also where slurmctld is restarted
            stands = str(error)
        racks, names = self.placed.shape.racks, fold(sorted(self.placed.hosts))
        lying = "one rack" if racks == 1 else f"{racks} racks"
        hosts = len(self.placed.hosts)
        wanted = f"node {names}" if hosts == 1 else f"{hosts} nodes of {lying}, {names}"
        what = f"waiting for {wanted}: {stands}"
        if reason in _HOPELESS:
            raise NoRoomError(f"gave up {what}; Slurm never starts it")
        if self._waited_s >= self._queue.wait_s:
            raise NoRoomError(f"gave up {what}, after {_minutes(self._waited_s)}")
        if what != self._shown or monotonic() - self._shown_s > _REPEAT_S:
            self._say(f"{what}, {_minutes(self._waited_s)} so far")
            self._shown, self._shown_s = what, monotonic()

    def _retarget(self, nodes: Mapping[str, PartitionNode]) -> None:
        """Let the job take other nodes where these are idle or its own cannot be used; it keeps its place."""
        better, job = place_soonest(self._run, self._queue.racks, nodes), self.allocation.job
        sooner = _idle(better, nodes) == len(better.hosts) > _idle(self.placed, nodes)
        usable = all(host in nodes and nodes[host].free_s is not None for host in self.placed.hosts)
        if job and (sooner or not usable):
            others = self._queue.slurm.others(better.hosts)
            with suppress(SlurmError):  # it has just started where it was, or Slurm does not let it
                ask("scontrol", "update", f"JobId={job}", f"ExcNodeList={others}")
                self.placed = better


def _idle(run: PlannedRun, nodes: Mapping[str, PartitionNode]) -> int:
    """How many of a run's hosts are idle."""
    return sum(host in nodes and nodes[host].idle for host in run.hosts)


def _minutes(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 60 else f"{ceil(seconds / 60)} min"
