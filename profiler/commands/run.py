"""`profile-models run`: a profile of the user's own job, launched unchanged in one shape after another."""

import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path

import click

from dally.commands.terminal import say
from dally.errors import InputError
from dally.profiles.files import add_profile, profile_path, require_absent, require_alike
from dally.profiles.given import check_name, given_profile
from profiler.commands import values
from profiler.commands.measuring import INTERRUPTED, interruptible
from profiler.commands.options import profiles_folder, seconds
from profiler.commands.program_sites import ProgramSite, program_site
from profiler.driver.measure import InterruptedRunError, MeasureError
from profiler.driver.plan import RankSpread, plan_places, same_job_spreads
from profiler.driver.publish import print_tables
from profiler.driver.step_log import parse_steps_from
from profiler.driver.step_runs import StepMeasurement, StepRun, StepRunFolder, measure_steps
from profiler.driver.store import locked_folder
from profiler.launch.rank_commands import Launcher
from profiler.launch.user_program import UserProgram
from profiler.spec import PlannedRun


@click.command(
    epilog="""\b
Examples:
  profile-models run --model my-llm --racks 2,2 --rate 1Gb -- torchrun train.py --config small.yaml
  profile-models run --model my-llm --slurm --shapes 1x8,2x4 -- torchrun train.py
  profile-models run --model my-llm --hosts hosts.toml --steps-from 'took ([\\d.]+) s' -- ./t.sh {rank}
In COMMAND, {machines} {rank} {gpus} {world} {master} {port} stand for what each machine is told.""",
)
@click.argument("argv", nargs=-1, required=True, metavar="-- COMMAND...")
@click.option("--model", required=True, help="What jobs call the model: the profile's name.")
@profiles_folder
@click.option(
    "--shapes",
    type=values.shapes,
    default="",
    metavar="[TIER-]MACHINESxGPUS,...",
    help="Default: as many GPUs as a machine has, on 1, 2 and 4 machines.",
)
@click.option(
    "--steps-from",
    default="",
    metavar="REGEX|jsonl",
    help="Where a line tells the seconds of a step: the group of a regular expression. Default: what is "
    "commonly printed.",
)
@click.option(
    "--warm-up",
    type=click.IntRange(min=0),
    default=5,
    show_default=True,
    help="Step times that do not count.",
)
@click.option(
    "--steps", type=click.IntRange(min=3), default=30, show_default=True, help="Step times that end a run."
)
@seconds("--timeout", "timeout_s", 3600, "Longest that one run may take.")
@click.option("--resume", is_flag=True, help="Go on: shapes that are measured are not measured again.")
@click.option("--dry-run", is_flag=True, help="Print the commands to run, touch nothing.")
@program_site
def command(
    argv: tuple[str, ...],
    model: str,
    out: Path,
    shapes: tuple[tuple[RankSpread, ...], ...],
    steps_from: str,
    warm_up: int,
    steps: int,
    timeout_s: float,
    resume: bool,
    dry_run: bool,
    site: Callable[[float], AbstractContextManager[ProgramSite]],
) -> None:
    """Run COMMAND, your own training, in one shape after another, and make a profile of its step times.

    COMMAND starts on every machine of a shape: on emulated hosts of this machine, over SSH (--hosts) or under
    Slurm (--slurm). It is told its part by the variables that torchrun reads, by MASTER_ADDR, MASTER_PORT,
    NNODES, NODE_RANK and NPROC_PER_NODE, and by placeholders. Enough step times in its output end a run.
    """
    check_name(model)
    asked = StepMeasurement(argv, parse_steps_from(steps_from), warm_up, steps, timeout_s)
    program = UserProgram(argv)
    with site(timeout_s) as there:
        runs = plan_places(same_job_spreads(shapes, there.racks), there.usable)
        place = there.place(program, runs)
        if dry_run:
            _print_commands(runs, place)
            return
        path = profile_path(out, model, there.gpu_type)
        folder = StepRunFolder(out / "steps" / path.stem)
        measured = folder.read()
        if not (resume and measured):
            require_absent(path)
        require_alike(out, there.mode)
        with interruptible(), locked_folder(folder.folder, folder.folder):
            left = _left(runs, measured, argv, folder, resume)
            try:
                problems = measure_steps(left, place, asked, folder, partial(say, err=True))
            except InterruptedRunError as error:
                say(f"profile-models: {error} (the same command with --resume continues)", err=True)
                sys.exit(INTERRUPTED)
            times = [each.step_time for each in folder.read().values()]
            newest = max(each.utc_time for each in folder.read().values())
            source = f"profile-models run, steps of: {shlex.join(argv)}"
            profile = given_profile(model, times, source, newest, there.gpu_type, there.mode)
            add_profile(profile, out, replacing=True)
    print_tables([profile])
    say(f"profile: {path}")
    if problems:
        missing = MeasureError(f"not all was measured: {'; '.join(problems)}")
        missing.hint = "the same command with --resume adds what is missing"
        raise missing


def _left(
    runs: Sequence[PlannedRun],
    measured: Mapping[str, StepRun],
    argv: Sequence[str],
    folder: StepRunFolder,
    resume: bool,
) -> tuple[PlannedRun, ...]:
    """The runs that are not measured yet.

    Raises:
        InputError: Some are, and this is not to go on from them or is another command or link.
    """
    left = []
    for run in runs:
        if run.name not in measured:
            left.append(run)
            continue
        path, before = folder.path(run.name), measured[run.name]
        if not resume:
            raise InputError(f"{path} exists; go on from it with --resume, or name another --out")
        alike = {
            "command": before.argv == tuple(argv),
            "link": before.run.link == run.link,
            "shape": before.run.shape == run.shape,
        }
        for name, same in alike.items():
            if not same:
                raise InputError(f"{path} was measured with another {name}; name another --out or --model")
    return tuple(left)


def _print_commands(runs: Sequence[PlannedRun], place: Launcher[PlannedRun]) -> None:
    """Print what would be run, as lines for a shell."""
    for run in runs:
        first, *others = place.commands(run)
        click.echo(f"# {run.name}, on {', '.join(run.hosts)}")
        for command in others:
            click.echo(f"{place.shown(command)} &")
        click.echo(f"{place.shown(first)}\n")
