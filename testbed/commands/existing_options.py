"""Options of commands that can use an existing Slurm over SSH, and what they lead to."""

import functools
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import click

from dally.cluster.topology import Topology
from dally.commands.terminal import say
from dally.errors import InputError
from dally.policies.registry import PolicySpec
from slurm_plugin.local_cluster.cluster import Cluster
from testbed.commands.options import logs_option
from testbed.persistent.supervisor import REMOTE
from testbed.running.submission import is_slurms_own

_MOST_SHOWN = 5


@dataclass(frozen=True, slots=True)
class ExistingOptions:
    """An existing Slurm as a user named it.

    Attributes:
        hosts_file: Its first host is where Slurm's commands are run.
        partition: The partition to use.
        work: A folder that this host and all nodes share.
        logs: Folder of the logs of what is run there.
        reservation: A reservation to use; empty for none.
        conf: Its slurm.conf there; None to ask Slurm.
    """

    hosts_file: Path
    partition: str
    work: Path
    logs: Path
    reservation: str = ""
    conf: Path | None = None

    def __post_init__(self) -> None:
        if not self.work.is_absolute():
            raise InputError(f"--work is {self.work}, must be an absolute path, the same on all nodes")


def existing_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options of an existing Slurm; called with `existing`, None if not asked for."""

    @click.option("--existing", "is_existing", is_flag=True, help="Use the Slurm that is on --hosts already.")
    @click.option(
        "--hosts", "hosts_file", type=click.Path(path_type=Path), help="TOML file; its first host has Slurm."
    )
    @click.option("--partition", help="The partition to use there.")
    @click.option("--work", type=click.Path(path_type=Path), help="Folder that host and all nodes share.")
    @click.option("--reservation", help="A reservation to use there; for policy slurm alone.")
    @click.option(
        "--slurm-conf",
        "conf",
        type=click.Path(path_type=Path),
        help="slurm.conf there, if scontrol does not find it by itself.",
    )
    @logs_option
    @functools.wraps(command)
    def with_existing(
        is_existing: bool,
        hosts_file: Path | None,
        partition: str | None,
        work: Path | None,
        reservation: str | None,
        conf: Path | None,
        logs: Path,
        **others: Any,
    ) -> None:
        existing = None
        if is_existing:
            if hosts_file is None or partition is None or work is None:
                raise click.UsageError("--existing needs --hosts, --partition and --work")
            existing = ExistingOptions(hosts_file, partition, work, logs, reservation or "", conf)
        elif any((hosts_file, partition, work, reservation, conf)):
            raise click.UsageError(
                "--hosts, --partition, --work, --reservation and --slurm-conf go with --existing; "
                "for a Slurm of your own on hosts: dally testbed up --hosts"
            )
        command(existing=existing, **others)

    return with_existing


def opened_existing(existing: ExistingOptions) -> AbstractContextManager[Cluster]:
    """The cluster that was named, as long as the context lasts.

    Raises:
        DallyError: The hosts cannot be reached, or no such Slurm is there.
    """
    opened: AbstractContextManager[Cluster] = import_module(REMOTE).opened_existing(**asdict(existing))
    return opened


def check_rights(cluster: Cluster, policies: Sequence[PolicySpec]) -> None:
    """Refuse a cluster where the user who logs in may not do what these policies need; print warnings.

    Raises:
        ClusterError: It is refused, as the message says.
    """
    rights = import_module("testbed.remote.rights")
    if note := rights.refuse_unfit(cluster, not all(map(is_slurms_own, policies))):
        say(f"note: {note}", err=True)


def check_reservation(existing: ExistingOptions, policies: Sequence[PolicySpec]) -> None:
    """Refuse policies that cannot run in a reservation.

    Raises:
        InputError: One cannot.
    """
    if existing.reservation and not all(map(is_slurms_own, policies)):
        raise InputError(
            "with --reservation only policy slurm can run: Dally's controller leaves reserved nodes alone"
        )


def check_nodes(existing: ExistingOptions, cluster: Cluster, topology: Topology) -> None:
    """Refuse a topology with machines on which no job of the partition can start.

    Raises:
        InputError: It has some.
        ClusterError: Slurm does not answer.
    """
    said = cluster.ask("sinfo", "--noheader", "--Node", f"--partition={existing.partition}", "--format=%N")
    others = sorted({machine.name for machine in topology.machines} - set(said.split()))
    if others:
        shown = ", ".join(others[:_MOST_SHOWN]) + (" and more" if len(others) > _MOST_SHOWN else "")
        raise InputError(
            f"{shown} of the cluster not in partition {existing.partition}; "
            "give --cluster a file with the nodes of the partition alone"
        )
