"""Options that several commands of `dally testbed` share, and the cluster that they lead to."""

import functools
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import click

from profiler.commands import values
from slurm_plugin.local_cluster.cluster import Cluster
from slurm_plugin.local_cluster.local_slurm import LocalSlurm
from testbed.persistent.control import find_persistent, opened_persistent
from testbed.persistent.folder import default_folder
from testbed.persistent.hosts_shape import Shape
from testbed.persistent.shape import LabShape
from testbed.persistent.state import PersistentError

folder_option = click.option(
    "--folder",
    type=click.Path(path_type=Path),
    help="Of the standing cluster; a short path.  [default: /tmp/dally-testbed-UID]",
)

_SHAPE_OPTIONS = (
    click.option(
        "--racks", type=values.counts, metavar="N,N,...", help="Nodes of each rack.  [default: 2,2,2,2]"
    ),
    click.option("--gpus", type=click.IntRange(min=1), help="Pretended GPUs of each node.  [default: 2]"),
    click.option(
        "--gpu-types",
        type=values.names,
        metavar="TYPE,...",
        help="Of these GPUs, one for all nodes or one for each rack.  [default: h100]",
    ),
    click.option(
        "--rate", "rate_bps", type=values.rate, help="Of each node's link, each way.  [default: 1Gb]"
    ),
    click.option(
        "--uplink", "uplink_bps", type=values.rate, help="Of each rack's link, each way.  [default: 200Mb]"
    ),
    folder_option,
)


@dataclass(frozen=True, slots=True)
class LabOptions:
    """A cluster on this machine as a user asked for it; None where nothing was said.

    Attributes:
        folder: Where a standing one is.
        racks: Nodes of each rack.
        gpus: GPUs of each node.
        gpu_types: Their type, one for all or one for each rack.
        rate_bps: Of each node's link.
        uplink_bps: Of each rack's link.
    """

    folder: Path
    racks: tuple[int, ...] | None = None
    gpus: int | None = None
    gpu_types: tuple[str, ...] | None = None
    rate_bps: float | None = None
    uplink_bps: float | None = None

    @property
    def says_shape(self) -> bool:
        """Whether anything was said of what it is to be."""
        return bool(self._said())

    def fits(self, shape: Shape) -> bool:
        """Whether a cluster is what was asked for."""
        if not isinstance(shape, LabShape):
            return not self.says_shape
        return all(getattr(shape, name) == value for name, value in self._said().items())

    def shape(self) -> LabShape:
        """What was asked for; the rest is as usual.

        Raises:
            InputError: A number is out of range.
        """
        return replace(LabShape(), **self._said())

    def _said(self) -> dict[str, Any]:
        """What was said of it, by field of `LabShape`."""
        values = {field.name: getattr(self, field.name) for field in fields(LabShape)}
        return {name: value for name, value in values.items() if value is not None}


def local_lab_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options of a cluster on this machine; it is called with `lab`, a `LabOptions`."""

    @functools.wraps(command)
    def with_lab(folder: Path | None, **options: Any) -> None:
        said = {field.name: options.pop(field.name) for field in fields(LabShape)}
        command(lab=LabOptions(chosen_folder(folder), **said), **options)

    return functools.reduce(lambda decorated, option: option(decorated), reversed(_SHAPE_OPTIONS), with_lab)


def chosen_folder(folder: Path | None) -> Path:
    """The folder of the persistent cluster: the one given, else the usual one."""
    return folder.absolute() if folder else default_folder()


@contextmanager
def persistent_cluster(folder: Path | None = None) -> Iterator[Cluster | None]:
    """The cluster that `dally testbed up` left, here or on hosts; None if none is up.

    Raises:
        PersistentError: The folder is another user's.
        DallyError: A host cannot be reached.
    """
    place = chosen_folder(folder)
    if find_persistent(place) is None:
        yield None
        return
    with opened_persistent(place) as cluster:
        yield cluster


@contextmanager
def opened_cluster(lab: LabOptions) -> Iterator[Cluster]:
    """The persistent cluster if one is up, here or on hosts, else one here that ends with this context.

    Raises:
        PersistentError: The one that is up is not what was asked for.
        DallyError: None can be brought up.
    """
    state = find_persistent(lab.folder)
    if state is None:
        with _own_cluster(lab.shape()) as cluster:
            yield cluster
        return
    if not lab.fits(state.shape):
        raise PersistentError(
            f"the testbed in {lab.folder} is up with {state.shape.options()}, not as asked for"
        )
    with opened_persistent(lab.folder) as cluster:
        yield cluster


@contextmanager
def _own_cluster(shape: LabShape) -> Iterator[Cluster]:
    folder = Path(tempfile.mkdtemp(prefix="dally-", dir="/tmp"))
    try:
        lab = LocalSlurm(shape.spec(folder))
        lab.start()
        try:
            yield lab.cluster
        finally:
            lab.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)  # of a lab that could not even begin
