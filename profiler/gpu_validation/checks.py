"""Runs checks one after another, each within its time and all within theirs, and sums up what became of them.

The summary is text for people and JSON for programs.
"""

import importlib.util
import json
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path

from profiler.gpu_validation.commands import StepError

_LEAST_S = 10.0
"""With less time left than this, a check is not begun."""


class Status(StrEnum):
    """What became of a check."""

    PASSED = "passed"
    FAILED = "failed"
    LACKING = "lacking"
    """Not tried, as the machine lacks a package that is named."""
    SKIPPED = "skipped"
    """Not tried for any other reason: that is not passed."""


@dataclass(frozen=True, slots=True)
class GpuCheckResult:
    """One check.

    Attributes:
        check: Its name.
        status: What became of it.
        wall_s: How long it took, seconds.
        said: What was found, or what is wrong, in one line.
    """

    check: str
    status: Status
    wall_s: float
    said: str


def all_well(results: Iterable[GpuCheckResult]) -> bool:
    """Whether something passed and nothing is wrong; what lacks a package is not wrong."""
    found = {result.status for result in results}
    return Status.PASSED in found and found <= {Status.PASSED, Status.LACKING}


def describe(results: Sequence[GpuCheckResult]) -> str:
    """A line for each check, and one on all."""
    lines = [f"{item.status.upper():8} {item.check:21} {item.wall_s:6.1f} s  {item.said}" for item in results]
    wrong = [item.check for item in results if item.status in (Status.FAILED, Status.SKIPPED)]
    lacking = [item.check for item in results if item.status is Status.LACKING]
    passed, total_s = len(results) - len(wrong) - len(lacking), sum(item.wall_s for item in results)
    lines.append(f"{passed} of {len(results)} checks passed in {total_s:.0f} s")
    if lacking:
        lines.append(f"NOT TRIED, packages are missing: {', '.join(lacking)}")
    if wrong:
        lines.append(f"NOT PASSED: {', '.join(wrong)}")
    return "\n".join(lines) + "\n"


def write_summary(results: Sequence[GpuCheckResult], machine: str, folder: Path) -> None:
    """Write `summary.txt` and `summary.json`."""
    (folder / "summary.txt").write_text(f"{machine}\n{describe(results)}")
    data = {
        "machine": machine,
        "passed": all_well(results),
        "wall_s": round(sum(item.wall_s for item in results), 1),
        "checks": [asdict(item) for item in results],
    }
    (folder / "summary.json").write_text(json.dumps(data, indent=1) + "\n")


@dataclass(frozen=True, slots=True)
class CheckFolder:
    """Where a check works, and for how long.

    Attributes:
        folder: For all results.
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
        run: Does it; gives what it found in one line, and raises StepError where that is wrong.
        modules: Python modules it needs, with the packages that have them.
        programs: Programs it needs, with the packages that have them.
        after: Checks that must have passed before.
    """

    name: str
    limit_s: float
    run: Callable[[CheckFolder], str]
    modules: Mapping[str, str]
    programs: Mapping[str, str]
    after: Sequence[str] = ()


def run_checks(checks: Sequence[GpuCheck], folder: Path, limit_s: float) -> Iterator[GpuCheckResult]:
    """Run checks in their order; each result comes as soon as it is known.

    Args:
        checks: The checks.
        folder: For all results.
        limit_s: Of all together: no check gets more than what is left.
    """
    until_s = time.monotonic() + limit_s
    results: dict[str, GpuCheckResult] = {}
    for check in checks:
        left_s = until_s - time.monotonic()
        modules = [package for name, package in check.modules.items() if not importlib.util.find_spec(name)]
        programs = [package for name, package in check.programs.items() if not shutil.which(name)]
        missing = dict.fromkeys((*modules, *programs))
        needed = [results[name] for name in check.after if results[name].status is not Status.PASSED]
        wall_s = 0.0
        if missing:
            status, said = Status.LACKING, f"missing: {', '.join(missing)}"
        elif needed and needed[0].status is Status.LACKING:
            status, said = Status.LACKING, f"needs {needed[0].check}; {needed[0].said}"
        elif needed:
            status, said = Status.SKIPPED, f"needs {needed[0].check}, which has not passed"
        elif left_s < _LEAST_S:
            status, said = Status.SKIPPED, "no time is left"
        else:
            start_s = time.monotonic()
            try:
                said = check.run(CheckFolder(folder, min(check.limit_s, left_s)))
                status = Status.PASSED
            except StepError as error:
                said, status = str(error), Status.FAILED
            except Exception as error:  # a check that breaks has failed, and the next ones are still to come
                said, status = f"{type(error).__name__}: {error}".splitlines()[0], Status.FAILED
            wall_s = time.monotonic() - start_s
        results[check.name] = GpuCheckResult(check.name, status, wall_s, said)
        yield results[check.name]
