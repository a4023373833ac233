"""Decides a recording again: a new scheduler is told every fact, and each plan is compared."""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from dally.atomic_file import open_plain
from dally.cluster.topology import Topology
from dally.errors import DallyError, InputError
from dally.jobs.knowledge import EXACTLY, Knowledge, Known
from dally.jobs.progress import ProgressReport
from dally.plan import Plan, Wait
from dally.policies.registry import parse_policy
from dally.profiles.costs import CostModel
from dally.profiles.decoding import decode, shown
from dally.profiles.files import ProfileSet
from dally.profiles.gang_iteration import Split
from dally.profiles.schema import Profile
from dally.scheduling.recording.compare import Difference, count_acts, differences
from dally.scheduling.recording.plain import to_allocation, to_decision, to_job, to_past, to_plan
from dally.scheduling.recording.recorder import FACTS_TOLD, SCHEMA
from dally.scheduling.scheduler import Scheduler, beliefs_of
from dally.state import ClusterState

Line = Mapping[str, Any]

_LONGEST_LINE = 2**25
_MOST = 10
"""How many differences are described."""

_BROKEN = (ArithmeticError, AssertionError, AttributeError, LookupError, TypeError, ValueError, DallyError)
"""What a line that cannot be true makes state and policies raise."""


@dataclass(slots=True)
class Replay:
    """What came of deciding a recording again.

    Attributes:
        policies: The policies that decided then, in order, each once.
        asked: The policy asked now instead; empty: those that decided then.
        segments: How often a scheduler was built anew.
        facts: Facts told.
        decisions: Plans compared.
        differing: How many of them are not the same; of another policy: do something else.
        differences: What differs first.
        acts: Of another policy: starts, preemptions and migrations of `both`, only `then`, only `now`.
        torn_lines: Lines that were cut off when the recorded process was killed.
        versions: The versions of Dally that recorded.
    """

    asked: str = ""
    policies: list[str] = field(default_factory=list)
    versions: list[str] = field(default_factory=list)
    segments: int = 0
    facts: int = 0
    decisions: int = 0
    differing: int = 0
    differences: list[Difference] = field(default_factory=list)
    acts: dict[str, int] = field(default_factory=lambda: {"both": 0, "then": 0, "now": 0})
    torn_lines: list[int] = field(default_factory=list)


def replay(path: Path, asked: str = "") -> Replay:
    """Decide a recording again.

    Args:
        path: The recording.
        asked: Another policy to ask; empty: that of the recording, which must give the same plans.

    Raises:
        InputError: The file is no recording, is broken in the middle, or tells what cannot be; or the policy
            is unknown.
        OSError: It cannot be read.
    """
    if asked:
        parse_policy(asked)
    found, twin = Replay(asked), None
    for number, line in _lines(path):
        try:
            if not line:
                found.torn_lines.append(number)
            elif "schema" in line:
                twin = _Twin(line, found)
            elif twin is None:
                raise InputError("no segment has begun")
            else:
                twin.read(line, number)
        except _BROKEN as error:
            known = isinstance(error, DallyError | AssertionError) and str(error)
            raise InputError(f"{path}:{number}: {known or f'it cannot be so: {error!r}'}") from error
    if not found.segments:
        raise InputError(f"{path}: no recording; its first line must have a schema")
    return found


def _lines(path: Path) -> Iterator[tuple[int, Line]]:
    """Lines with their numbers; a torn one, at the end of a segment or of the file, is empty.

    Raises:
        InputError: A line in the middle of a segment is not a JSON object.
    """
    torn = 0
    with open_plain(path) as file:
        for number, text in enumerate(iter(lambda: file.readline(_LONGEST_LINE), b""), 1):
            if not text.strip():
                continue
            try:
                line = json.loads(text)
            except (ValueError, RecursionError):
                line = None
            line = line if isinstance(line, dict) and line else None
            if torn:
                if line is None or "schema" not in line:
                    raise InputError(f"{path}:{torn}: not a JSON object, and the segment goes on after it")
                yield torn, {}
            torn = number if line is None else 0
            if line is not None:
                yield number, line
    if torn:
        yield torn, {}


class _Twin:
    """A scheduler built from the first line of a segment, told what the rest says.

    Another policy than the recorded one starts with nothing learnt, as with a controller whose policy was
    changed. It is told of its own waits, not of those recorded.
    """

    def __init__(self, first: Line, found: Replay) -> None:
        if first["schema"] != SCHEMA:
            raise InputError(f"schema is {shown(first['schema'])}, this version reads {SCHEMA}")
        self._found = found
        spec = str(first["policy"])
        self._other = bool(found.asked) and found.asked != spec
        self._scheduler = _scheduler(first, found.asked or spec, restored=not self._other)
        self._topology = self._scheduler.state.topology
        self._last: Plan | None = None
        found.segments += 1
        found.policies += [spec] if spec not in found.policies else []
        version = str(first["version"])
        found.versions += [version] if version not in found.versions else []

    def read(self, line: Line, number: int) -> None:
        """Take in one line: tell the fact, or decide and compare."""
        if "fact" in line:
            if line["fact"] not in FACTS_TOLD:
                raise InputError(f"fact {shown(line['fact'])}; valid: {', '.join(FACTS_TOLD)}")
            if not (self._other and line["fact"] == "waits"):
                _tell(self._scheduler, line)
            self._found.facts += 1
            return
        then = to_plan(line["plan"]) if "plan" in line else self._last
        if then is None:
            raise InputError("neither a fact nor a plan")
        self._last = then
        self._compare(then, self._scheduler.decide(line["t"]), line["t"], number)

    def _compare(self, then: Plan, now: Plan, t: float, number: int) -> None:
        self._found.decisions += 1
        if self._other:
            # Its own waits go on record, but of jobs that run though it would have stopped them.
            for decision in now.decisions:
                if isinstance(decision, Wait) and decision.job_id in self._scheduler.state.waiting:
                    self._scheduler.wait_explained(decision)
            counts = count_acts(then, now)
            for whose, count in counts.items():
                self._found.acts[whose] += count
            same = not (counts["then"] or counts["now"])
        else:
            same = then == now
        if same:
            return
        self._found.differing += 1
        left = _MOST - len(self._found.differences)
        told = islice(differences(then, now, self._topology, acts_only=self._other), left)
        self._found.differences += [Difference(number, t, *each) for each in told]


def _scheduler(first: Line, spec: str, restored: bool) -> Scheduler:
    """State and policy as they were when the segment began."""
    topology, profiles, knows = decode(Topology, first["cluster"]), first["profiles"], first.get("knows")
    if profiles is not None:
        decoded = tuple(decode(Profile, each) for each in profiles["profiles"])
        profiles = ProfileSet(profiles["name"], decoded)
    known = EXACTLY if knows is None else Known(**{**knows, "knowledge": Knowledge(knows["knowledge"])})
    found = parse_policy(spec)
    costs = CostModel(
        topology,
        profiles,
        Split(first.get("batch_split", Split.EVEN)),
        found.policy.batching,
        restart_s=first.get("restart_s"),
        assumed_slowdown=first.get("assumed_slowdown", 1.0),
        averaging=found.policy.averaging(found.knobs),
    )
    believed_costs = costs.believed(known)
    if believed_costs.learnt is not None:
        believed_costs.learnt.restore(first["learnt_costs"])
    state = ClusterState(topology, believed_costs, known, first.get("priority_ratio", 0.0))
    policy = found.build(state)
    if restored:
        policy.restore(first["learnt"])
    beliefs = beliefs_of(state.knows, policy.learns_limits)
    if "believed" in first:
        beliefs.restore(first["believed"])
    return Scheduler(state, policy, beliefs)


def _tell(scheduler: Scheduler, line: Line) -> None:
    """Tell a scheduler a fact, by the arguments of its method."""
    said = {name: _FROM_DATA[name](value) if name in _FROM_DATA else value for name, value in line.items()}
    if "t" in said:
        said["now"] = said.pop("t")
    getattr(scheduler, FACTS_TOLD[said.pop("fact")])(**said)


def _to_wait(data: Line) -> Wait:
    decision = to_decision(data)
    assert isinstance(decision, Wait), "what waits is no wait"
    return decision


_FROM_DATA: Mapping[str, Callable[[Any], Any]] = {
    "job": to_job,
    "past": to_past,
    "allocation": to_allocation,
    "report": lambda data: ProgressReport(**data),
    "decision": _to_wait,
}
