"""Times, shares and differences as people read them, and others' words as a terminal may have them."""

from itertools import pairwise
from math import floor, inf

DAY_S = 86_400

_SCREENFUL = 1_200
"""Characters: fifteen lines of eighty."""

_UNITS = ((DAY_S, "d"), (3600, "h"), (60, "min"), (1, "s"))


def duration(seconds: float) -> str:
    """A duration: 42 s, 5.3 min, 7.1 h, 12.5 d."""
    if abs(seconds) < 0.1:
        return "0 s"
    for size, unit, until_s in ((1, "s", 100), (60, "min", 6000), (3600, "h", 100 * 3600)):
        if abs(seconds) < until_s:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds / DAY_S:.3g} d" if abs(seconds) < 1000 * DAY_S else f"{seconds / DAY_S:,.0f} d"


def span(seconds: float) -> str:
    """A duration in a sentence, to two units: 0.4 s, 42 s, 1 min 40 s, 2 h 10 min, 3 d 4 h."""
    if seconds == inf:
        return "an unlimited time"
    whole = max(0, round(seconds))
    if whole < 60:
        return f"{seconds:.1f} s" if 0.05 <= seconds < 0.95 else f"{whole} s"
    for (size, unit), (next_size, next_unit) in pairwise(_UNITS):
        if whole >= size:
            rest, count = round(whole % size / next_size), whole // size
            if rest * next_size == size:
                rest, count = 0, count + 1
            return f"{count:,} {unit}" + (f" {rest} {next_unit}" if rest else "")
    raise AssertionError("a minute or more")


def gpu_time(seconds: float) -> str:
    """Service in GPU-seconds or more: 30 GPU-seconds, 2.5 GPU-hours."""
    return f"{seconds / 3600:.3g} GPU-hours" if seconds >= 600 else plural(round(seconds), "GPU-second")


def are(count: int) -> str:
    """A count and its verb: 1 is, 2 are."""
    return f"{count:,} {'is' if count == 1 else 'are'}"


def moment(t: float) -> str:
    """A time of a run, which begins at 0: 03:25:11, or 2 d 03:25:11."""
    days, rest_s = divmod(floor(abs(t)), DAY_S)
    clock = f"{rest_s // 3600:02}:{rest_s // 60 % 60:02}:{rest_s % 60:02}"
    return ("-" if t <= -1 else "") + (f"{days:,} d {clock}" if days else clock)


def change(value: float, base: float) -> str:
    """How far a value lies from another: +12 %, -3 %, or 15 x from tenfold on."""
    if base == 0:
        return "" if value == 0 else "new"
    ratio = value / base
    if ratio >= 10:
        return f"{ratio:.0f} x"
    points = round(100 * (ratio - 1))
    return f"{points:+} %" if points else "±0 %"


def share(part: float, digits: int = 0) -> str:
    """A share in percent: 61 %, or 61.3 % with one digit."""
    return f"{100 * part:.{digits}f} %"


def plural(count: int, noun: str) -> str:
    """A count with its noun: 1 job, 12 jobs."""
    return f"{count:,} {noun}{'s' * (count != 1)}"


def clean(text: str) -> str:
    """A text in one line that a terminal takes as text: users, files and Slurm wrote parts of it."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else " " if char.isspace() else "?" for char in text)


def cut(text: str) -> str:
    """A text of a screenful at most."""
    return text if len(text) <= _SCREENFUL else f"{text[:_SCREENFUL]}..."
