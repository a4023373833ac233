"""Sbatch's options: their names and letters, which take a value, which variables set them.

Collected from sbatch 22.05 itself and from the manual pages up to 25.11.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum


class HasArg(Enum):
    """Whether an option has an argument, as getopt_long says it; an optional one is in the same word."""

    NO = "no"
    REQUIRED = "required"
    OPTIONAL = "optional"


@dataclass(frozen=True, slots=True)
class Option:
    """One option as given: its full name without dashes, its value if it has one, and its words."""

    name: str
    value: str | None
    words: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Words:
    """A command line taken apart: the options, and from the first other word on the rest (`--` included)."""

    options: tuple[Option, ...]
    rest: tuple[str, ...]


MoreOptions = Callable[[], Mapping[str, HasArg]]
"""Returns further options, such as those of a site's SPANK plugins."""

_VALUE = """
    account acctg-freq array batch bb bbf begin chdir cluster cluster-constraint clusters comment constraint
    container context core-spec cores-per-socket cpu-freq cpus-per-gpu cpus-per-task deadline delay-boot
    dependency distribution error exclude export export-file extra-node-info gid gpu-bind gpu-freq gpus
    gpus-per-node gpus-per-socket gpus-per-task gres gres-flags hint input job-name kill-on-invalid-dep
    licenses mail-type mail-user mcs-label mem mem-bind mem-per-cpu mem-per-gpu mincpus network nodefile
    nodelist nodes ntasks ntasks-per-core ntasks-per-gpu ntasks-per-node ntasks-per-socket ntasks-per-tres
    open-mode output partition power prefer priority profile qos reservation signal sockets-per-node switches
    tasks-per-node thread-spec threads-per-core time time-min tmp uid wait-all-nodes wckey wrap
"""
_NOTHING = """
    contiguous help hold ignore-pbs no-requeue overcommit oversubscribe parsable quiet reboot requeue
    spread-job test-only usage use-min-nodes verbose version wait
"""
_PERHAPS = "exclusive get-user-env nice no-kill propagate"
_NEW_VALUE = "container-id extra resources segment tres-bind tres-per-task"
_NEW_NOTHING = "consolidate-segments external spread-segments stepmgr"
_NEW_PERHAPS = "oom-kill-step resv-ports"
_KNOWN = {
    **dict.fromkeys(_VALUE.split(), HasArg.REQUIRED),
    **dict.fromkeys(_NOTHING.split(), HasArg.NO),
    **dict.fromkeys(_PERHAPS.split(), HasArg.OPTIONAL),
    **dict.fromkeys(_NEW_VALUE.split(), HasArg.REQUIRED),
    **dict.fromkeys(_NEW_NOTHING.split(), HasArg.NO),
    **dict.fromkeys(_NEW_PERHAPS.split(), HasArg.OPTIONAL),
}
"""All options; those newer than 22.05 come last, so what abbreviates one of 22.05 keeps its meaning."""

_SAME = {"cluster": "clusters", "tasks-per-node": "ntasks-per-node"}
"""Second names of options, with the first."""

_LETTERS = {
    **{"a": "array", "b": "begin", "c": "cpus-per-task", "d": "dependency", "e": "error", "h": "help"},
    **{"i": "input", "k": "no-kill", "m": "distribution", "n": "ntasks", "o": "output", "p": "partition"},
    **{"q": "qos", "s": "oversubscribe", "t": "time", "v": "verbose", "w": "nodelist", "x": "exclude"},
    **{"A": "account", "B": "extra-node-info", "C": "constraint", "D": "chdir", "F": "nodefile", "G": "gpus"},
    **{"H": "hold", "J": "job-name", "L": "licenses", "M": "clusters", "N": "nodes", "O": "overcommit"},
    **{"Q": "quiet", "S": "core-spec", "V": "version", "W": "wait"},
}

_SET_BY_VARIABLE = """
    batch cluster-constraint clusters constraint exclusive gpus gpus-per-node gpus-per-socket gpus-per-task
    gres ignore-pbs no-requeue partition requeue reservation spread-job tres-per-task
"""
_VARIABLES = {
    **{f"SBATCH_{name.upper().replace('-', '_')}": name for name in _SET_BY_VARIABLE.split()},
    **{"SLURM_CLUSTERS": "clusters", "SBATCH_REQ_SWITCH": "switches", "SBATCH_SEGMENT_SIZE": "segment"},
}
"""Variables that set an option which matters here; sbatch reads no variable for the others of them."""


def split_words(words: Sequence[str], own: Mapping[str, HasArg], more_options: MoreOptions = dict) -> Words:
    """Take a command line apart as getopt does: options up to the first word that is none.

    Args:
        words: The arguments.
        own: Options beyond sbatch's; they cannot be abbreviated.
        more_options: Asked once, when an option is known neither here nor there.
    """
    found: list[Option] = []
    at = 0
    more: Mapping[str, HasArg] | None = None
    while at < len(words) and (word := words[at]) not in ("-", "--") and word.startswith("-"):
        following = words[at + 1 : at + 2]
        if word.startswith("--"):
            name, equals, value = word[2:].partition("=")
            is_known = name in own or any(known.startswith(name) for known in _KNOWN)
            if more is None and not is_known:
                more = more_options()
            name, has_arg = _full_name(name, {**own, **(more or {})})
            read = [Option(name, value if equals else None, (word,))]
            if has_arg is HasArg.REQUIRED and not equals and following:
                read = [Option(name, following[0], (word, following[0]))]
        else:
            read = _letters(word[1:], following)
        found += read
        at += sum(len(option.words) for option in read)
    return Words(tuple(found), tuple(words[at:]))


def is_known(name: str) -> bool:
    """Whether an option with this full name is sbatch's own, of no plugin."""
    return name in _KNOWN


def set_by_variables(variables: Mapping[str, str]) -> dict[str, str | None]:
    """The options that environment variables set, as far as they matter here."""
    return {
        name: variables[variable]
        for variable, name in _VARIABLES.items()
        if variable in variables
        # A variable sets an option without a value if it is empty, `yes` or a number other than zero.
        and (
            _KNOWN[name] is not HasArg.NO
            or variables[variable] in ("", "yes")
            or (variables[variable].isdigit() and int(variables[variable]) != 0)
        )
    }


def _letters(letters: str, following: Sequence[str]) -> list[Option]:
    """The options in one word behind a single dash; only the first of them has words, all of them."""
    found: list[Option] = []
    words = [f"-{letters}"]
    for place, letter in enumerate(letters):
        name = _LETTERS.get(letter, letter)
        has_arg = _KNOWN.get(name, HasArg.NO)
        if has_arg is HasArg.NO:
            found.append(Option(name, None, ()))
            continue
        value = letters[place + 1 :] or None
        if value is None and has_arg is HasArg.REQUIRED:
            words += following
            value = following[0] if following else None
        found.append(Option(name, value, ()))
        break
    return [Option(found[0].name, found[0].value, tuple(words)), *found[1:]]


def _full_name(name: str, own: Mapping[str, HasArg]) -> tuple[str, HasArg]:
    """The option that a long name or its abbreviation means; sbatch itself refuses an ambiguous one."""
    if name in own:
        return name, own[name]
    full = name if name in _KNOWN else next((known for known in _KNOWN if known.startswith(name)), name)
    return _SAME.get(full, full), _KNOWN.get(full, HasArg.NO)
