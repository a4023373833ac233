"""The `dally` command: one click group whose subcommands load only when they are used."""

import sys
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any, NoReturn

import click

from dally import __version__
from dally.errors import DallyError
from dally.optional import import_optional

_SUBCOMMANDS = {
    "advise": ("analysis.advise.command", "Tell from a site's history what Dally would change."),
    "cluster": ("dally.commands.cluster", "Show a cluster file, or convert one."),
    "controller": (
        "slurm_plugin.service.controller_command",
        "Run the daemon that schedules Slurm.",
    ),
    "models": ("slurm_plugin.service.models_command", "List the models that have a profile."),
    "policies": ("dally.commands.policies", "List the scheduling policies, their knobs and sources."),
    "queue": ("slurm_plugin.service.queue_command", "Show the live jobs: what each waits for, and how long."),
    "rank-order": ("dally.commands.rank_order", "Order a job's nodes so that neighbouring ranks lie close."),
    "release-all": ("slurm_plugin.service.release_command", "Hand every job held for Dally back to Slurm."),
    "replay": ("dally.commands.replay", "Decide a recorded run again, and compare."),
    "report": ("analysis.report.command", "Compare runs in one HTML file."),
    "shadow": ("slurm_plugin.service.shadow_command", "Tell what a shadow would have done otherwise."),
    "simulate": ("simulator.command", "Run a trace on a cluster under one or more policies."),
    "slurm": (
        "slurm_plugin.admin.admin_command",
        "Install Dally on Slurm, check it, or remove it.",
    ),
    "status": ("slurm_plugin.service.status_command", "Show how the live controller is."),
    "step-time": ("dally.commands.step_time", "Predict a training step's time under parallel plans."),
    "sweep": ("simulator.sweep.command", "Run many simulations: seeds, loads, policies, knobs, clusters."),
    "testbed": ("testbed.commands", "Run real jobs on a cluster of your own; compare with the simulator."),
    "top": ("slurm_plugin.service.top_command", "Watch the live controller, its GPUs and jobs."),
    "trace": ("dally.commands.trace", "Show, convert or generate a workload trace."),
    "why": ("slurm_plugin.service.why_command", "Tell the life of one job, live or of a run."),
}


class LazyGroup(click.Group):
    """A click group that imports a subcommand's module on first use, so that its `--help` is instant."""

    def __init__(
        self, *, program: str, subcommands: Mapping[str, tuple[str, str]], **attributes: Any
    ) -> None:
        """Make a group.

        Args:
            program: What its messages begin with.
            subcommands: Name -> (module holding a click command called `command`, one-line help).
            attributes: Those of `click.Group`.
        """
        super().__init__(**attributes)
        self.program = program
        self.subcommands = subcommands

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names of all subcommands."""
        return sorted(self.subcommands)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return one subcommand."""
        if cmd_name not in self.subcommands:
            return None
        command = import_optional(self.subcommands[cmd_name][0]).command
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the subcommand that was named; if there is none, say which one was probably meant."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            meant = get_close_matches(args[0], self.subcommands, n=1)
            if not meant:
                raise
            raise click.UsageError(f"{error.message} Did you mean {meant[0]!r}?", ctx) from error

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the subcommands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, self.subcommands[name][1]) for name in self.list_commands(ctx)])

    def invoke(self, ctx: click.Context) -> Any:
        """Run; print what went wrong with the user's input or the system's files as one line and exit 1."""
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()
        except BrokenPipeError:
            raise  # click ends quietly when the reader has gone
        except DallyError as error:
            self._fail(f"{error} ({error.hint})" if error.hint else str(error))
        except OSError as error:
            self._fail(f"{error.filename or 'cannot write'}: {error.strerror}")
        except UnicodeEncodeError as error:  # names of files may be any bytes, what we write may not
            odd = error.object[error.start : error.end]
            word = next((word for word in error.object.split() if odd in word), odd)
            self._fail(f"{word[:99]!a} cannot be written in {error.encoding}; rename it")
        return result

    def _fail(self, message: str) -> NoReturn:
        click.echo(f"{self.program}: {message}", err=True)
        sys.exit(1)


@click.group(
    cls=LazyGroup,
    program="dally",
    subcommands=_SUBCOMMANDS,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(__version__, prog_name="dally")
def main() -> None:
    """Network-sensitive GPU scheduling for Slurm."""
