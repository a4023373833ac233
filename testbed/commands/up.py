"""`dally testbed up`: bring a Slurm cluster up that stays."""

import shlex
from pathlib import Path

import click

from testbed.commands.options import LocalClusterOptions, local_cluster_options, logs_option
from testbed.persistent.control import bring_up, find_persistent, open_local
from testbed.persistent.shape import HostsShape, Shape, hosts_shape


@click.command(
    epilog="""\b
Examples:
  dally testbed up
  dally testbed up --racks 4,4 --gpus 2 --rate 1Gb --uplink 500Mb
  dally testbed up --racks 2,2,1 --gpus 1 --gpu-types v100,p100,k80
  dally testbed up --hosts hosts.toml --shared /nfs/dally"""
)
@local_cluster_options
@click.option(
    "--hosts", "hosts_file", type=click.Path(path_type=Path), help="TOML file of hosts to use instead."
)
@click.option("--shared", type=click.Path(path_type=Path), help="Folder that all these hosts share.")
@click.option("--fake-gpus", is_flag=True, help="Let the hosts' GPUs be pretended.")
@logs_option
def command(
    cluster_options: LocalClusterOptions,
    hosts_file: Path | None,
    shared: Path | None,
    fake_gpus: bool,
    logs: Path,
) -> None:
    """Bring a Slurm cluster up: on this machine, with network namespaces as nodes, or on hosts over SSH.

    It stays until `dally testbed down`. If it is up already, that is said; the exit code is 1 if it is
    another one. Needs root and Slurm's and munge's packages, here or on the hosts.
    """
    shape: Shape
    if hosts_file is None:
        if shared or fake_gpus:
            raise click.UsageError("--shared and --fake-gpus go with --hosts")
        shape = cluster_options.shape()
    elif shared is None:
        raise click.UsageError("--hosts needs --shared, a folder that all hosts share")
    elif cluster_options.asked:
        raise click.UsageError(
            "--racks, --gpus, --gpu-types, --rate and --uplink do not go with --hosts, whose file tells"
        )
    else:
        shape = hosts_shape(hosts_file, shared, fake_gpus, logs)
    begun = bring_up(cluster_options.folder, shape)
    click.echo(f"{'up' if begun else 'up already'}: {shape.shown()}")
    if isinstance(shape, HostsShape):
        state = find_persistent(cluster_options.folder)
        assert state
        assert state.place
        head = shape.hosts().hosts[0].name
        click.echo(f"sbatch and squeue work on {head}, after: export SLURM_CONF={state.place.conf}")
        click.echo(f"folder of its jobs, on all hosts: {state.place.work}")
        click.echo(f"what is run on the hosts: {shape.logs}/HOST.log")
    else:
        cluster = open_local(cluster_options.folder)
        assert cluster.network
        shell = shlex.join(cluster.network.core_command((f"SLURM_CONF={cluster.conf}", "bash")))
        click.echo(f"Slurm's configuration: {cluster.conf}")
        click.echo(f"its links, as Dally reads them: {cluster.spec.cluster_file}")
        click.echo(f"a shell in it, where sbatch and squeue work: {shell}")
    click.echo(
        "run a workload: dally testbed run; look at it: dally testbed status; end it: dally testbed down"
    )
