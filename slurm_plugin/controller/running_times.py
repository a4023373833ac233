"""What the controller goes by of running times, in one line for people."""

import time
from collections.abc import Mapping
from typing import Any

from dally.jobs.knowledge import Knowledge
from dally.scheduling.belief_choice import FEWEST_JOBS
from dally.words import plural, share


def in_words(said: Mapping[str, Any]) -> str:
    """Which knowledge is in use, since when, on how many ended jobs, and how true each side was."""
    used, ended = said["knowledge"], plural(said["ended"], "ended job")
    if said["configured"] != Knowledge.AUTO:
        return f"{used}, as dally.toml says" + ("" if used == Knowledge.NONE else f"; {ended}")
    if said["ended"] < FEWEST_JOBS:
        return f"{used}, until {FEWEST_JOBS} jobs have ended; {said['ended']} so far"
    began_s = said["since_s"]
    since = "from the beginning"
    if began_s is not None:
        since = time.strftime("since %b %d %H:%M", time.localtime(began_s))
    right = {side: share(part) for side, part in said["right"].items()}
    return (
        f"{used} {since}, on {ended}: of two jobs, limits told the longer one in {right[Knowledge.LIMITS]} "
        f"of the pairs (jobs took {share(said['limit_used'])} of theirs in the median), history in "
        f"{right[Knowledge.HISTORY]}"
    )
