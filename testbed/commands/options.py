"""Options that several commands of `dally testbed` share, and the cluster that they lead to."""

import functools
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import click

from profiler.commands import values
from slurm_plugin.local_cluster.cluster import Cluster
from slurm_plugin.local_cluster.local_slurm import temporary_slurm
from testbed.persistent.control import find_persistent, opened_persistent
from testbed.persistent.shape import LocalClusterShape, Shape
from testbed.persistent.state import PersistentError, default_folder


def default_logs() -> Path:
    """The folder of logs without --logs: in $XDG_STATE_HOME, by default ~/.local/state."""
    state = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
    return Path(state).expanduser() / "dally" / "hosts"


hosts_option = click.option(
    "--hosts",
    "hosts_file",
    type=click.Path(path_type=Path),
    required=True,
    help="TOML file of the hosts, their racks and how to log in.",
)

logs_option = click.option(
    "--logs",
    type=click.Path(path_type=Path),
    default=default_logs,
    show_default="~/.local/state/dally/hosts",
    help="Folder of the logs of what was run on each host.",
)

folder_option = click.option(
    "--folder",
    type=click.Path(path_type=Path),
    help="Of the persistent cluster; a short path.  [default: /tmp/dally-testbed-UID]",
)


@dataclass(frozen=True, slots=True)
class LocalClusterOptions:
    """A cluster on this machine as a user asked for it.

    Attributes:
        folder: Where a persistent one is.
        asked: What the user gave, by field of `LocalClusterShape`; empty takes any cluster that is up.
    """

    folder: Path
    asked: Mapping[str, Any] = field(default_factory=dict)

    def fits(self, shape: Shape) -> bool:
        """Whether a cluster is what was asked for."""
        if not isinstance(shape, LocalClusterShape):
            return not self.asked
        return all(getattr(shape, name) == value for name, value in self.asked.items())

    def shape(self) -> LocalClusterShape:
        """The cluster that was asked for; what the user did not give has its default.

        Raises:
            InputError: A number is out of range.
        """
        return replace(LocalClusterShape(), **self.asked)


def local_cluster_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options of a local cluster, as `cluster_options`, a `LocalClusterOptions`."""

    @click.option(
        "--racks", type=values.counts, metavar="N,N,...", help="Nodes of each rack.  [default: 2,2,2,2]"
    )
    @click.option("--gpus", type=click.IntRange(min=1), help="Pretended GPUs of each node.  [default: 2]")
    @click.option(
        "--gpu-types",
        type=values.names,
        metavar="TYPE,...",
        help="Of these GPUs, one for all nodes or one for each rack.  [default: h100]",
    )
    @click.option(
        "--rate", "rate_bps", type=values.rate, help="Of each node's link, each way.  [default: 1Gb]"
    )
    @click.option(
        "--uplink", "uplink_bps", type=values.rate, help="Of each rack's link, each way.  [default: 200Mb]"
    )
    @folder_option
    @functools.wraps(command)
    def with_cluster(folder: Path | None, **options: Any) -> None:
        given = {one.name: options.pop(one.name) for one in fields(LocalClusterShape)}
        asked = {name: value for name, value in given.items() if value is not None}
        command(cluster_options=LocalClusterOptions(chosen_folder(folder), asked), **options)

    return with_cluster


def chosen_folder(folder: Path | None) -> Path:
    """The folder of the persistent cluster: the one given, else the usual one."""
    return folder.absolute() if folder else default_folder()


@contextmanager
def opened_cluster(cluster_options: LocalClusterOptions) -> Iterator[Cluster]:
    """The persistent cluster if one is up, here or on hosts, else one here that ends with this context.

    Raises:
        PersistentError: The one that is up is not what was asked for.
        DallyError: None can be brought up.
    """
    state = find_persistent(cluster_options.folder)
    if state is None:
        with temporary_slurm(cluster_options.shape().spec) as slurm:
            yield slurm.cluster
        return
    if not cluster_options.fits(state.shape):
        raise PersistentError(
            f"the testbed in {cluster_options.folder} is up with {state.shape.shown()}, not as asked for"
        )
    with opened_persistent(cluster_options.folder) as cluster:
        yield cluster
