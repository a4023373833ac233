"""`dally testbed up`: bring a Slurm cluster up that stays."""

import shlex
from collections.abc import Iterator
from pathlib import Path

import click

from testbed.commands.options import LabOptions, local_lab_options
from testbed.persistent.control import bring_up, find_persistent, open_local
from testbed.persistent.hosts_shape import HostsShape, Shape, hosts_shape
from testbed.remote.options import logs_option


@click.command(
    epilog="""\b
Examples:
  dally testbed up
  dally testbed up --racks 4,4 --gpus 2 --rate 1Gb --uplink 500Mb
  dally testbed up --racks 2,2,1 --gpus 1 --gpu-types v100,p100,k80
  dally testbed up --hosts hosts.toml --shared /nfs/dally"""
)
@local_lab_options
@click.option(
    "--hosts", "hosts_file", type=click.Path(path_type=Path), help="TOML file of hosts to use instead."
)
@click.option("--shared", type=click.Path(path_type=Path), help="Folder that all these hosts share.")
@click.option("--fake-gpus", is_flag=True, help="Let the hosts' GPUs be pretended.")
@logs_option
def command(
    lab: LabOptions, hosts_file: Path | None, shared: Path | None, fake_gpus: bool, logs: Path
) -> None:
    """Bring a Slurm cluster up: on this machine, with network namespaces as nodes, or on hosts over SSH.

    It stays until `dally testbed down`. If it is up already, that is said; the exit code is 1 if it is
    another one. Needs root and Slurm's and munge's packages, here or on the hosts.
    """
    shape = _shape(lab, hosts_file, shared, fake_gpus, logs)
    begun = bring_up(lab.folder, shape)
    click.echo(f"{'up' if begun else 'up already'}: {shape.shown()}")
    for line in _uses_of_hosts(lab.folder) if isinstance(shape, HostsShape) else _uses(lab.folder):
        click.echo(line)
    click.echo(
        "run a workload: dally testbed run; look at it: dally testbed status; end it: dally testbed down"
    )


def _shape(
    lab: LabOptions, hosts_file: Path | None, shared: Path | None, fake_gpus: bool, logs: Path
) -> Shape:
    if hosts_file is None:
        if shared or fake_gpus:
            raise click.UsageError("--shared and --fake-gpus go with --hosts")
        return lab.shape()
    if shared is None:
        raise click.UsageError("--hosts needs --shared, a folder that all hosts share")
    if lab.says_shape:
        raise click.UsageError(
            "--racks, --gpus, --gpu-types, --rate and --uplink do not go with --hosts, whose file tells"
        )
    return hosts_shape(hosts_file, shared, fake_gpus, logs)


def _uses(folder: Path) -> Iterator[str]:
    """What can be done with one on this machine."""
    cluster = open_local(folder)
    assert cluster.network
    inside = (f"SLURM_CONF={cluster.conf}", "bash")
    yield f"Slurm's configuration: {cluster.conf}"
    yield f"its links, as Dally reads them: {cluster.spec.cluster_file}"
    yield f"a shell in it, where sbatch and squeue work: {shlex.join(cluster.network.core_command(inside))}"


def _uses_of_hosts(folder: Path) -> Iterator[str]:
    """What can be done with one on hosts."""
    state = find_persistent(folder)
    assert state
    assert state.place
    assert isinstance(state.shape, HostsShape)
    head = state.shape.hosts().hosts[0].name
    yield f"sbatch and squeue work on {head}, after: export SLURM_CONF={state.place.conf}"
    yield f"folder of its jobs, on all hosts: {state.place.work}"
    yield f"what is run on the hosts: {state.shape.logs}/HOST.log"
