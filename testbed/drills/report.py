"""The report of drills: a table on the terminal, drills.md for people, drills.json for programs."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from dally import __version__
from dally.atomic_file import write_atomically
from dally.markdown import table
from dally.words import plural
from testbed.drills.checks import DrillCheck, count_events
from testbed.drills.fault_context import Fault

_WORDS = {
    "controller_starts": "the controller started {}",
    "slurm_unavailable": "Slurm did not answer it {}",
    "journal_error": "it could not write its journal {}",
    "recovered": "it was well again {}",
    "start": "jobs were started {}",
    "migrate": "moved {}",
    "resize": "given another size {}",
    "preempt": "GPUs were taken from a job {}",
    "fail": "a job lost its stretch to a failure {}",
    "order_refused": "Slurm refused orders {}",
}


@dataclass(frozen=True, slots=True)
class DrillResult:
    """What came of one drill.

    Attributes:
        name: The drill.
        says: What it breaks.
        faults: What was broken, with seconds from the run's origin, in words.
        happened: What happened then, in words.
        checks: What was checked.
        wall_s: How long it all took.
    """

    name: str
    says: str
    faults: Sequence[str]
    happened: str
    checks: Sequence[DrillCheck]
    wall_s: float

    @property
    def passed(self) -> bool:
        """Every check holds."""
        return all(check.passed for check in self.checks)


def fault_words(faults: Iterable[Fault], origin_s: float) -> list[str]:
    """What was broken and when, in words."""
    found = []
    for fault in faults:
        words = f"at {fault.begin_s - origin_s:.1f} s {fault.said}"
        if fault.end_s is not None and fault.end_s - fault.begin_s >= 1.0:
            words += f", over at {fault.end_s - origin_s:.1f} s"
        found.append(words)
    return found


def event_words(events: Iterable[Mapping[str, Any]]) -> str:
    """What happened, in words."""
    seen = count_events(events)
    return "; ".join(words.format(plural(seen[name], "time")) for name, words in _WORDS.items() if seen[name])


def write_report(out: Path, results: Sequence[DrillResult]) -> None:
    """Write drills.md and drills.json into a folder."""
    write_atomically(out / "drills.md", as_markdown(results))
    data = {
        "schema": 1,
        "version": __version__,
        "passed": all(result.passed for result in results),
        "drills": [{**asdict(result), "passed": result.passed} for result in results],
    }
    write_atomically(out / "drills.json", json.dumps(data, indent=2) + "\n")


def as_markdown(results: Sequence[DrillResult]) -> str:
    """The report for people."""
    rows = [
        (result.name, result.says, verdict(result.passed), f"{result.wall_s:.0f} s") for result in results
    ]
    parts = ["# Drills\n", table(("drill", "what is broken", "", "took"), rows), ""]
    for result in results:
        checks = [(check.name, verdict(check.passed), check.said) for check in result.checks]
        parts += [f"## {result.name}\n", *(f"- {said}" for said in result.faults)]
        parts += [f"\n{result.happened}.\n", table(("check", "", "seen"), checks), ""]
    return "\n".join(parts)


def verdict(passed: bool) -> str:
    """A result in one word."""
    return "passed" if passed else "FAILED"
