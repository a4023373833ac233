"""The site's configuration, dally.toml: one file for the controller, the wrapper and the commands."""

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_type_hints

from dally.bounds import check_number
from dally.config_text import naming, parse_toml, read_text
from dally.errors import InputError
from dally.extensions import SLURM_BACKENDS, extension_names
from dally.jobs.knowledge import Knowledge
from dally.jobs.priority import DEFAULT_RATIO, check_ratio

VARIABLE = "DALLY_CONFIG"
DEFAULT_PATH = Path("/etc/dally/dally.toml")

_URL = re.compile(r"http://[\w.:\[\]-]+/?", re.ASCII)
_USER = re.compile(r"[\w.@-]{1,64}", re.ASCII)
_MOST_ASSUMED = 10
_CHOICES: dict[str, tuple[str, ...]] = {
    "knowledge": (Knowledge.AUTO, Knowledge.LIMITS, Knowledge.HISTORY, Knowledge.NONE),
    "batch_split": ("even", "proportional"),
    "step_times": ("learn", "ignore"),
    "backend": ("command-line", "pyslurm", "auto"),
    "fallback": ("plain", "refuse"),
}


@dataclass(frozen=True, slots=True)
class Config:
    """Settings of a site.

    Attributes:
        partitions: Slurm partitions whose GPU jobs Dally schedules, over the same or different nodes.
        cluster: Cluster file or the folder of slurm.conf, which gives the tree of switches and its links.
        profiles: Folder of profiles or name of a shipped set; empty: no model has one.
        assumed_slowdown: How many times slower a gang without a profile is taken to get with each level at
            which its placement is farther apart than it need be; 1: distance costs it nothing.
        policy: Policy and knobs, as `dally policies` lists them.
        knowledge: What policies go by of running times: `limits`, `history`, `none`, or `auto` for limits or
            history, whichever told truer so far of the jobs that ended.
        priority_ratio: Jobs of at least this part of a job's priority in Slurm may overtake it; 0: all may.
        batch_split: How gangs over several GPU types split their batch: `even`, or `proportional` to speed.
        step_times: Whether step times of running jobs correct what distance is believed to cost: `learn` or
            `ignore`.
        state_dir: Folder of the journal; the controller's alone, kept over restarts.
        backend: How Slurm is reached: `command-line`, `pyslurm`, `auto`, which is the command line, or the
            name of another package's backend (docs/extending.md).
        poll_s: Longest time between two looks at Slurm, seconds.
        start_timeout_s: A released job that does not start within this goes back to waiting, seconds.
        backoff_s: How long such a job is left out at most; doubles each time up to an hour.
        restart_gap_s: A job does not go back to nodes that it left less than this ago, seconds: Slurm might
            still clean up there, and revoke its credential.
        max_requeues: A job requeued this often is not preempted any more.
        longest_grace_s: Longest checkpoint grace that users get, seconds.
        fallback: What `dally-sbatch` does when no controller answers: `plain` (a Slurm job) or `refuse`.
        listen: Where the controller tells about itself, `host:port`; empty: nowhere.
        url: Where `dally-sbatch` and the commands ask it, like `http://head:9341`; empty: they do not.
        user: The user that the controller runs as, or its number: only its answers are believed.
        learn: Folder for records of what the ranks of every job send (`dally-sbatch --learn`), with one for
            each user, or to which all may write. Empty: only jobs that ask for it are recorded.
        record: File to which every fact and decision goes, for `dally replay`; empty: they are not recorded.
    """

    partitions: tuple[str, ...]
    cluster: str = "/etc/slurm"
    profiles: str = ""
    assumed_slowdown: float = 1.25
    policy: str = "srsf-delay"
    knowledge: str = "auto"
    priority_ratio: float = DEFAULT_RATIO
    batch_split: str = "even"
    step_times: str = "learn"
    state_dir: str = "/var/lib/dally"
    backend: str = "command-line"
    poll_s: float = 2.0
    start_timeout_s: float = 20.0
    backoff_s: float = 60.0
    restart_gap_s: float = 3.0
    max_requeues: int = 20
    longest_grace_s: int = 600
    fallback: str = "plain"
    listen: str = "127.0.0.1:9341"
    url: str = "http://127.0.0.1:9341"
    user: str = "dally"
    learn: str = ""
    record: str = ""

    def __post_init__(self) -> None:
        if not self.partitions:
            raise InputError("partitions is empty; name the partitions whose jobs Dally schedules")
        for name in ("poll_s", "start_timeout_s", "backoff_s"):
            check_number(name, getattr(self, name))
        for name in ("max_requeues", "longest_grace_s", "restart_gap_s"):
            if getattr(self, name) < 0:
                raise InputError(f"{name} is {getattr(self, name)}, must be 0 or more")
        for name, choices in _CHOICES.items():
            if name == "backend" and self.backend not in choices:
                choices = (*choices, *extension_names(SLURM_BACKENDS))
            if getattr(self, name) not in choices:
                valid = f"{', '.join(choices[:-1])} or {choices[-1]}"
                raise InputError(f"{name} is {getattr(self, name)!r}, must be {valid}")
        check_ratio(self.priority_ratio)
        if not 1 <= self.assumed_slowdown <= _MOST_ASSUMED:
            valid = f"1 (none) to {_MOST_ASSUMED}, like 1.25"
            raise InputError(f"assumed_slowdown is {self.assumed_slowdown:g}, must be {valid}")
        for name in ("learn", "record"):
            if (path := getattr(self, name)) and not Path(path).is_absolute():
                raise InputError(f"{name} is {path!r}, must be a path that begins with /")
        if not _USER.fullmatch(self.user):
            raise InputError(f"user is {self.user!r}, must be the name or the number of a user, like dally")
        if self.url and not _URL.fullmatch(self.url):
            raise InputError(f"url is {self.url!r}, must be like http://head:9341")


def config_path(path: Path | None = None) -> Path:
    """The file to read: the one given, else `$DALLY_CONFIG`, else /etc/dally/dally.toml."""
    return path or Path(os.environ.get(VARIABLE) or DEFAULT_PATH)


def load_config(path: Path | None = None) -> Config:
    """Read the configuration.

    Raises:
        InputError: It cannot be read, a key is unknown or a value wrong; the message names file and key.
    """
    path = config_path(path)
    with naming("cannot read the configuration"):
        text = read_text(path)
    with naming(path):
        return parse_config(parse_toml(text))


def parse_config(table: dict[str, Any]) -> Config:
    """The configuration in a TOML table.

    Raises:
        InputError: A key is unknown or missing, or its value is wrong.
    """
    kinds = get_type_hints(Config)
    for key in table:
        if key not in kinds:
            raise InputError(f"unknown key {key!r}; valid: {', '.join(kinds)}")
    if "partitions" not in table:
        raise InputError("partitions is missing; name the partitions whose jobs Dally schedules")
    values: dict[str, Any] = {}
    for key, kind in kinds.items():
        if key not in table:
            continue
        value = table[key]
        if key == "partitions":
            if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
                raise InputError(f"{key} is {value!r}, must be a list of names")
            values[key] = tuple(value)
        elif isinstance(value, bool) or not isinstance(value, (int, float) if kind is float else kind):
            raise InputError(f"{key} is {value!r}, must be a {_WORDS[kind]}")
        else:
            values[key] = kind(value)
    return Config(**values)


_WORDS = {str: "text", int: "whole number", float: "number"}
