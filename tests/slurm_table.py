"""Which tests that start Slurm ran on which Slurm, and how they ended: a table for docs/slurm-versions.md."""

import platform
import subprocess
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePath

import pytest

FAILED = ("failed", "error")
OUTCOMES = ("passed", "failed", "skipped")

STARTS_SLURM = "starts Slurm"
"""The property of those tests; their marker would not do, as a parameter may be called `slurm`, too."""

Stats = Mapping[str, Sequence[object]]
"""What pytest's terminal reporter keeps: reports by how they ended."""


def slurm_table(stats: Stats) -> Iterator[str]:
    """Its lines; none if no test started Slurm.

    Args:
        stats: Of the session.
    """
    tests = _outcomes(stats)
    if not tests:
        return
    counts = Counter((_folder(test), outcome) for test, outcome in tests.items())
    yield f"{_slurm()}, {platform.freedesktop_os_release()['PRETTY_NAME']}:"
    yield ""
    yield f"| tests that start Slurm | {' | '.join(OUTCOMES)} |"
    yield "|---|" + "---|" * len(OUTCOMES)
    for folder in sorted({folder for folder, _ in counts}):
        yield _row(folder, [counts[folder, outcome] for outcome in OUTCOMES])
    yield _row("all", [sum(each == outcome for each in tests.values()) for outcome in OUTCOMES])
    for report in _of_slurm(stats, "skipped"):
        yield f"skipped: {report.nodeid}: {_reason(report)}"


def _outcomes(stats: Stats) -> dict[str, str]:
    """How each test ended that is marked; one whose teardown fails has failed."""
    ended = {report.nodeid: kind for kind in ("passed", "skipped") for report in _of_slurm(stats, kind)}
    return ended | {report.nodeid: "failed" for kind in FAILED for report in _of_slurm(stats, kind)}


def _of_slurm(stats: Stats, kind: str) -> list[pytest.TestReport]:
    reports = (each for each in stats.get(kind, ()) if isinstance(each, pytest.TestReport))
    return [report for report in reports if any(name == STARTS_SLURM for name, _ in report.user_properties)]


def _folder(test: str) -> str:
    """The folder two levels down that a test is in, as `tests/profiler`."""
    return str(PurePath(*PurePath(test.partition("::")[0]).parts[:2]))


def _row(name: str, numbers: Sequence[int]) -> str:
    return f"| {name} | {' | '.join(map(str, numbers))} |"


def _reason(report: pytest.TestReport) -> str:
    return report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longreprtext


def _slurm() -> str:
    said = subprocess.run(["slurmctld", "-V"], capture_output=True, text=True, check=True).stdout
    return said.strip().replace("slurm-wlm", "Slurm")
