"""`dally-sbatch`: sbatch, with what Dally wants to know about the job; everything else is sbatch's own."""

import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NoReturn

from dally import __version__
from dally.atomic_file import user_name
from dally.errors import DallyError, InputError
from dally.progress import BATCHING, FILE, STEP_FILE
from dally.words import clean
from slurm_plugin.asking import ask_controller
from slurm_plugin.config import load_config
from slurm_plugin.request import PLAIN, Request, encode
from slurm_plugin.submit.advice import advice
from slurm_plugin.submit.sbatch_options import HasArg
from slurm_plugin.submit.submission import (
    TOPO,
    Submission,
    build_request,
    fixed_reason,
    has_even_shares,
    learn_folder,
    overlooked,
    read_submission,
    unread_reason,
)
from slurm_plugin.submit.training_hint import asked_gpus, with_plan
from workloads import recorder

_HELP_TIMEOUT_S = 10.0
_HELP_OPTION = re.compile(r"^[ \t]+(?:-\w,?[ \t]+)?--([\w-]+)(\[?=)?", re.MULTILINE)

_USAGE = """\
Usage: dally-sbatch [OPTIONS of Dally and of sbatch, in any order] SCRIPT [ARGUMENTS]

Submits a batch job whose nodes and start Dally decides. Prints what sbatch prints.

  --model=NAME              what the job trains, a name of the site's profiles, or a transformer
  --parallel=PLAN           how it trains a transformer, like tp=8,pp=4,zero=1,sequence=8192; without it, what
                            the script's command line says plainly
  --global-batch=N          sequences of a step of that plan, on all its GPUs
  --checkpoint-signal=SIG   on this signal, like USR2, the job writes a checkpoint; without it the job
                            is not preempted
  --checkpoint-grace=TIME   how long that takes at most: seconds, or MM:SS (default 60)
  --min-gpus=N              fewest GPUs it can run on (default: what it asks sbatch for)
  --max-gpus=N              most GPUs it can use (default: what it asks sbatch for)
  --copies=N                most copies that may train side by side, each on a node of its own; what it asks
                            sbatch for is one copy: --nodes=1 --gpus-per-node=N
  --progress=FILE           the job reports in this file how far it is; %j stands for its number
  --learn=FOLDER            record what its ranks send, for `profile-models learn FOLDER/USER/JOB`
  --companion-of=JOB        ranks of this elastic job of yours, by which Dally makes it larger and smaller
  --dry-run                 show the command and what Dally understood, submit nothing
  --help, --version         this text, the version of Dally

All but the last two may also stand in the script, before the first command: #DALLY --model=resnet50
For the options of sbatch: sbatch --help
"""


@dataclass(frozen=True, slots=True)
class SubmissionOutcome:
    """What becomes of a submission.

    Attributes:
        command: The sbatch command.
        request: What Dally is told; None for a job that Slurm schedules.
        notes: Lines for the user.
        variables: What is added to the job's environment.
    """

    command: tuple[str, ...]
    request: Request | None
    notes: tuple[str, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict)


def main() -> None:
    """Entry point of `dally-sbatch`; becomes sbatch, or prints one line and exits 1."""
    try:
        submission = read_submission(sys.argv[1:], os.environ, sys.stdin.buffer.read, _plugin_options)
        if "help" in submission.asked:
            print(_USAGE, end="")
            return
        if "version" in submission.asked:
            print(f"dally-sbatch {__version__}")
            return
        outcome = decide(submission, os.urandom(8).hex())
        for note in (*overlooked(submission), *outcome.notes):
            print(f"dally-sbatch: {clean(note)}", file=sys.stderr)
        if "dry-run" in submission.asked:
            told = f"{shlex.join(outcome.command)}\n{_understood(outcome.request, submission)}\n"
            sys.stdout.buffer.write(os.fsencode(told))  # the words of the user may be no text
            return
        os.environ.update(outcome.variables)
        if folder := _learn_folder(submission):
            os.environ.update(recorder.environment(folder, os.environ))
            exported = submission.settings.get("export")
            if "learn" in submission.asked and exported and "ALL" not in exported.upper().split(","):
                told = f"--export={exported} keeps PYTHONPATH from the job: nothing is recorded"
                print(f"dally-sbatch: warning: {told}", file=sys.stderr)
        _become(outcome.command, submission.stdin)
    except DallyError as error:
        _fail(str(error))
    except KeyboardInterrupt:
        sys.exit(130)


def decide(submission: Submission, tag: str) -> SubmissionOutcome:
    """Whether the job waits for Dally or goes to Slurm as it is, and by which command.

    Raises:
        InputError: A value for Dally is wrong, or no controller answers and the site refuses such jobs.
    """
    plain = _with(submission, [])
    if submission.settings.keys() & {"test-only", "usage"}:
        return SubmissionOutcome(plain, None)
    request, plan_notes = with_plan(build_request(submission, tag), submission, os.environ)
    by_slurm = "Slurm schedules this job"
    try:
        config = load_config()
    except InputError as error:
        return SubmissionOutcome(plain, None, (f"warning: {error}; {by_slurm}",))
    if reason := unread_reason(submission) or fixed_reason(submission.settings, config.partitions):
        return SubmissionOutcome(plain, None, (f"note: {reason}; {by_slurm}",))
    reason, told = ask_controller(config)
    comment = submission.settings.get("comment") or ""
    variables = {FILE: request.progress} if request.progress else {}
    folder = _learn_folder(submission)
    if folder is not None and not (request.progress or request.companion_of):
        request = replace(request, progress=os.path.normpath(folder / STEP_FILE))
        variables[recorder.STEPS_VARIABLE] = request.progress
    if reason:
        if config.fallback == "refuse":
            raise InputError(f"{reason}; this site takes no jobs without it, try again later")
        plain = _with(submission, [f"--comment={PLAIN} {comment}".rstrip()])
        return SubmissionOutcome(plain, None, (f"warning: {reason}; {by_slurm}",))
    by_blocks = told.get("segments") is True
    segments = by_blocks and has_even_shares(submission.settings)
    own = submission.settings.get("segment") not in (None, "0")
    if own and not segments:
        return SubmissionOutcome(plain, None, (f"note: --segment fixes the placement; {by_slurm}",))
    if submission.settings.get("exclusive") == TOPO and not by_blocks:
        return SubmissionOutcome(plain, None, (f"note: --exclusive=topo fixes the placement; {by_slurm}",))
    may_be_stopped = request.signal and not submission.settings.keys() & {"requeue", "no-requeue"}
    requeue = ["--requeue"] if may_be_stopped else []
    # Or Slurm starts it in as few blocks as it needs only.
    segment = ["--segment=1"] if segments and not own else []
    added = ["--hold", *requeue, *segment, f"--comment={encode(request, comment)}"]
    changes_size = request.min_gpus or request.max_gpus or request.companion_of
    if changes_size and isinstance(told.get("batching"), str):
        variables[BATCHING] = clean(told["batching"])
    plans_by, gpus = clean(str(told.get("plans_by") or "")), asked_gpus(submission.settings)
    notes = (*plan_notes, *advice(request, submission.script, config, plans_by, gpus, bool(plan_notes)))
    return SubmissionOutcome(_with(submission, added), request, notes, variables)


def _learn_folder(submission: Submission) -> Path | None:
    """The user's folder in that for records, which he or the site names; None if the job is not recorded."""
    folder = learn_folder(submission)
    if folder is None:
        try:
            site = load_config().learn
        except InputError:
            return None
        folder = Path(site) if site else None
    return folder and folder / (submission.settings.get("uid") or user_name(os.geteuid()))


def _with(submission: Submission, added: Sequence[str]) -> tuple[str, ...]:
    """The command with options of ours; they come last, so they win over the user's."""
    return ("sbatch", *submission.words, *added, *submission.rest)


def _understood(request: Request | None, submission: Submission) -> str:
    """What Dally is told, in words."""
    if request is None:
        return "Dally is told nothing of this job"
    parts = [f"model {request.model}" if request.model else "model not known"]
    if request.plan:
        parts.append(f"plan {request.plan} with batches of {request.batch}")
    if not request.signal:
        parts.append("never preempted")
    elif "no-requeue" in submission.settings:
        parts.append("never preempted, as --no-requeue says")
    else:
        parts.append(f"writes a checkpoint on {request.signal} within {request.grace_s} s")
    if request.min_gpus or request.max_gpus:
        least, most = (gpus or "what it asks for" for gpus in (request.min_gpus, request.max_gpus))
        parts.append(f"GPUs from {least} to {most}")
    if request.max_copies > 1:
        parts.append(f"up to {request.max_copies} copies")
    if request.progress:
        told = "its step times are told" if request.progress.endswith(STEP_FILE) else "reports its progress"
        parts.append(f"{told} in {request.progress}")
    if folder := _learn_folder(submission):
        parts.append(f"what its ranks send is recorded in {folder}/JOB")
    if request.companion_of:
        parts.append(f"companion of job {request.companion_of}")
    if request.held:
        parts.append("held by you")
    return f"Dally: {', '.join(parts)}"


def _plugin_options() -> dict[str, HasArg]:
    """The options that this sbatch tells of in its help, those of SPANK plugins included."""
    try:
        done = subprocess.run(
            ["sbatch", "--help"], capture_output=True, text=True, timeout=_HELP_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return {}
    kinds = {"": HasArg.NO, "=": HasArg.REQUIRED, "[=": HasArg.OPTIONAL}
    return {name: kinds[follows] for name, follows in _HELP_OPTION.findall(done.stdout)}


def _become(command: tuple[str, ...], stdin: bytes | None) -> NoReturn:
    """Replace this process by the command, so that signals, output and exit code are its own."""
    if stdin is not None:
        script = os.memfd_create("script")
        with open(os.dup(script), "wb") as file:
            file.write(stdin)
        os.lseek(script, 0, os.SEEK_SET)
        os.dup2(script, 0)
    for ignored in (signal.SIGPIPE, signal.SIGXFSZ):  # by Python, and what is ignored stays so in sbatch
        signal.signal(ignored, signal.SIG_DFL)
    sys.stderr.flush()
    try:
        os.execvp(command[0], command)
    except OSError as error:
        _fail(f"cannot run {command[0]}: {error.strerror}")


def _fail(message: str) -> NoReturn:
    print(f"dally-sbatch: {message}", file=sys.stderr)
    sys.exit(1)
