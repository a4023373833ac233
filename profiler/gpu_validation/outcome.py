"""What became of each check, and the summary of all: text for people, JSON for programs."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path


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


def all_well(outcomes: Iterable[GpuCheckResult]) -> bool:
    """Whether something passed and nothing is wrong; what lacks a package is not wrong."""
    found = {outcome.status for outcome in outcomes}
    return Status.PASSED in found and found <= {Status.PASSED, Status.LACKING}


def describe(outcomes: Sequence[GpuCheckResult]) -> str:
    """A line for each check, and one on all."""
    lines = [
        f"{outcome.status.upper():8} {outcome.check:21} {outcome.wall_s:6.1f} s  {outcome.said}"
        for outcome in outcomes
    ]
    wrong = [item.check for item in outcomes if item.status in (Status.FAILED, Status.SKIPPED)]
    lacking = [item.check for item in outcomes if item.status is Status.LACKING]
    passed = sum(item.status is Status.PASSED for item in outcomes)
    total_s = sum(item.wall_s for item in outcomes)
    lines.append(f"{passed} of {len(outcomes)} checks passed in {total_s:.0f} s")
    if lacking:
        lines.append(f"NOT TRIED, packages are missing: {', '.join(lacking)}")
    if wrong:
        lines.append(f"NOT PASSED: {', '.join(wrong)}")
    return "\n".join(lines) + "\n"


def write_summary(outcomes: Sequence[GpuCheckResult], machine: str, folder: Path) -> None:
    """Write `summary.txt` and `summary.json`."""
    (folder / "summary.txt").write_text(f"{machine}\n{describe(outcomes)}")
    data = {
        "machine": machine,
        "passed": all_well(outcomes),
        "wall_s": round(sum(item.wall_s for item in outcomes), 1),
        "checks": [asdict(item) for item in outcomes],
    }
    (folder / "summary.json").write_text(json.dumps(data, indent=1) + "\n")
