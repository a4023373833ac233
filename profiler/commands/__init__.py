"""The `profile-models` command: one click group, one command for each kind of place to measure."""

import click

from dally import __version__
from dally.commands import LazyGroup

_SUBCOMMANDS = {
    "add": ("profiler.commands.add", "Make a profile from step times that you know."),
    "fit": ("profiler.commands.fit", "Make profiles again from the raw files of a folder."),
    "here": ("profiler.commands.here", "Measure on this machine."),
    "import": ("profiler.commands.import_tables", "Make profiles from published tables."),
    "learn": ("profiler.commands.learn", "Tell what a recorded job sends, and its parallel plan."),
    "local": ("profiler.commands.local", "Measure between emulated hosts on this machine."),
    "models": ("profiler.commands.models", "List the models that can be measured."),
    "remove": ("profiler.commands.remove", "Remove a profile."),
    "run": ("profiler.commands.run", "Measure a program of your own, in one shape after another."),
    "show": ("profiler.commands.show", "Print the table of profiles and draw their figure."),
    "slurm": ("profiler.commands.slurm", "Measure on a Slurm cluster."),
    "ssh": ("profiler.commands.ssh", "Measure on hosts reached over SSH."),
}


@click.group(
    cls=LazyGroup,
    program="profile-models",
    subcommands=_SUBCOMMANDS,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(__version__, prog_name="profile-models")
def main() -> None:
    """Measure what distance between GPUs costs each model.

    One command for each place: here, local, slurm, ssh. Each measures compute, all-reduces and whole
    iterations at every tier it finds, and leaves a folder of profiles for `dally simulate --profiles`.
    """
