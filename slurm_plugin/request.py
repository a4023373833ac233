"""What a user tells Dally about a job, in the job's comment: `dally:model=vgg11&signal=USR2 my words`."""

import re
from dataclasses import asdict, dataclass, fields, replace
from typing import Any
from urllib.parse import parse_qsl, urlencode

from dally.errors import InputError

MARK = "dally:"
"""What the comment of a job that waits for Dally begins with; our part ends at the first blank."""

PLAIN = f"{MARK}plain=1"
"""The mark of a job that goes past Dally, as no controller answered; job_submit.lua takes it away."""

TRIAL = "trial=1"
"""In the mark of the job on which `dally slurm doctor` tries orders: the controller leaves it alone."""

SIGNALS = ("USR1", "USR2", "TERM", "INT", "HUP", "QUIT", "ALRM", "URG", "CONT")
"""Signals that ask a job for a checkpoint: a program can catch them, and Slurm knows them by name.

KILL, STOP and the like are left out: with them Dally would order something else than a checkpoint.
job_submit.lua has the same list.
"""

SWITCH_WAIT_S = 300
"""How long a job insists on its `--switches` without a time; Slurm's default, and the longest, too."""

_MODEL = re.compile(r"[\w.:+=,-]{1,256}", re.ASCII)
_PLAN = re.compile(r"[a-z0-9=,-]{1,256}")
_SIGNAL = re.compile("|".join(SIGNALS))
_TAG = re.compile(r"[0-9a-f]{1,32}")
_FILE = re.compile(r"/[^\x00-\x1f\x7f\ud800-\udfff]{1,511}")
_NODES = re.compile(r"[\w.,\[\]-]{1,1024}", re.ASCII)
_NUMBER = re.compile("[0-9]{1,10}", re.ASCII)
_MOST_GPUS = 1_000_000
_MOST_COPIES = 1_000
_LONGEST_GRACE_S = 86_400
_LARGEST_BATCH = 999_999_999


@dataclass(frozen=True, slots=True)
class Request:
    """What `dally-sbatch` knows of a job beyond what it tells Slurm.

    Attributes:
        model: Name of the model it trains, a key of the profiles or a transformer's, or that one spelled out;
            empty if unknown.
        signal: Signal on which it writes a checkpoint, like USR2; empty: it has none and is not preempted.
        grace_s: Longest time that the checkpoint takes, whole seconds.
        min_gpus: Fewest GPUs it can run on; 0 for exactly what it asks for.
        max_gpus: Most GPUs it can use; 0 for exactly what it asks for.
        max_copies: Most copies of it that may train side by side, each on a node with what it asks for.
        tag: Drawn at submission; with the number and the time it tells jobs apart that got the same number.
        held: Its user holds it; Dally leaves it alone until he releases it.
        progress: File in which it reports how far it is, %j for its number (`dally.progress`); empty: none.
        nodes: The nodes that it must have, as its `--nodelist` says; empty: any.
        switches: Most leaf switches that it accepts, by its `--switches`; 0: any number.
        switch_wait_s: How long it insists on that, whole seconds.
        companion_of: Number of the elastic job of the same user that its ranks join; empty: none.
        plan: How it trains, as `TrainingPlan.parse` reads it, perhaps without dp; empty if unknown.
        batch: Sequences of a step of its plan, on all its GPUs; 0 if unknown.

    Raises:
        InputError: A value is out of range; the message names the field and what is valid.
    """

    model: str = ""
    signal: str = ""
    grace_s: int = 60
    min_gpus: int = 0
    max_gpus: int = 0
    max_copies: int = 1
    tag: str = ""
    held: bool = False
    progress: str = ""
    companion_of: str = ""
    nodes: str = ""
    switches: int = 0
    switch_wait_s: int = SWITCH_WAIT_S
    plan: str = ""
    batch: int = 0

    def __post_init__(self) -> None:
        _check("model", self.model, _MODEL, "letters, digits and . : _ + - = , (at most 256)")
        _check("plan", self.plan, _PLAN, "like tp=8,pp=4,sequence=8192 (at most 256 bytes)")
        _check("checkpoint signal", self.signal, _SIGNAL, f"one of {', '.join(SIGNALS)}")
        _check("tag", self.tag, _TAG, "hexadecimal digits")
        _check(
            "progress file", self.progress, _FILE, "a path that begins with /, in UTF-8 (at most 512 bytes)"
        )
        _check("companion-of", self.companion_of, _NUMBER, "the number of a job")
        _check("nodelist", self.nodes, _NODES, "names of nodes (at most 1024 bytes)")
        if self.companion_of and not self.signal:
            raise InputError("a companion needs a checkpoint signal, on which it leaves its job")
        if not 0 <= self.grace_s <= _LONGEST_GRACE_S:
            raise InputError(f"checkpoint grace is {self.grace_s} s, must be 0 to {_LONGEST_GRACE_S}")
        for name, gpus in (("min_gpus", self.min_gpus), ("max_gpus", self.max_gpus)):
            if not 0 <= gpus <= _MOST_GPUS:
                raise InputError(f"{name} is {gpus}, must be 0 to {_MOST_GPUS}")
        if self.min_gpus and self.max_gpus and self.min_gpus > self.max_gpus:
            raise InputError(f"min_gpus {self.min_gpus} is more than max_gpus {self.max_gpus}")
        if not 1 <= self.max_copies <= _MOST_COPIES:
            raise InputError(f"max_copies is {self.max_copies}, must be 1 to {_MOST_COPIES}")
        if not 0 <= self.batch <= _LARGEST_BATCH:
            raise InputError(f"batch is {self.batch}, must be 0 to {_LARGEST_BATCH}")
        if not 0 <= self.switch_wait_s <= SWITCH_WAIT_S:
            raise InputError(f"switch_wait_s is {self.switch_wait_s}, must be 0 to {SWITCH_WAIT_S}")
        if self.max_copies > 1 and (self.min_gpus or self.max_gpus):
            raise InputError("a job has copies or a range of GPUs, not both")


def _check(name: str, value: str, valid: re.Pattern[str], words: str) -> None:
    if value and not valid.fullmatch(value):
        raise InputError(f"{name} is {value!r}, must be {words}")


def encode(request: Request, comment: str = "") -> str:
    """The comment that carries a request, followed by the user's own."""
    said = {name: value for name, value in asdict(request).items() if value != _DEFAULTS[name]}
    said.update({name: int(said[name]) for name in _YES_OR_NO & said.keys()})
    return f"{MARK}{urlencode(said)} {comment}".rstrip()


def decode(comment: str) -> Request | None:
    """The request in a comment; None if it carries none.

    Fields that are unknown are passed over, so that an older controller reads what a newer wrapper wrote.

    Raises:
        InputError: A field is wrong: somebody wrote the comment by hand.
    """
    if not comment.startswith(MARK):
        return None
    said = dict(parse_qsl(comment[len(MARK) :].split(" ", 1)[0]))
    if "1" in (said.get("plain"), said.get("trial")):
        return None
    values: dict[str, Any] = {name: value for name, value in said.items() if name in _DEFAULTS}
    for name in _WHOLE & values.keys():
        if not re.fullmatch("[0-9]{1,9}", values[name], re.ASCII):
            raise InputError(f"{name} is {values[name]!r}, must be a whole number")
        values[name] = int(values[name])
    for name in _YES_OR_NO & values.keys():
        if values[name] not in ("0", "1"):
            raise InputError(f"{name} is {values[name]!r}, must be 0 or 1")
        values[name] = values[name] == "1"
    return Request(**values)


def decode_job(comment: str, admin_comment: str) -> Request | None:
    """The request of a job in the queue; None if it is none of Dally's.

    job_submit.lua moves the mark into the admin comment, which users cannot write, and leaves in the comment
    only whether the user holds the job. Without it the comment says everything.

    Raises:
        InputError: A field is wrong: somebody wrote the comment by hand.
    """
    request = decode(admin_comment)
    if request is None:
        return None if admin_comment.startswith(MARK) else decode(comment)
    return replace(request, held=f"{comment} ".startswith(f"{MARK}held=1 "))


_DEFAULTS: dict[str, object] = {field.name: field.default for field in fields(Request)}
_WHOLE = {"grace_s", "min_gpus", "max_gpus", "max_copies", "switches", "switch_wait_s", "batch"}
_YES_OR_NO = {"held"}
