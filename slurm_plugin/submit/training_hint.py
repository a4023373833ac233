"""What `dally-sbatch` tells Dally of a job's parallel plan, by its user's words and its script's."""

import re
import shlex
from collections.abc import Callable, Mapping
from dataclasses import replace
from difflib import get_close_matches
from math import ceil, prod
from pathlib import Path
from types import MappingProxyType

from dally.atomic_file import open_plain, read_within
from dally.errors import InputError
from dally.jobs.training_plan import TrainingPlan, plan_parts, plan_text
from dally.profiles.parallel.transformer import MODELS, is_transformer
from dally.words import plural
from slurm_plugin.request import Request
from slurm_plugin.submit.advice import GUESS
from slurm_plugin.submit.command_plan import CommandPlan, read_command
from slurm_plugin.submit.submission import Submission

_OF_GPUS = re.compile(r"(?:gres[:/])?gpu(?:[:=(]|$)")
_GPUS = re.compile(r"(?:(?:gres[:/])?gpu(?:[:=]|$))?(?:(?=[\d.]*[A-Za-z])[\w.-]+(?:[:=]|$))?([0-9]{1,9})?")
_LARGEST_FILE = 1_000_000


def with_plan(
    request: Request, submission: Submission, variables: Mapping[str, str] = MappingProxyType({})
) -> tuple[Request, tuple[str, ...]]:
    """The request with plan, batch and model as far as they are known, and lines for the user.

    Args:
        request: What the user tells Dally, `--parallel` as its plan and `--global-batch` among it.
        submission: The command line.
        variables: The environment.

    Raises:
        InputError: What the user says is wrong or not enough.
    """
    gpus = asked_gpus(submission.settings)
    if gpus and not (request.min_gpus or gpus) <= gpus <= (request.max_gpus or gpus):
        limits = [
            f"--{name}-gpus={most}"
            for name, most in (("min", request.min_gpus), ("max", request.max_gpus))
            if most
        ]
        raise InputError(f"the job asks sbatch for {plural(gpus, 'GPU')}, outside of {' and '.join(limits)}")
    script = f"{submission.script}\n{shlex.join(submission.rest[1:])}"
    exported = submission.settings.get("export") or variables.get("SBATCH_EXPORT") or "ALL"
    known = variables if exported.upper() == "ALL" else None  # or the job's environment is another one
    read_file = _reader(submission.settings.get("chdir"))
    found = read_command(script, read_file, gpus, known) or CommandPlan()
    said = plan_parts(request.plan)
    parts = {**found.plan, **said}
    model = request.model or (found.model if is_transformer(found.model) else "")
    batch = request.batch or max(0, found.batch)
    try:
        if found.problem and not said:
            raise InputError(found.problem)
        if not parts:
            raise InputError("it names none")
        if not batch:
            raise InputError("a plan needs the sequences of a step on all GPUs (--global-batch=N)")
        plan = TrainingPlan.parse(plan_text(parts), gpus or _fewest_gpus(parts))
        if gpus and gpus != plan.gpus:
            raise InputError(f"plan {plan} needs {plural(plan.gpus, 'GPU')}, not {gpus}")
        if gpus and batch % plan.batch_step:
            raise InputError(
                f"plan {plan} needs a batch of a multiple of {plan.batch_step} sequences, not {batch}"
            )
        planned = replace(request, plan=plan_text(parts), batch=batch, model=model)
    except InputError as error:
        if said:
            unread = f"; of the command line nothing is read: {found.problem}" if found.problem else ""
            raise InputError(f"{error}{unread}") from None
        how = "--parallel" if batch or not parts else "--global-batch"
        how = how if request.model else f"--model and {how}"
        unread = f"no plan is read from the command line: {error}; say it with {how}"
        if request.batch:
            raise InputError(unread) from None
        told = found.problem if not model else is_transformer(model) and (found.plan or found.problem)
        return request, (f"note: {unread}, or {GUESS}",) if told else ()
    told = f"plan {plan_text(parts)} and batch {batch}"
    if found.plan:
        told = f"{told} are read from the command line"
    if not model:
        why = f"but no --model names a transformer; without one, {GUESS}"
        return planned, (f"note: {told}, {why}; `dally step-time --help` lists them",)
    notes = [f"note: {told}; --parallel and --global-batch override"] if found.plan else []
    if not is_transformer(model):
        near = get_close_matches(model.lower(), MODELS, n=1)
        ask = f"; did you mean {near[0]}?" if near else ""
        notes.append(
            f"note: model {model} is not a transformer that Dally knows, so its plan counts for nothing{ask}"
        )
    return planned, tuple(notes)


def asked_gpus(settings: Mapping[str, str | None]) -> int | None:
    """The GPUs that these options of sbatch ask for; None if they leave it open."""
    by_node = [entry for entry in (settings.get("gres") or "").split(",") if _OF_GPUS.match(entry)]
    nodes = _nodes(settings)
    counts = (
        (settings.get("gpus"), 1),
        (settings.get("gpus-per-node") or ",".join(by_node), nodes),
        (settings.get("gpus-per-task"), _tasks(settings, nodes)),
    )
    each, times = next(((each, times) for each, times in counts if each), ("", None))
    count = _count(each) if each else None
    return None if count is None or times is None else count * times


def _count(gpus: str) -> int | None:
    """GPUs in `8`, `a100:8`, `gpu:a100:8` or `a100`, which is one; None for several types."""
    found = _GPUS.fullmatch(gpus)
    return int(found[1] or 1) if found else None


def _nodes(settings: Mapping[str, str | None]) -> int | None:
    """The nodes of a job: without `--nodes` as many as its tasks take, or one; None for a range."""
    least, dash, most = (settings.get("nodes") or "").partition("-")
    if least:
        return int(least) if least.isdecimal() and most in (least, "") and bool(dash) == bool(most) else None
    tasks, each = (settings.get(name) or "" for name in ("ntasks", "ntasks-per-node"))
    return ceil(int(tasks) / int(each)) if tasks.isdecimal() and each.isdecimal() and int(each) else 1


def _tasks(settings: Mapping[str, str | None], nodes: int | None) -> int | None:
    """The tasks of a job: without `--ntasks` one on each node, or as many as it says."""
    tasks, each = settings.get("ntasks"), settings.get("ntasks-per-node") or "1"
    if tasks:
        return int(tasks) if tasks.isdecimal() else None
    return nodes * int(each) if nodes is not None and each.isdecimal() else None


def _fewest_gpus(parts: Mapping[str, str]) -> int:
    """GPUs that a plan fits whose job tells none: as many replicas as share experts."""
    sizes = [parts.get(axis, "1") for axis in ("tp", "pp", "cp", "ep")]
    return prod(int(size) for size in sizes if size.isdecimal())


def _reader(folder: str | None) -> Callable[[str], str | None]:
    def read(name: str) -> str | None:
        try:
            with open_plain(Path.cwd() / (folder or "") / name) as file:
                return read_within(file, _LARGEST_FILE).decode()
        except (OSError, ValueError):
            return None

    return read
