"""A recorded simulation, for tests."""

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dally.policies.registry import parse_policy
from dally.profiles.costs import CostModel
from dally.profiles.files import ProfileSet, load_profiles
from dally.runs.records import EventLog
from dally.scheduling.recording.recorder import RecordedScheduler, Recording
from dally.state import ClusterState
from dally.testing.worlds import World
from simulator.engine import Engine

AUTHOR = load_profiles("dally")

Lines = list[dict[str, Any]]


def refuse(reason: str) -> None:
    """A recording that must not end has ended."""
    raise AssertionError(reason)


def record(policy: str, world: World, path: Path, profiles: ProfileSet | None = AUTHOR) -> None:
    """Simulate under a policy; the recording is one more segment of the file."""
    recording = Recording(path, refuse)
    spec = parse_policy(policy)
    averaging = spec.policy.averaging(spec.knobs)
    costs = CostModel(world.topology, profiles, batching=spec.policy.batching, averaging=averaging)
    state = ClusterState(world.topology, costs)
    scheduler = RecordedScheduler(state, spec.build(state), policy, recording)
    Engine(scheduler, world.jobs, EventLog(io.StringIO()), world.outages, 600.0).run()
    recording.flush()


def read(path: Path) -> Lines:
    """The lines of a recording."""
    return [json.loads(line) for line in path.read_text().splitlines() if line]


def tamper(path: Path, change: Callable[[Lines], object]) -> None:
    """Change the lines of a recording."""
    lines = read(path)
    change(lines)
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
