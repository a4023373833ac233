"""What a user hands to `dally-sbatch`, as sbatch understands it, and whether Dally can place such a job."""

import os
import re
import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

from dally.errors import InputError
from slurm_plugin.constraint import alternatives
from slurm_plugin.request import MARK, SIGNALS, SWITCH_WAIT_S, Request
from slurm_plugin.submit.sbatch_options import (
    HasArg,
    MoreOptions,
    Words,
    is_known,
    set_by_variables,
    split_words,
)

_REQUEST_NAMES = (
    "model parallel global-batch checkpoint-signal checkpoint-grace min-gpus max-gpus copies progress "
    "companion-of learn"
)
_REQUEST = dict.fromkeys(_REQUEST_NAMES.split(), HasArg.REQUIRED)
_OWN = {**_REQUEST, "dry-run": HasArg.NO, "help": HasArg.NO, "version": HasArg.NO}

_COUNTS = ("global-batch", "min-gpus", "max-gpus", "copies")

_FIXES = "nodefile prefer batch contiguous spread-job clusters cluster-constraint"
TOPO = "topo"
"""The value of `--exclusive` with which a job shares its blocks with nobody."""
_OF_SEGMENTS = ("consolidate-segments", "spread-segments")
_GPUS = ("gpus", "gpus-per-node", "gpus-per-task", "gpus-per-socket")
_GPU_TRES = re.compile(r"(?:gres[:/])?gpu(?:[:=].*)?")
_SCRIPTS = (".sh", ".bash", ".sbatch", ".slurm", ".batch", ".job", ".py")
"""How names of scripts end."""

_ZERO = re.compile(r"(?:.*[:=])?0+")
_TIME = re.compile(r"(?:([0-9]+)-)?([0-9]+(?::[0-9]+){0,2})")
_WHOLE = re.compile(r"[0-9]{1,9}")
_UNREAD = re.compile(r"^(#PBS|#BSUB)\s*-", re.MULTILINE)
_OFTEN_MISPLACED = ("model", "checkpoint-signal")
_MOST_BYTES = 4 << 20
"""Of a script that are read: Slurm takes no longer one, unless a site raises its max_script_size."""


@dataclass(frozen=True, slots=True)
class Submission:
    """A command line of `dally-sbatch`, with what its script and the environment add.

    Attributes:
        words: The options that are sbatch's, as given.
        rest: The script's name and arguments, as given; empty if the script comes from elsewhere.
        settings: Sbatch's options that hold, by full name: of the script, the environment, the command line,
            a later one over an earlier one.
        asked: Dally's options that hold, by name: of the script, the command line.
        stdin: The script, if it came from standard input.
        script: The script, wherever it came from.
    """

    words: tuple[str, ...]
    rest: tuple[str, ...]
    settings: Mapping[str, str | None]
    asked: Mapping[str, str | None]
    stdin: bytes | None = None
    script: str = ""


def read_submission(
    arguments: Sequence[str],
    variables: Mapping[str, str],
    read_stdin: Callable[[], bytes],
    more_options: MoreOptions,
) -> Submission:
    """Understand a command line.

    Args:
        arguments: The command line without the program's name.
        variables: The environment.
        read_stdin: Gives standard input; asked only if the script comes from there.
        more_options: See `split_words`.

    Raises:
        InputError: An option of Dally is wrong, the script cannot be read, or the job is heterogeneous.
    """
    line = split_words(arguments, _OWN, more_options)
    given = {option.name: option.value for option in line.options}
    if given.keys() & {"help", "version"}:
        return Submission((), (), {}, given)
    positional = line.rest[1:] if line.rest[:1] == ("--",) else line.rest
    _refuse_script(given, bool(positional) or "wrap" in given)
    stdin = None if positional or "wrap" in given else read_stdin()
    script = "" if stdin is None else stdin[:_MOST_BYTES].decode("utf-8", "surrogateescape")
    if positional and positional[0] != ":":
        script = _read_script(positional[0], given.get("chdir"), variables.get("PATH", ""))
    lines = split_words(marked_words(script, "#SBATCH", "#SLURM"), {}, more_options)
    if positional[:1] == (":",) or (lines.rest and lines.rest[0].lower() in ("hetjob", "packjob")):
        raise InputError("heterogeneous jobs cannot be placed by Dally; submit this one with sbatch")
    settings = {option.name: option.value for option in lines.options}
    settings.update(set_by_variables(variables))
    settings.update({name: value for name, value in given.items() if name not in _OWN})
    return Submission(
        words=tuple(word for option in line.options if option.name not in _OWN for word in option.words),
        rest=line.rest,
        settings=settings,
        asked={**_dally_lines(script), **_checked(line, _OWN)},
        stdin=stdin,
        script=given.get("wrap") or script,
    )


def unread_reason(submission: Submission) -> str:
    """Why sbatch reads more of a script than Dally does; empty if it does not.

    On lines of PBS and LSF, wherever they stand, sbatch finds nodes, GPUs and more that win over those of
    `#SBATCH` lines.
    """
    found = None if "ignore-pbs" in submission.settings else _UNREAD.search(submission.script)
    if found is None:
        return ""
    return f"sbatch reads the script's {found[1]} lines, which Dally does not (nor sbatch with --ignore-pbs)"


def fixed_reason(settings: Mapping[str, str | None], partitions: Sequence[str]) -> str:
    """Why the nodes of such a job are not Dally's to choose; empty if they are.

    Dally chooses among the nodes that exclusions, features and partitions leave to a job; what narrows the
    choice otherwise stays with Slurm. job_submit.lua knows the same list.

    Args:
        settings: The options that hold.
        partitions: Dally's partitions.
    """
    without_segment = _OF_SEGMENTS if settings.get("segment") in (None, "0") else ()
    for name in (*_FIXES.split(), *without_segment):
        if name in settings:
            return f"--{name} fixes the placement"
    if settings.get("exclusive") not in (None, "", TOPO):  # with another value it keeps out some others only
        return f"--exclusive={settings['exclusive']} fixes the placement"
    if "/" in (settings.get("nodelist") or ""):
        return "--nodelist names a file"
    try:
        alternatives(settings.get("constraint") or "")
    except InputError as error:
        return str(error)
    whole_nodes = "exclusive" in settings and settings["exclusive"] != TOPO
    if not (asks_for_gpus(settings) or whole_nodes):  # Slurm gives whole nodes with their GPUs
        return "the job asks for no GPUs"
    named = (settings.get("partition") or "").split(",")
    strange = [name for name in named if name and name not in partitions]
    return f"partition {strange[0]} is not Dally's" if strange else ""


def asks_for_gpus(settings: Mapping[str, str | None]) -> bool:
    """Whether these options of sbatch ask for at least one GPU."""
    counts = [settings[name] for name in _GPUS if name in settings]
    tres = ",".join(settings.get(name) or "" for name in ("gres", "tres-per-task")).split(",")
    counts += [part for part in tres if _GPU_TRES.fullmatch(part)]
    return any(not _ZERO.fullmatch(count or "") for count in counts)


def has_even_shares(settings: Mapping[str, str | None]) -> bool:
    """Whether each node gives the job as many GPUs as any other, however many nodes that are.

    Only such a job is started in segments: Slurm divides the GPUs by the segments.
    job_submit.lua knows the same.
    """
    by_node = (settings.get("gres") or "").split(",")
    if "gpus-per-node" in settings or any(map(_GPU_TRES.fullmatch, by_node)):
        return True
    by_task = "gpus-per-task" in settings or "tres-per-task" in settings
    if by_task and "ntasks-per-node" in settings:
        return True
    counted = settings.get("ntasks") if by_task else (settings.get("gpus") or "").rpartition(":")[2]
    nodes = settings.get("nodes") or ""
    whole = [int(text) for text in (counted or "", nodes) if _WHOLE.fullmatch(text)]
    return len(whole) == 2 and whole[1] > 1 and whole[0] % whole[1] == 0


def build_request(submission: Submission, tag: str) -> Request:
    """What the user tells Dally.

    Args:
        submission: The command line.
        tag: A random tag, hexadecimal digits.

    Raises:
        InputError: A value is wrong, or the user's comment looks like a mark of Dally.
    """
    asked = {name: value or "" for name, value in submission.asked.items()}
    if (submission.settings.get("comment") or "").startswith(MARK):
        raise InputError(
            f"the comment begins with {MARK}, which is Dally's own; say it with --model and so on"
        )
    grace = asked.get("checkpoint-grace")
    if grace is not None and "checkpoint-signal" not in asked:
        raise InputError("--checkpoint-grace without --checkpoint-signal; name the signal too, like USR2")
    counts = {name: _count(name, asked[name], least=1) for name in _COUNTS if name in asked}
    if counts.get("min-gpus", 0) > counts.get("max-gpus", sys.maxsize):
        raise InputError(f"--min-gpus={counts['min-gpus']} is more than --max-gpus={counts['max-gpus']}")
    copies = counts.get("copies", 1)
    settings = submission.settings
    if asked.keys() & {"min-gpus", "max-gpus"} and settings.get("segment") not in (None, "0", "1"):
        raise InputError(
            f"--segment={settings['segment']} with a range of GPUs; a job in segments has one size"
        )
    if copies > 1 and settings.get("nodes", "1") not in ("1", "1-1"):
        raise InputError(f"--copies with --nodes={settings['nodes']}; a copy is one node, so say --nodes=1")
    if copies > 1 and not settings.keys() & {"gpus-per-node", "gres"}:
        raise InputError("--copies needs the GPUs of one copy by --gpus-per-node, or by --gres")
    progress = asked.get("progress", "")
    if progress:  # the job finds its file in its own folder
        progress = os.path.normpath(Path.cwd() / (settings.get("chdir") or "") / progress)
    return Request(
        model=asked.get("model", ""),
        plan=asked.get("parallel", "").replace(" ", ""),
        batch=counts.get("global-batch", 0),
        signal=_signal(asked["checkpoint-signal"]) if "checkpoint-signal" in asked else "",
        grace_s=60 if grace is None else _seconds(grace),
        min_gpus=counts.get("min-gpus", 0),
        max_gpus=counts.get("max-gpus", 0),
        max_copies=copies,
        tag=tag,
        held="hold" in settings,
        progress=progress,
        companion_of=asked.get("companion-of", ""),
        nodes=settings.get("nodelist") or "",
        **_switches(settings.get("switches") or ""),
    )


def overlooked(submission: Submission) -> Iterator[str]:
    """A line for each thing in which the user seems to mean an option of Dally, and that is none."""
    lines = submission.script.split("\n")
    for number, line in enumerate(lines[_first_command(lines) :], _first_command(lines) + 1):
        if line.startswith("#DALLY"):
            yield f"note: line {number} of the script counts for nothing: it is a #DALLY line below a command"
    for name in _OFTEN_MISPLACED:
        behind = any(word.partition("=")[0] == f"--{name}" for word in submission.rest[1:])
        if behind and name not in submission.asked:
            yield (
                f"note: --{name} stands behind the script's name, so the script gets it; "
                "Dally's options stand before"
            )
    for name in submission.settings:
        if not is_known(name) and (near := get_close_matches(name, _OWN, n=1, cutoff=0.75)):
            yield f"note: --{name} is not Dally's; did you mean --{near[0]}?"


def learn_folder(submission: Submission) -> Path | None:
    """Where the job's records go; None if it is not to be recorded."""
    folder = submission.asked.get("learn")
    if not folder:
        return None
    return Path.cwd() / (submission.settings.get("chdir") or "") / os.path.expanduser(folder)


def _refuse_script(given: Mapping[str, str | None], has_script: bool) -> None:
    """Refuse a script in the place of a value: its user forgot the value, or the `=`.

    Raises:
        InputError: It is one by its name, in a model's place also where a script is given, or a file in a
            model's place where none is.
    """
    model = given.get("model")
    if model and (model.endswith(_SCRIPTS) or (not has_script and Path(model).is_file())):
        raise InputError(f"--model is {model!r}, which is a script; say --model=NAME, then the script")
    for name in () if has_script else _REQUEST:
        if (value := given.get(name) or "").endswith(_SCRIPTS):
            raise InputError(f"--{name} is {value!r}, which is a script; say --{name}=VALUE, then the script")


def _read_script(name: str, chdir: str | None, path: str) -> str:
    """The script that sbatch would find: in its folder, on the search path, then where the user is.

    Raises:
        InputError: There is none, or it cannot be read.
    """
    folders = [""] if name.startswith((".", "/")) else [chdir or "", *path.split(os.pathsep), ""]
    file = next((Path(folder, name) for folder in folders if Path(folder, name).is_file()), Path(name))
    try:
        with file.open("rb") as opened:
            return opened.read(_MOST_BYTES).decode("utf-8", "surrogateescape")
    except OSError as error:
        raise InputError(f"cannot read the script {name!r}: {error.strerror}") from error


def marked_words(script: str, *marks: str) -> list[str]:
    """The words behind a mark, like `#SBATCH`, of all lines that begin with one up to the first command.

    As in sbatch, no blank need follow the mark.

    Raises:
        InputError: A quote is left open, as sbatch refuses it, too.
    """
    lines = script.split("\n")
    found: list[str] = []
    for line in lines[: _first_command(lines)]:
        if mark := next((mark for mark in marks if line.startswith(mark)), ""):
            found += _words_of_line(line, line[len(mark) :])
    return found


def _first_command(lines: Sequence[str]) -> int:
    """The place of the first command among the lines of a script."""
    commands = (at for at, line in enumerate(lines) if line.strip() and not line.lstrip().startswith("#"))
    return next(commands, len(lines))


def _words_of_line(line: str, options: str) -> list[str]:
    """The words of the options on a line, as sbatch finds them (`get_argument` of its opt.c).

    Quotes keep words together, `#` outside of them begins a comment, and a backslash takes the next character
    as it is, in quotes of either kind, too.
    """
    words, word, quote, is_escaped = list[str](), list[str](), "", False
    for char in options:
        if is_escaped or (quote and char not in (quote, "\\")):
            word.append(char)
            is_escaped = False
        elif char == "\\":
            is_escaped = True
        elif quote:
            quote = ""
        elif char in "\"'":
            quote = char
        elif char == "#":
            break
        elif not char.isspace():
            word.append(char)
        elif word:
            words.append("".join(word))
            word.clear()
    if quote:
        raise InputError(f"the quote {quote} is not closed in {line.strip()[:120]!r}")
    return [*words, "".join(word)] if word else words


def _dally_lines(script: str) -> dict[str, str | None]:
    found = split_words(marked_words(script, "#DALLY"), _REQUEST)
    unknown = [option.name for option in found.options if option.name not in _REQUEST]
    if found.rest or unknown:
        word = found.rest[0] if found.rest else f"--{unknown[0]}"
        raise InputError(f"{word!r} on a #DALLY line; valid: --{', --'.join(_REQUEST)}")
    asked = _checked(found, _REQUEST)
    _refuse_script(asked, has_script=True)
    return asked


def _checked(words: Words, own: Mapping[str, HasArg]) -> dict[str, str | None]:
    """Dally's own among the options."""
    found = {option.name: option.value for option in words.options if option.name in own}
    for name, value in found.items():
        if own[name] is HasArg.REQUIRED and not value:
            raise InputError(f"--{name} needs a value")
        if own[name] is HasArg.NO and value is not None:
            raise InputError(f"--{name} takes no value, got {value!r}")
    return found


def _switches(text: str) -> dict[str, int]:
    """What `--switches=2` or `2@10:00` asks for; a plain number behind the @ counts minutes."""
    if not text:
        return {}
    count, at, wait = text.partition("@")
    wait_s = _seconds(f"{wait}:00" if _WHOLE.fullmatch(wait) else wait, "--switches") if at else SWITCH_WAIT_S
    return {"switches": _count("switches", count), "switch_wait_s": min(wait_s, SWITCH_WAIT_S)}


def _signal(text: str) -> str:
    """A signal's name without SIG, given by name or by number."""
    name = text.upper().removeprefix("SIG")
    if re.fullmatch("[1-9][0-9]?", name, re.ASCII):
        return next((known for known in SIGNALS if signal.Signals[f"SIG{known}"] == int(name)), text)
    return name


def _seconds(text: str, what: str = "checkpoint grace") -> int:
    """Seconds in `90`, `1:30`, `0:01:30` or `0-0:01:30`; a plain number counts seconds."""
    match = _TIME.fullmatch(text)
    if match is None:
        raise InputError(f"{what} is {text!r}, must be seconds, MM:SS, HH:MM:SS or D-HH[:MM[:SS]]")
    days, clock = match.groups()
    fields = [int(field) for field in clock.split(":")]
    if days is not None:
        fields = [int(days) * 24 + fields[0], *fields[1:], 0, 0][:3]
    seconds = 0
    for field in fields:
        seconds = seconds * 60 + field
    return seconds


def _count(name: str, text: str, least: int = 0) -> int:
    if not _WHOLE.fullmatch(text) or int(text) < least:
        raise InputError(
            f"--{name} is {text!r}, must be a whole number{f', at least {least}' if least else ''}"
        )
    return int(text)
