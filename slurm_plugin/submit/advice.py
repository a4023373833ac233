"""What `dally-sbatch` says, in a line each, of a job that goes in and may not fare as its user thinks."""

import re
import signal
from collections.abc import Collection, Iterator
from difflib import get_close_matches

from dally.errors import InputError
from dally.profiles.parallel.transformer import is_transformer
from dally.progress import STEP_FILE
from slurm_plugin.config import Config
from slurm_plugin.request import Request

GUESS = "Dally can only guess what distance costs it"
_COMMENT = re.compile(r"^[^\S\n]*#.*$|\s#\s.*$", re.MULTILINE)
_TRAP = re.compile(r"(?:^|[;&({])[^\S\n]*trap\s(?:'[^']*'|\"[^\"]*\")?(.*)", re.MULTILINE)
_HANDLED_ELSEWHERE = r"\bSIG{name}\b|^[^\S\n]*exec\s+(?:srun|\S*python[\d.]*)\b"
"""In a script of another language, or a program in the shell's place; srun passes it on to its tasks."""


def advice(
    request: Request,
    script: str,
    config: Config,
    plans_by: str = "",
    gpus: int | None = None,
    is_told: bool = False,
) -> Iterator[str]:
    """The lines for one job.

    Args:
        request: What Dally is told.
        script: The batch script; empty where it could not be read.
        config: The site's.
        plans_by: What the site's policy plans by that a job without a profile must report; empty: nothing.
        gpus: GPUs that it asks for; None if they are not known.
        is_told: A line on its plan says already that Dally can only guess.
    """
    if request.grace_s > config.longest_grace_s:
        yield (
            f"note: checkpoint grace {request.grace_s} s; this site gives {config.longest_grace_s} s at most"
        )
    if request.signal and script and not handles(script, request.signal):
        yield (
            f"warning: the script has no trap for {request.signal}, so this signal ends it before a "
            f"checkpoint is written; begin it with: trap : {request.signal}"
        )
    ask = "`dally models` lists the models that it knows"
    if request.plan and is_transformer(request.model):
        return
    known = _models(config) if request.model else ()
    if known is not None and request.model not in known:
        if request.model and not is_told:
            near = get_close_matches(request.model, known, n=1)
            ask = f"did you mean {near[0]}?" if near else ask
            if is_transformer(request.model):
                ask = "say how it trains with --parallel and --global-batch"
            yield f"note: no profile of model {request.model}, so {GUESS}; {ask}"
        # Distance costs one GPU nothing.
        elif not is_told and (gpus != 1 or max(request.max_gpus, request.max_copies) > 1):
            yield f"note: no --model, so {GUESS}; {ask}"
        reports = request.progress and not request.progress.endswith(STEP_FILE)
        if plans_by and not (reports or request.companion_of):
            yield f"note: the policy plans by {plans_by}; report them with --progress=FILE, or it guesses"


def handles(script: str, name: str) -> bool:
    """Whether a batch script seems to handle a signal: by a trap, or in a language that we do not read.

    Args:
        script: Its text.
        name: The signal, like USR2.
    """
    commands = _COMMENT.sub("", script)
    number = int(signal.Signals[f"SIG{name}"])
    named = re.compile(rf"(?:\b(?:SIG)?{name}|\s{number})\b")
    if any(named.search(found[1]) for found in _TRAP.finditer(commands)):
        return True
    return re.search(_HANDLED_ELSEWHERE.format(name=name), commands, re.MULTILINE) is not None


def _models(config: Config) -> Collection[str] | None:
    """The models that have a profile; None if the profiles cannot be read on this machine."""
    if not config.profiles:
        return ()
    from dally.profiles.files import load_profiles  # noqa: PLC0415 (only where there are some: it takes time)

    try:
        return load_profiles(config.profiles).models
    except InputError:
        return None
