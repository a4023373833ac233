"""A recording is decided again: the same where nothing changed, and never so where something did."""

import json
import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from dally.errors import InputError
from dally.jobs.job import Job
from dally.policies.registry import policy_names
from dally.scheduling.recording.recorder import FACTS_TOLD, RecordedScheduler
from dally.scheduling.recording.replay import replay
from dally.scheduling.scheduler import Scheduler
from dally.testing.worlds import World, racks, worlds
from tests.dally.recording.recorded import Lines, read, record, tamper
from tests.patience import LONGEST_S
from tests.policy_groups import SEARCHING

POLICIES = (*policy_names(), "dally:lease_s=600", "gandiva:slice_s=400", "tiresias:regroup_s=500")
BUSY = World(
    racks([[4, 4], [4, 4]]),
    tuple(Job(f"j{n}", n * 300.0, 1 + n % 7, 4000.0 + 100 * n, model="resnet50") for n in range(20)),
    (),
)
POLICY = "dally:lease_s=600"


@pytest.fixture
def busy(tmp_path: Path) -> Path:
    """The recording of a simulation that waits, preempts and starts."""
    path = tmp_path / "facts.jsonl"
    record(POLICY, BUSY, path)
    return path


@pytest.mark.parametrize("policy", POLICIES)
def test_every_policy_decides_its_recording_again(policy: str) -> None:
    @settings(max_examples=2 if policy in SEARCHING else 5, suppress_health_check=[HealthCheck.too_slow])
    @given(world=worlds(models=("", "resnet50", "bert-large"), varying=True))
    def holds(world: World) -> None:
        with TemporaryDirectory() as folder:
            path = Path(folder) / "facts.jsonl"
            record(policy, world, path)
            found = replay(path)
            plans = [line for line in read(path) if "plan" in line or "again" in line]
        assert (found.differing, found.differences) == (0, [])
        assert found.decisions == len(plans) > 0

    holds()


def test_another_process_decides_the_same(busy: Path) -> None:
    """Nothing depends on the order in which Python happens to keep names."""
    for seed in ("1", "2"):
        said = subprocess.run(
            [sys.executable, "-m", "dally", "replay", str(busy)],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            timeout=LONGEST_S,
            check=True,
        )
        assert "all the same" in said.stdout


def test_every_change_of_a_scheduler_is_recorded_and_told_again() -> None:
    changes = {name for name, each in vars(Scheduler).items() if callable(each) and name[0] != "_"}
    changes -= {"advance"}  # `decide` calls it
    facts = {
        "wait_explained": "waits",
        "plan_applied": "settle",
        "observe_steps": "steps",
    }  # as they are written
    assert {facts.get(name, name) for name in changes} == set(FACTS_TOLD) | {"decide"}
    assert changes <= vars(RecordedScheduler).keys()


def test_the_recording_has_what_a_busy_cluster_does(busy: Path) -> None:
    facts = {line["fact"] for line in read(busy) if "fact" in line}
    assert facts >= {"submit", "start", "preempt", "finish", "waits", "settle"}


def of(lines: Lines, kind: str) -> dict[str, Any]:
    """The first decision of a kind."""
    plans = (line["plan"]["decisions"] for line in lines if "plan" in line)
    return next(decision for plan in plans for decision in plan if decision["do"] == kind)


def test_a_changed_decision_is_found(busy: Path) -> None:
    def elsewhere(lines: Lines) -> None:
        of(lines, "start")["allocation"] = [[3, 1]]

    tamper(busy, elsewhere)
    found = replay(busy)
    assert found.differing == 1
    first = found.differences[0]
    assert (first.t, first.what) == (0.0, "job j0")
    assert first.then.startswith("starts on r1m1 x1, one machine")
    assert first.now.startswith("starts on r0m0 x1, one machine")


def test_a_time_one_bit_off_is_found(busy: Path) -> None:
    def later(lines: Lines) -> None:
        wait = of(lines, "wait")
        wait["until_s"] += 1e-9

    tamper(busy, later)
    assert replay(busy).differing == 1


def test_another_time_to_ask_is_found(busy: Path) -> None:
    def sooner(lines: Lines) -> None:
        plan = next(line["plan"] for line in lines if line.get("plan", {}).get("wakeup_s"))
        plan["wakeup_s"] -= 1.0

    tamper(busy, sooner)
    assert replay(busy).differences[0].what == "the next question"


def test_another_order_is_found(busy: Path) -> None:
    def turned(lines: Lines) -> None:
        plans = (line["plan"]["decisions"] for line in lines if "plan" in line)
        next(plan for plan in plans if len({each["job_id"] for each in plan}) == len(plan) > 1).reverse()

    tamper(busy, turned)
    assert replay(busy).differences[0].what == "the order"


def test_a_changed_fact_is_found(busy: Path) -> None:
    def slower(lines: Lines) -> None:
        for line in lines:
            if line.get("fact") == "start":
                line["speed"] /= 2

    tamper(busy, slower)
    assert replay(busy).differing > 0


def test_a_policy_with_other_knobs_is_found(busy: Path) -> None:
    """As a policy is whose code has changed."""
    tamper(busy, lambda lines: lines[0].update(policy="dally:lease_s=700"))
    assert replay(busy).differing > 0


def test_other_profiles_are_found(busy: Path) -> None:
    def slow_to_restart(lines: Lines) -> None:
        for profile in lines[0]["profiles"]["profiles"]:
            profile["restart"]["base_s"] = 500.0

    tamper(busy, slow_to_restart)
    assert replay(busy).differing > 0


def test_another_policy_is_asked_on_the_same_facts(busy: Path) -> None:
    found = replay(busy, "dally:lease_s=700")
    assert found.policies == [POLICY]
    assert 0 < found.differing < found.decisions
    assert found.acts["both"] > 0
    assert found.acts["then"] + found.acts["now"] >= found.differing


@pytest.mark.parametrize("policy", POLICIES)
def test_every_policy_can_be_asked_on_the_facts_of_another(busy: Path, policy: str) -> None:
    found = replay(busy, policy)
    assert found.decisions == sum("plan" in line or "again" in line for line in read(busy))
    assert (found.differing == 0) == (policy == POLICY)


def test_a_torn_last_line_is_told(busy: Path) -> None:
    whole = replay(busy)
    text = busy.read_text()
    busy.write_text(text[: len(text) - 12])
    found = replay(busy)
    assert found.torn_lines == [text.count("\n")]
    assert (found.differing, found.facts + found.decisions) == (0, whole.facts + whole.decisions - 1)


def test_the_segment_after_a_torn_line_is_whole(busy: Path) -> None:
    once = replay(busy)
    busy.write_text(busy.read_text()[:-12])
    record(POLICY, BUSY, busy)
    found = replay(busy)
    assert found.segments == 2
    assert len(found.torn_lines) == 1
    assert found.facts + found.decisions == 2 * (once.facts + once.decisions) - 1
    assert found.differing == 0


def test_a_line_that_is_broken_in_the_middle_is_refused(busy: Path) -> None:
    lines = busy.read_text().splitlines()
    lines[7] = lines[7][:-5]
    busy.write_text("\n".join(lines))
    with pytest.raises(InputError, match=r"facts.jsonl:8: not a JSON object, and the segment goes on"):
        replay(busy)


def without_submission(lines: Lines) -> None:
    lines.remove(next(line for line in lines if line.get("fact") == "submit"))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda lines: lines.pop(0), "1: no segment has begun"),
        (lambda lines: lines.clear(), "no recording; its first line must have a schema"),
        (lambda lines: lines[0].update(schema=2), "1: schema is 2, this version reads 1"),
        (lambda lines: lines[0].update(policy="best"), "1: unknown policy 'best'; valid: a-srpt, dally"),
        (lambda lines: lines[0].pop("cluster"), "1: it cannot be so: KeyError.'cluster'"),
        (lambda lines: lines[0]["cluster"].update(machines=7), "1: machines is 7, must be a list"),
        (lambda lines: lines[1].update(fact="fired"), '2: fact "fired"; valid: submit, withdraw'),
        (lambda lines: lines.insert(1, lines[1]), "3: job j0 is here already"),
        (lambda lines: lines[1]["job"].update(gpus=0), "2: job j0: gpus is 0, must be at least 1"),
        (without_submission, "it cannot be so: KeyError.'j0'"),
        (lambda lines: lines.insert(1, {"t": 0.0}), "2: neither a fact nor a plan"),
        (lambda lines: lines.insert(2, {"t": 0.0, "plan": {"wakeup_s": 1.0}}), "KeyError.'decisions'"),
    ],
)
def test_what_cannot_be_is_refused_with_its_line(busy: Path, change: Any, said: str) -> None:
    tamper(busy, change)
    with pytest.raises(InputError, match=f"facts.jsonl:? ?{said}" if said[0].isdigit() else said):
        replay(busy)


def test_an_unknown_policy_is_refused_before_anything_is_read(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="unknown policy 'best'"):
        replay(tmp_path / "nothing", "best")


def test_numbers_come_back_to_the_last_bit(busy: Path) -> None:
    """The recording says what JSON can say exactly: as many digits as a float has, and no infinity."""
    assert "Infinity" not in busy.read_text()
    assert json.loads(json.dumps(0.1 + 0.2)) == 0.1 + 0.2
