"""Carries checks out one after another, each within its time and all within theirs."""

import importlib.util
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from profiler.gpu_validation.commands import StepError
from profiler.gpu_validation.outcome import GpuCheckResult, Status

_LEAST_S = 10.0
"""With less time left than this, a check is not begun."""


@dataclass(frozen=True, slots=True)
class CheckFolder:
    """Where a check works, and for how long.

    Attributes:
        folder: Of all findings.
        limit_s: How long it may take.
    """

    folder: Path
    limit_s: float

    def log(self, name: str) -> Path:
        """Where a command writes."""
        return self.folder / "logs" / f"{name}.log"


@dataclass(frozen=True, slots=True)
class GpuCheck:
    """One check.

    Attributes:
        name: What it is called.
        limit_s: Longest time it may take, seconds.
        carry_out: Does it; gives what it found in one line, and raises StepError where that is wrong.
        modules: Python modules it needs, with the packages that have them.
        programs: Programs it needs, with the packages that have them.
        after: Checks that must have passed before.
    """

    name: str
    limit_s: float
    carry_out: Callable[[CheckFolder], str]
    modules: Mapping[str, str]
    programs: Mapping[str, str]
    after: Sequence[str] = ()


def carry_out(steps: Sequence[GpuCheck], folder: Path, limit_s: float) -> Iterator[GpuCheckResult]:
    """Carry checks out in their order; each outcome comes as soon as it is known.

    Args:
        steps: The checks.
        folder: Of all findings.
        limit_s: Of all together: no check gets more than what is left.
    """
    until_s = time.monotonic() + limit_s
    outcomes: dict[str, GpuCheckResult] = {}
    for step in steps:
        outcomes[step.name] = _try(step, outcomes, folder, until_s - time.monotonic())
        yield outcomes[step.name]


def missing_packages(step: GpuCheck) -> tuple[str, ...]:
    """The packages that a check needs and this machine lacks."""
    modules = [package for name, package in step.modules.items() if not importlib.util.find_spec(name)]
    programs = [package for name, package in step.programs.items() if not shutil.which(name)]
    return tuple(dict.fromkeys((*modules, *programs)))


def _try(step: GpuCheck, before: Mapping[str, GpuCheckResult], folder: Path, left_s: float) -> GpuCheckResult:
    missing = missing_packages(step)
    if missing:
        return GpuCheckResult(step.name, Status.LACKING, 0.0, f"missing: {', '.join(missing)}")
    for name in step.after:
        if before[name].status is Status.LACKING:
            return GpuCheckResult(step.name, Status.LACKING, 0.0, f"needs {name}; {before[name].said}")
        if before[name].status is not Status.PASSED:
            return GpuCheckResult(step.name, Status.SKIPPED, 0.0, f"needs {name}, which has not passed")
    if left_s < _LEAST_S:
        return GpuCheckResult(step.name, Status.SKIPPED, 0.0, "no time is left")
    start_s = time.monotonic()
    try:
        said, status = step.carry_out(CheckFolder(folder, min(step.limit_s, left_s))), Status.PASSED
    except StepError as error:
        said, status = str(error), Status.FAILED
    except Exception as error:  # a check that breaks has failed, and the next ones are still to come
        said, status = f"{type(error).__name__}: {error}".splitlines()[0], Status.FAILED
    return GpuCheckResult(step.name, status, time.monotonic() - start_s, said)
