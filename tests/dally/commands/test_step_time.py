"""`dally step-time` as a user meets it."""

import json

import pytest
from click.testing import CliRunner, Result

from dally.commands import main

JOB = ("--model", "llama3-8b", "--batch", "64", "--sequence", "4096")


def step_time(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["step-time", *JOB, *arguments])


def figures(*arguments: str) -> list[dict[str, object]]:
    result = step_time("--json", *arguments)
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert isinstance(found, list)
    return found


def test_a_plan_shows_its_phases_and_what_crosses_machines() -> None:
    result = step_time("--gpus", "h100", "--parallel", "tp=4,dp=4")
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith("tp=4,dp=4: ")
    assert "across machines: dp\n" in result.stdout
    assert "| groups of 4, inside a machine |" in result.stdout
    assert "| groups of 4, cross 2 machines |" in result.stdout


def test_plans_come_fastest_first_and_phases_add_up() -> None:
    found = figures("--gpus", "h100", "--parallel", "tp=16,dp=1", "--parallel", "dp=16,zero=3")
    assert [each["plan"] for each in found] == ["dp=16,zero=3", "tp=16"]
    for each in found:
        parts = each["phases_s"]
        assert isinstance(parts, dict)
        assert sum(parts.values()) == pytest.approx(each["step_s"])
    assert found[1]["crossing"] == ["tp"]


def test_a_placement_decides_what_crosses() -> None:
    near, far = (figures("--gpus", f"a100:{place}", "--parallel", "tp=4,dp=2") for place in ("8", "2+2+2+2"))
    assert (near[0]["crossing"], far[0]["crossing"]) == ([], ["tp", "dp"])
    assert figures("--gpus", "a100:4x2", "--parallel", "tp=4,dp=2") == far


def test_a_measured_step_moves_the_prediction_to_it() -> None:
    plan = ("--gpus", "h100", "--parallel", "dp=8,zero=3")
    (before,) = figures(*plan)
    assert isinstance(before["step_s"], float)
    (after,) = figures(*plan, "--measured", f"dp=8,zero=3@{1.5 * before['step_s']}")
    assert after["step_s"] == pytest.approx(1.5 * before["step_s"], rel=0.1)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--gpus", "k80"), "GPU type 'k80' is not known"),
        (("--gpus", "h100:3x8"), "gpus: machines are '3x8', must be like 4x8 or 8+8+4 and have the 4 GPUs"),
        (("--gpus", "h100:0x8"), "gpus: machines are '0x8'"),
        (("--gpus", "h100:4-4"), "gpus: machines are '4-4'"),
        (("--gpus", "h100", "--measured", "dp=4"), "measured: is 'dp=4', must be PLAN@SECONDS"),
        (("--gpus", "h100", "--parallel", "dp=five"), "plan: dp is 'five', must be a whole number"),
        (("--gpus", "h100", "--batch", "3"), "batch: 3 is no multiple of micro batch 1 x dp 4"),
    ],
)
def test_what_is_wrong_is_one_line(arguments: tuple[str, ...], message: str) -> None:
    result = step_time("--parallel", "dp=4", *arguments)
    assert result.exit_code == 1
    assert result.stderr.startswith(f"dally: {message}")
    assert result.stderr.count("\n") == 1
