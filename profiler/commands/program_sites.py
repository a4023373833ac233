"""The options that say where a program of the user's runs, and what they come to."""

import functools
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from dally.hosts.hosts_file import read_hosts_file
from dally.hosts.network import LocalNetwork
from dally.hosts.network_spec import NetworkSpec, Rack
from dally.optional import import_optional
from dally.profiles.schema import ProfileMode
from profiler.commands import values
from profiler.commands.options import decorate, seconds
from profiler.driver.local_hosts import LocalProgramPlace, racks_of
from profiler.driver.plan import PlannedRack
from profiler.driver.slurm_queue import SlurmProgramPlace, read_partition
from profiler.launch.here import count_gpus
from profiler.launch.rank_commands import Launcher
from profiler.launch.user_program import UserProgram
from profiler.spec import PlannedRun

_RANKS_ON_CPUS = 2


@dataclass(frozen=True, slots=True)
class ProgramSite:
    """Where a program may run.

    Attributes:
        racks: The machines.
        usable: Those of them that runs may be planned on now.
        gpu_type: What Slurm calls the GPUs; None if nobody said.
        mode: What a profile from there is.
        place: What launches a program there, given the planned runs.
    """

    racks: Sequence[PlannedRack]
    usable: Sequence[PlannedRack]
    gpu_type: str | None
    mode: ProfileMode
    place: Callable[[UserProgram, Sequence[PlannedRun]], Launcher[PlannedRun]]


_OPTIONS = (
    click.option("--gpu-type", metavar="TYPE", help="What Slurm calls the GPUs, such as h100; default: any."),
    click.option("--hosts", type=click.Path(path_type=Path), help="Run over SSH: TOML file of the hosts."),
    click.option("--slurm", is_flag=True, help="Run under Slurm, a job for each shape."),
    click.option("--partition", envvar="SLURM_PARTITION", help="Slurm's; default: its default one."),
    click.option("--cluster", type=click.Path(path_type=Path), help="Cluster file; default: Slurm's files."),
    seconds("--wait", "wait_s", 14400, "Longest that one run may queue under Slurm."),
    click.option(
        "--racks",
        "counts",
        type=values.counts,
        default="2,2",
        show_default=True,
        metavar="N,N,...",
        help="Emulated hosts of each rack, on this machine.",
    ),
    click.option(
        "--gpus", type=click.IntRange(min=1), help="Of each emulated host; default: this machine's."
    ),
    click.option("--rate", type=values.rate, default="1Gb", show_default=True, help="Of a host's link."),
    click.option("--uplink", type=values.rate, default="1Gb", show_default=True, help="Of a rack's link."),
)


def program_site(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command these options; it is called with `site`, which takes the time limit of runs."""

    @functools.wraps(command)
    def with_site(
        gpu_type: str | None,
        hosts: Path | None,
        slurm: bool,
        partition: str | None,
        cluster: Path | None,
        wait_s: float,
        counts: tuple[int, ...],
        gpus: int | None,
        rate: float,
        uplink: float,
        **options: Any,
    ) -> None:
        if hosts and slurm:
            raise click.UsageError("--hosts and --slurm are two places; choose one")

        def site(timeout_s: float) -> AbstractContextManager[ProgramSite]:
            if slurm:
                return _slurm_site(partition, cluster, gpu_type, timeout_s, wait_s)
            if hosts:
                return _remote_site(hosts, gpu_type, options["dry_run"])
            return _local_site(counts, rate, uplink, gpus, gpu_type)

        command(site=site, **options)

    return decorate(with_site, _OPTIONS)


@contextmanager
def _local_site(
    counts: tuple[int, ...], rate: float, uplink: float, gpus: int | None, gpu_type: str | None
) -> Iterator[ProgramSite]:
    network = LocalNetwork(NetworkSpec(tuple(Rack(count, rate, uplink) for count in counts)))
    there = count_gpus()
    racks = racks_of(network.spec, gpus or there or _RANKS_ON_CPUS)

    def place(program: UserProgram, runs: Sequence[PlannedRun]) -> Launcher[PlannedRun]:
        return LocalProgramPlace(program, network, max(run.shape.gpus for run in runs), there)

    yield ProgramSite(racks, racks, gpu_type, ProfileMode.GIVEN if there else ProfileMode.GLOO, place)


@contextmanager
def _remote_site(hosts: Path, gpu_type: str | None, dry_run: bool) -> Iterator[ProgramSite]:
    remote_hosts, ssh = import_optional("profiler.driver.remote_hosts"), import_optional("dally.hosts.ssh")
    file = read_hosts_file(hosts)
    connections, racks = ssh.SshHosts(file), remote_hosts.racks_of(file.hosts)

    def place(program: UserProgram, runs: Sequence[PlannedRun]) -> Launcher[PlannedRun]:
        found: Launcher[PlannedRun] = remote_hosts.RemoteProgramPlace(program, file, connections)
        return found

    try:
        if not dry_run:
            connections.connect()
        yield ProgramSite(racks, racks, gpu_type, ProfileMode.GIVEN, place)
    finally:
        connections.close()


@contextmanager
def _slurm_site(
    partition: str | None, cluster: Path | None, gpu_type: str | None, timeout_s: float, wait_s: float
) -> Iterator[ProgramSite]:
    there = read_partition(partition, cluster, gpu_type)
    queue = there.queue(timeout_s, wait_s)

    def place(program: UserProgram, runs: Sequence[PlannedRun]) -> Launcher[PlannedRun]:
        return SlurmProgramPlace(program, queue, queue.slurm)

    yield ProgramSite(there.racks, there.usable, there.gpu_type or None, ProfileMode.GIVEN, place)
