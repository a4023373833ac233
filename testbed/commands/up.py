"""`dally testbed up`: bring a Slurm cluster up that stays."""

import shlex
from collections.abc import Iterator
from pathlib import Path

import click

from testbed.commands.options import LabOptions, local_lab_options
from testbed.standing.control import bring_up, open_standing


@click.command(
    epilog="""\b
Examples:
  dally testbed up
  dally testbed up --racks 4,4 --gpus 2 --rate 1Gb --uplink 500Mb"""
)
@local_lab_options
def command(lab: LabOptions) -> None:
    """Bring a Slurm cluster up on this machine, whose nodes are network namespaces in racks.

    It stays until `dally testbed down`. If it is up already, that is said; the exit code is 1 if it is
    another one. Needs root, Slurm's and munge's packages.
    """
    shape = lab.shape()
    begun = bring_up(lab.folder, shape)
    click.echo(f"{'up' if begun else 'up already'}: {shape.shown()}")
    for line in _uses(lab.folder):
        click.echo(line)


def _uses(folder: Path) -> Iterator[str]:
    """What can be done with it."""
    cluster = open_standing(folder)
    assert cluster.network
    inside = (f"SLURM_CONF={cluster.conf}", "bash")
    yield f"Slurm's configuration: {cluster.conf}"
    yield f"its links, as Dally reads them: {cluster.spec.cluster_file}"
    yield f"a shell in it, where sbatch and squeue work: {shlex.join(cluster.network.core_command(inside))}"
    yield "run a workload: dally testbed run; look at it: dally testbed status; end it: dally testbed down"
