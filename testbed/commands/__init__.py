"""`dally testbed`: bring a cluster up, run a workload on it for real, compare with the simulator."""

import click

from dally.commands import LazyGroup

_SUBCOMMANDS = {
    "check": ("testbed.commands.check", "Say whether the hosts can be a testbed; change nothing."),
    "collect": ("testbed.commands.collect", "Make the run folder of a run that was cut off."),
    "compare": ("testbed.commands.compare", "Hold the simulator against a real run."),
    "down": ("testbed.commands.down", "End the cluster; leave everything as it was."),
    "drill": ("testbed.commands.drill", "Break things on purpose and see that no job is lost."),
    "run": ("testbed.commands.run", "Run a workload for real under one or more policies."),
    "shape": ("testbed.commands.shape", "Limit the network of real hosts, and restore it."),
    "status": ("testbed.commands.status", "Show the cluster that is up."),
    "up": ("testbed.commands.up", "Bring a Slurm cluster up, on this machine or on hosts over SSH."),
}


@click.group(
    cls=LazyGroup,
    program="dally testbed",
    subcommands=_SUBCOMMANDS,
    context_settings={"help_option_names": ["-h", "--help"]},
)
def command() -> None:
    """Run real training jobs on a Slurm cluster of your own, and see how well the simulator foretold it."""
