"""Tells what Slurm printed from what others wrote into it.

Users, coordinators and operators name and describe things, and Slurm prints their words as they are, with
line ends and separators. So a word may look like another field, another row or somebody else's job. Before
each time Slurm prints a text of ours, the key. It takes it from the environment, which nobody else can read;
each command gets another one. A table without times is believed if its rows are those of their numbers.
"""

import secrets
from collections import Counter

from slurm_plugin.client.slurm import SlurmUnavailableError


def new_key() -> str:
    """What nobody can guess, in letters, digits, - and _; with a time behind it, sacct has room for it."""
    return secrets.token_urlsafe(6)


def time_format(key: str) -> str:
    """The value of SLURM_TIME_FORMAT: times are seconds since 1970, with the key before them."""
    return f"{key}%s"


def genuine_records(text: str, key: str, name_key: str, all_timed: bool = False) -> str:
    """The records, a line each, that `scontrol --oneliner show` printed, without the key.

    Args:
        text: What it printed, with times of the key.
        key: The key.
        name_key: What each record begins with, like `NodeName`.
        all_timed: Each record has a time. Else one without counts where no other line is about its name: a
            node has none before it has booted.
    """
    lines = [line for line in text.split("\n") if line.startswith(f"{name_key}=")]
    names = Counter(line.partition(" ")[0] for line in lines)
    kept = (
        line for line in lines if f"={key}" in line or (not all_timed and names[line.partition(" ")[0]] == 1)
    )
    return "".join(f"{line}\n" for line in kept).replace(key, "")


def genuine_rows(numbers: str, rows: str) -> str:
    """The rows of a table of sacctmgr or sshare, without the number that each begins with.

    Args:
        numbers: The numbers, as the same command printed them alone.
        rows: What it printed with `ID` as the first column.

    Raises:
        SlurmUnavailableError: They are not the rows of these numbers, most likely for a line end in a name.
    """
    pairs = [row.partition("|") for row in rows.strip("\n").split("\n")]
    found = [number.strip() for number, _, _ in pairs]
    if found != (known := numbers.split() or [""]):
        at = next((n for n, (a, b) in enumerate(zip(found, known, strict=False)) if a != b), 0)
        raise SlurmUnavailableError(
            f"row {at + 1} of {len(known)} has another number than {known[at : at + 1]}: {pairs[at]!r:.80}; "
            "the name before it may hold a line end"
        )
    return "".join(f"{values}\n" for _, _, values in pairs)
