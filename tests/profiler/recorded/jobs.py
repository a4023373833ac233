"""Records of imagined jobs, as the recorder writes them."""

import gzip
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

STEPS = 8
STEP_NS = 1_000_000_000


def entry(group: str, name: str, size: Sequence[int], dtype: str = "BFloat16") -> dict[str, Any]:
    """A collective as Flight Recorder tells of it; `write` gives it a time."""
    return {
        "process_group": [group, ""],
        "profiling_name": name,
        "input_sizes": [list(size)],
        "input_dtypes": [dtype],
    }


def write(
    folder: Path,
    rank: int,
    world: int,
    groups: Mapping[str, tuple[Sequence[int], str]],
    step: Iterable[dict[str, Any]],
    sent: Iterable[tuple[str, int, int]] = (),
    steps: int = STEPS,
    host: str = "",
    kept: int = 0,
    step_ns: int = STEP_NS,
    timed: Mapping[str, Sequence[Sequence[str | int]]] | None = None,
    **about_too: object,
) -> Path:
    """Write the record of a rank that does the same in every step.

    Args:
        folder: Of the job.
        rank: The rank.
        world: Ranks of the job.
        groups: Ranks and description by name.
        step: Its collectives; each a nanosecond after the one before, or at its `at_ns` of the step.
        sent: Its messages: group, bytes, peer.
        steps: How many steps it made.
        host: Where it ran; by default eight ranks share one.
        kept: How many of the last collectives PyTorch remembers; 0 for all.
        step_ns: How long each step takes.
        timed: Messages of all steps, `sent` and `received`, as the recorder notes them.
        about_too: What else the record tells of itself.
    """
    step, sent = list(step), list(sent)
    entries, messages = [], []
    for number in range(steps):
        at_ns = number * step_ns + 1
        entries += [
            {**each, "time_created_ns": at_ns + each.get("at_ns", place)} for place, each in enumerate(step)
        ]
        messages += [(group, size, at_ns + place, peer) for place, (group, size, peer) in enumerate(sent)]
    about = {
        "schema": 1,
        "rank": rank,
        "world": world,
        "host": host or f"n{rank // 8 + 1}",
        "groups": {name: {"ranks": [*ranks], "description": what} for name, (ranks, what) in groups.items()},
        "steps_ns": [number * step_ns for number in range(steps)],
        "sent": messages,
        **(timed or {}),
        **about_too,
    }
    path = folder / f"rank-{rank:05}.json.gz"
    with gzip.open(path, "wb") as file:
        file.write(json.dumps(about).encode() + b"\n" + json.dumps({"entries": entries[-kept:]}).encode())
    return path
