"""The guard of all tests that simulate: a policy that keeps something in `decide` is found out."""

from collections import deque
from dataclasses import dataclass, field

import numpy as np
import pytest

from dally.jobs.job import Job
from dally.plan import Plan
from dally.policies.base import Cache
from dally.policies.fifo import Fifo
from dally.policies.registry import PolicySpec, parse_policy
from dally.state import ClusterState
from dally.testing.described import described
from dally.testing.worlds import racks, simulate


@dataclass(slots=True)
class Kept:
    """Something deep inside of a policy."""

    row: np.ndarray = field(default_factory=lambda: np.zeros(3))
    known: Cache[str, int] = field(default_factory=Cache)
    last: deque[float] = field(default_factory=deque)


class Forgetful(Fifo):
    """Asks a cache, which is allowed."""

    name = "forgetful"

    def __init__(self, knobs: object, state: ClusterState) -> None:
        super().__init__(knobs, state)  # type: ignore[arg-type]
        self.kept = {"a": Kept()}

    def decide(self, state: ClusterState, now: float) -> Plan:
        self.kept["a"].known["asked"] = 1
        return super().decide(state, now)


class Keeping(Forgetful):
    """Keeps what it decided last, though that may never be carried out."""

    name = "keeping"

    def decide(self, state: ClusterState, now: float) -> Plan:
        self.kept["a"].row[1] = now + 1
        return super().decide(state, now)


def test_a_policy_that_changes_itself_in_decide_is_found_out() -> None:
    knobs, job = parse_policy("fifo").knobs, Job("a", 0.0, 1, 100.0)
    assert simulate(PolicySpec("forgetful", Forgetful, knobs), racks([[1]]), [job]).outcome.complete
    with pytest.raises(AssertionError, match="deciding has changed the policy"):
        simulate(PolicySpec("keeping", Keeping, knobs), racks([[1]]), [job])


def test_a_description_tells_apart_what_differs() -> None:
    assert described(Kept()) == described(Kept())
    assert described(Kept(last=deque([1.0]))) != described(Kept())
    assert described({"a": [Kept()]}) != described({"a": [Kept(), Kept()]})
