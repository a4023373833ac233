"""The report of drills: a table on the terminal, drills.md for people, drills.json for programs."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from dally import __version__
from dally.atomic_file import write_atomically
from dally.markdown import table
from testbed.drills.checks import DrillCheck, count_events
from testbed.drills.fault_context import Fault

_WORDS = {
    "controller_starts": "the controller started {} times",
    "slurm_unavailable": "Slurm did not answer it {} times",
    "journal_error": "it could not write its journal {} times",
    "well_again": "it was well again {} times",
    "start": "jobs were started {} times",
    "migrate": "moved {} times",
    "resize": "given another size {} times",
    "preempt": "{} times a job's GPUs were taken",
    "fail": "{} times a job lost its stretch to a failure",
    "refused": "Slurm refused {} orders",
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
    return [
        f"at {fault.broken_s - origin_s:.1f} s {fault.said}"
        + ("" if _at_once(fault) else f", over at {(fault.mended_s or 0.0) - origin_s:.1f} s")
        for fault in faults
    ]


def event_words(events: Iterable[Mapping[str, Any]]) -> str:
    """What happened, in words."""
    seen = count_events(events)
    return "; ".join(words.format(seen[name]) for name, words in _WORDS.items() if seen[name])


def write_report(out: Path, outcomes: Sequence[DrillResult]) -> None:
    """Write drills.md and drills.json into a folder."""
    write_atomically(out / "drills.md", as_markdown(outcomes))
    data = {
        "schema": 1,
        "version": __version__,
        "passed": all(outcome.passed for outcome in outcomes),
        "drills": [{**asdict(outcome), "passed": outcome.passed} for outcome in outcomes],
    }
    write_atomically(out / "drills.json", json.dumps(data, indent=2) + "\n")


def as_markdown(outcomes: Sequence[DrillResult]) -> str:
    """The report for people."""
    rows = [
        (outcome.name, outcome.says, _verdict(outcome.passed), f"{outcome.wall_s:.0f} s")
        for outcome in outcomes
    ]
    parts = ["# Drills\n", table(("drill", "what is broken", "", "took"), rows), ""]
    for outcome in outcomes:
        checks = [(check.name, _verdict(check.passed), check.said) for check in outcome.checks]
        parts += [f"## {outcome.name}\n", *(f"- {said}" for said in outcome.faults)]
        parts += [f"\n{outcome.happened}.\n", table(("check", "", "seen"), checks), ""]
    return "\n".join(parts)


def _at_once(fault: Fault) -> bool:
    return fault.mended_s is None or fault.mended_s - fault.broken_s < 1.0


def _verdict(passed: bool) -> str:
    return "passed" if passed else "FAILED"
