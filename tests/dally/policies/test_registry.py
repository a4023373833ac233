"""Policies are found by name, ours and those of other packages."""

import re
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from dally.errors import InputError
from dally.job import Job
from dally.policies import registry
from dally.policies.registry import parse_policy, policy_names, policy_type
from tests.worlds import racks, simulate

DOCUMENT = Path(__file__).parents[3] / "docs" / "policies.md"


def register(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    point = EntryPoint(name, value, registry.ENTRY_POINTS)
    monkeypatch.setattr(
        registry, "entry_points", lambda group: (point,) if group == registry.ENTRY_POINTS else ()
    )


def test_every_policy_says_what_it_is_and_where_it_comes_from() -> None:
    for name in policy_names():
        policy = policy_type(name)
        assert policy.name == name
        assert policy.summary.endswith(".")
        assert policy.source
        assert all(knob.help for knob in registry.knobs(policy))


def test_knobs_are_read_by_their_type() -> None:
    knobs = parse_policy("dally-paper:timers=manual,machine=2.5,horizon=12").knobs
    assert (knobs.timers, knobs.machine, knobs.horizon, knobs.rack) == ("manual", 2.5, 12, 24.0)


def test_the_documented_example_is_a_policy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    code = re.search(r"```python\n(.*?)```", DOCUMENT.read_text(encoding="utf-8"), re.S)
    assert code is not None
    (tmp_path / "example_policy.py").write_text(code[1])
    monkeypatch.syspath_prepend(tmp_path)
    register(monkeypatch, "smallest-first", "example_policy:SmallestFirst")
    assert policy_names()[-1] == "smallest-first"
    jobs = [Job("wide", 0, 4, 100), Job("narrow", 0, 1, 100), Job("middle", 0, 3, 100)]
    events = simulate("smallest-first", racks([[4]]), jobs).events
    assert [event["job"] for event in events if event["event"] == "start"] == ["narrow", "middle", "wide"]


def test_what_is_registered_but_no_policy_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    register(monkeypatch, "broken", "dally.job:Job")
    with pytest.raises(InputError, match="'broken' is registered as"):
        parse_policy("broken")


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("nope", "unknown policy 'nope'; valid: a-srpt, "),
        ("fifo:x=1", "policy fifo has no knob 'x'; valid: backfill"),
        ("fifo:depth=2.5", "knob depth of policy fifo is '2.5', must be: whole number"),
        ("fifo:depth=1,depth=2", "knob depth is given twice"),
        ("fifo:", "no knob"),
    ],
)
def test_wrong_specifications_name_what_is_valid(spec: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        parse_policy(spec)
