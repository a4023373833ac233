"""Policies are found by name, ours and those of other packages."""

import os
import re
import subprocess
import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest
from click.testing import CliRunner

from dally.commands import main
from dally.errors import InputError
from dally.jobs.job import Job
from dally.policies import registry
from dally.policies.registry import parse_policy, policy_names, policy_type
from dally.testing.properties import a_rebuilt_policy_decides_the_same
from dally.testing.worlds import World, racks, simulate
from simulator.failures import Outage

DOCUMENT = Path(__file__).parents[3] / "docs" / "policies" / "your-own.md"


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
    knobs = parse_policy("dally:timers=manual,machine=2.5,horizon=12").knobs
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
    waits = [(event["job"], event["reason"]) for event in events if event["event"] == "wait"]
    assert waits == [("wide", "4 GPUs asked for, 0 left by smaller jobs")]
    stopped = World(racks([[2]]), (Job("first", 0, 2, 100), Job("second", 10, 2, 100)), (Outage(20, 0, 30),))
    a_rebuilt_policy_decides_the_same("smallest-first", stopped)


@pytest.mark.slow
def test_the_documented_tests_pass_for_the_documented_example(tmp_path: Path) -> None:
    example, properties = re.findall(r"```python\n(.*?)```", DOCUMENT.read_text(encoding="utf-8"), re.S)
    (tmp_path / "my_package").mkdir()
    (tmp_path / "my_package" / "__init__.py").touch()
    (tmp_path / "my_package" / "my_module.py").write_text(example)
    (tmp_path / "test_mine.py").write_text(properties.replace("max_examples=20", "max_examples=2"))
    (tmp_path / "mine-1.dist-info").mkdir()
    (tmp_path / "mine-1.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: mine\nVersion: 1\n")
    (tmp_path / "mine-1.dist-info" / "entry_points.txt").write_text(
        "[dally.policies]\nsmallest-first = my_package.my_module:SmallestFirst\n"
    )
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_mine.py"]
    variables = {**os.environ, "PYTHONPATH": os.pathsep.join((str(tmp_path), str(DOCUMENT.parents[2])))}
    done = subprocess.run(command, cwd=tmp_path, env=variables, capture_output=True, text=True, timeout=420)
    assert done.returncode == 0, done.stdout


def test_what_is_registered_but_no_policy_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    register(monkeypatch, "broken", "dally.jobs.job:Job")
    with pytest.raises(InputError, match="'broken' is registered as"):
        parse_policy("broken")


BROKEN = """
from dataclasses import dataclass, field

from dally.plan import Plan
from dally.policies.base import Policy

{at_import}

@dataclass(frozen=True)
class RegistryKnobs:
    {knob}

class Mine(Policy):
    name, summary, source, knobs_type = "mine", "It.", "me", RegistryKnobs
    {of_class}

    def __init__(self, knobs, state):
        {at_start}

    def decide(self, state, now):
        {at_decision}
        return Plan()
"""
SOUND = {
    "at_import": "",
    "knob": 'depth: int = field(default=1, metadata={"help": "how deep"})',
    "of_class": "",
    "at_start": "pass",
    "at_decision": "",
}


@pytest.mark.parametrize(
    ("place", "code", "message"),
    [
        ("at_import", "import nowhere", "policy 'mine' ({}, line 7) is broken: ModuleNotFoundError"),
        (
            "at_import",
            "1 / 0",
            "policy 'mine' ({}, line 7) is broken: ZeroDivisionError: division by zero",
        ),
        ("knob", "depth: int", "policy 'mine' ({}) is broken: it has no default of knob depth"),
        ("of_class", "del source", "policy 'mine' ({}) is broken: it has no source"),
        ("at_start", "self.x = knobs.y", "policy 'mine' ({}, line 18) is broken: AttributeError"),
        ("at_decision", "1 / len([])", "policy 'mine' ({}, line 21) is broken: ZeroDivisionError"),
    ],
)
def test_a_broken_policy_of_others_is_one_line_that_names_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, place: str, code: str, message: str
) -> None:
    module = tmp_path.name
    (tmp_path / f"{module}.py").write_text(BROKEN.format(**{**SOUND, place: code}))
    monkeypatch.syspath_prepend(tmp_path)
    register(monkeypatch, "mine", f"{module}:Mine")
    arguments = ["simulate", "--trace", "dally-batch", "--cluster", "dally-256", "--policy", "mine"]
    done = CliRunner().invoke(main, [*arguments, "--out", str(tmp_path / "run")])
    assert done.exit_code == 1
    assert done.stderr.startswith(f"dally: {message.format(module)}")
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "run").exists()


def test_a_broken_policy_of_others_hides_none_that_works(monkeypatch: pytest.MonkeyPatch) -> None:
    register(monkeypatch, "mine", "nowhere:Mine")
    done = CliRunner().invoke(main, ["policies"])
    assert done.exit_code == 0
    assert "tiresias" in done.stdout
    assert done.stderr.startswith("dally: policy 'mine' (nowhere) is broken: ModuleNotFoundError")


def test_defaults_of_knobs_are_told_as_they_are_given() -> None:
    for name in policy_names():
        for knob in registry.knobs(policy_type(name)):
            assert getattr(parse_policy(f"{name}:{knob.name}={knob.default}").knobs, knob.name) == getattr(
                parse_policy(name).knobs, knob.name
            )


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("nope", "unknown policy 'nope'; valid: a-srpt, "),
        ("fifo:x=1", "policy fifo has no knob 'x'; valid: backfill"),
        ("srsf-delay:moves=2.5", "knob moves of policy srsf-delay is '2.5', must be: whole number"),
        ("srsf-delay:guard_share=1.5", "is '1.5', must be: number, at least 0, at most 1"),
        ("srsf-delay:lease_s=0", "is '0', must be: number, more than 0"),
        ("srsf-delay:patience=inf", "is 'inf', must be: number, at least 0"),
        ("srsf-delay:moves=1,moves=2", "knob moves is given twice"),
        ("fifo:", "no knob"),
    ],
)
def test_wrong_specifications_name_what_is_valid(spec: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        parse_policy(spec)


def test_a_policy_that_lacks_its_package_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "dally.policies.jps.policy", raising=False)
    monkeypatch.delitem(sys.modules, "dally.policies.jps.market", raising=False)
    monkeypatch.setitem(sys.modules, "scipy.optimize", None)
    with pytest.raises(InputError, match=r"policy jps: .*scipy is not installed.* '\.\[solvers\]'"):
        parse_policy("jps")
