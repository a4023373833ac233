"""Step times out of what a training prints: by a pattern, by JSON lines, or by what is commonly printed."""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import inf, isfinite

from dally.errors import InputError

_NUMBER = r"\d+(?:\.\d*)?(?:[eE][-+]?\d+)?"
_UNITS = {"seconds": 1.0, "ms": 1e-3}
_GROUPS = (*_UNITS, "rate", "step")

JSON_LINES = "jsonl"
"""The name of the form `{"step": 7, "seconds": 0.52}`, a line each; one of the two is enough."""


@dataclass(frozen=True, slots=True)
class StepPattern:
    """How a line tells a step.

    Attributes:
        name: What messages call it.
        regex: With groups `seconds` or `ms`, of a step; or `rate`, steps in a second; or `step`, its number
            alone, whose time is then that between two lines. None for JSON lines.
    """

    name: str
    regex: re.Pattern[str] | None

    def find(self, line: str) -> dict[str, str] | None:
        """What a line says by this pattern; None if it is none of its lines."""
        if self.regex is None:
            return _find_json(line)
        found = self.regex.search(line)
        if not found:
            return None
        named = {name: text for name, text in found.groupdict().items() if text is not None}
        return named or ({"seconds": found[1]} if found[1] is not None else None)


def parse_steps_from(text: str) -> tuple[StepPattern, ...]:
    """What the user says of how to find step times; all that is commonly printed for an empty text.

    Raises:
        InputError: It is no regular expression, or has no group for a step time.
    """
    if not text:
        return COMMON
    if text == JSON_LINES:
        return (StepPattern(JSON_LINES, None),)
    try:
        regex = re.compile(text)
    except re.error as error:
        raise InputError(f"--steps-from {text!r} is no regular expression: {error}") from error
    if not regex.groups or not set(regex.groupindex) <= set(_GROUPS):
        raise InputError(
            f"--steps-from {text!r} must have a group of the seconds of a step, such as time ([\\d.]+), "
            f"or groups named {', '.join(_GROUPS)}"
        )
    return (StepPattern(text, regex),)


def _common(name: str, regex: str) -> StepPattern:
    return StepPattern(name, re.compile(regex.replace("NUMBER", _NUMBER)))


COMMON = (
    StepPattern(JSON_LINES, None),
    _common("Megatron", r"elapsed time per iteration \(ms\): *(?P<ms>NUMBER)"),
    _common("DeepSpeed", r"iter time \(s\): *(?P<seconds>NUMBER)"),
    _common("NeMo", r"train_step_timing in s[=:] *(?P<seconds>NUMBER)"),
    _common("MaxText", r"completed step: (?P<step>\d+), seconds: (?P<seconds>NUMBER)"),
    _common("torchvision", r"\bTime:?[ \t]+(?P<seconds>NUMBER)s? *\( *NUMBER"),
    _common("MMEngine", r"\btime: (?P<seconds>NUMBER) +data_time:"),
    _common("step time in ms", r"(?i)\b(?:step|iter(?:ation)?)[ _]?time\b[^\d]{0,6}(?P<ms>NUMBER) ?ms\b"),
    _common(
        "step time",
        r"(?i)\b(?:step|iter(?:ation)?)[ _]?time\b[^\d]{0,6}(?P<seconds>NUMBER)(?:s\b|\b(?! ?ms))",
    ),
    _common(
        "step ... time in ms", r"(?i)\b(?:step|iter).*(?<!elapsed )(?<!total )\btime:? *(?P<ms>NUMBER) ?ms\b"
    ),
    _common("ms/step", r"(?P<ms>NUMBER) ?ms/(?:step|iter|it)\b"),
    _common("number of the step", r"(?i)\b(?:step|iter(?:ation)?)s?\b[\s:=\[#]*(?P<step>\d+)"),
    _common(
        "progress bar", r"(?P<seconds>NUMBER) ?s/(?:it|step|batch)\b|(?P<rate>NUMBER) ?(?:it|step|batch)/s\b"
    ),
)
"""What is commonly printed, the surest first. A number alone: its time is that between two lines."""


@dataclass(slots=True)
class StepLog:
    """The step times in the lines of one run.

    Attributes:
        pattern: How lines tell them.
        seconds: Of each step told so far.
    """

    pattern: StepPattern
    seconds: list[float] = field(default_factory=list)
    _last: tuple[int, float] | None = None

    def read(self, line: str, now_s: float) -> None:
        """Take in a line that came at this time, seconds; if several ranks tell a step, the first counts.

        Raises:
            InputError: What should be a number is none.
        """
        said = self.pattern.find(line)
        if said is None:
            return
        between_s = None
        if "step" in said:
            number = int(_number(said["step"], line))
            last, self._last = self._last, (number, now_s)
            if last is not None and last[0] // 2 <= number <= last[0]:  # less is a new epoch
                self._last = last
                return
            if last is not None and number > last[0]:
                between_s = (now_s - last[1]) / (number - last[0])
        for group, factor in _UNITS.items():
            if group in said:
                between_s = _number(said[group], line) * factor
        if "rate" in said:
            rate = _number(said["rate"], line)
            between_s = 1 / rate if rate else None
        if between_s:
            self.seconds.append(between_s)


def best_log(logs: Sequence[StepLog], least: int) -> StepLog | None:
    """The first that has so many step times; None if none has."""
    return next((log for log in logs if len(log.seconds) >= least), None)


def _find_json(line: str) -> dict[str, str] | None:
    line = line.strip()
    if not line.startswith("{"):
        return None
    try:
        data = json.loads(line)
    except (ValueError, RecursionError):
        return None
    said = {name: str(data[name]) for name in ("step", "seconds") if _is_number(data.get(name))}
    return said or None


def _is_number(value: object) -> bool:
    """Whether a JSON value can be a step or its seconds; lines in which it is something else are not ours."""
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < inf


def _number(text: str, line: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not (isfinite(number) and number >= 0):
        raise InputError(f"step time {text!r} is no number of 0 or more, in the line {line.strip()[:100]!r}")
    return number
