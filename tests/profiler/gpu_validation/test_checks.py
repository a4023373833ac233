import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest

from profiler.gpu_validation.checks import (
    CheckFolder,
    GpuCheck,
    GpuCheckResult,
    Status,
    all_well,
    describe,
    run_checks,
    write_summary,
)
from profiler.gpu_validation.commands import StepError

PASSED = GpuCheckResult("compute", Status.PASSED, 2.0, "10 models")
FAILED = GpuCheckResult("NVML", Status.FAILED, 1.0, "no counter")
LACKING = GpuCheckResult("Slurm", Status.LACKING, 0.0, "missing: slurmd")
SKIPPED = GpuCheckResult("NCCL", Status.SKIPPED, 0.0, "no time is left")


@pytest.mark.parametrize(
    ("outcomes", "well"),
    [
        ([PASSED], True),
        ([PASSED, LACKING], True),
        ([PASSED, SKIPPED], False),
        ([PASSED, FAILED], False),
        ([LACKING], False),
        ([], False),
    ],
)
def test_only_a_missing_package_excuses_what_was_not_tried(
    outcomes: list[GpuCheckResult], well: bool
) -> None:
    assert all_well(outcomes) is well


def test_the_summary_names_what_has_not_passed_and_what_lacks_packages() -> None:
    text = describe([PASSED, FAILED, LACKING, SKIPPED])
    assert "1 of 4 checks passed in 3 s" in text
    assert "NOT TRIED, packages are missing: Slurm\n" in text
    assert "NOT PASSED: NVML, NCCL\n" in text


def test_the_summary_is_written_for_people_and_programs(tmp_path: Path) -> None:
    write_summary([PASSED, LACKING], "NVIDIA H200", tmp_path)
    data = json.loads((tmp_path / "summary.json").read_text())
    assert (data["machine"], data["passed"], data["wall_s"]) == ("NVIDIA H200", True, 2.0)
    assert data["checks"][1] == {
        "check": "Slurm",
        "status": "lacking",
        "wall_s": 0.0,
        "said": "missing: slurmd",
    }
    assert (tmp_path / "summary.txt").read_text().startswith("NVIDIA H200\nPASSED")


LONG_S = 100.0


def step(
    name: str,
    does: Callable[[CheckFolder], str] = lambda work: "fine",
    after: Sequence[str] = (),
    modules: Mapping[str, str] | None = None,
    programs: Mapping[str, str] | None = None,
) -> GpuCheck:
    return GpuCheck(name, LONG_S, does, modules or {}, programs or {}, after)


def fail(work: CheckFolder) -> str:
    raise StepError("no good")


def outcomes(*checks: GpuCheck, limit_s: float = LONG_S) -> list[tuple[Status, str]]:
    return [(item.status, item.said) for item in run_checks(checks, Path("out"), limit_s)]


def test_a_check_that_fails_does_not_end_the_others() -> None:
    found = outcomes(step("one", fail), step("two"))
    assert found == [(Status.FAILED, "no good"), (Status.PASSED, "fine")]


def test_a_check_that_breaks_has_failed_with_one_line() -> None:
    def break_down(work: CheckFolder) -> str:
        raise KeyError("compute\nand more")

    ((status, said),) = outcomes(step("one", break_down))
    assert status is Status.FAILED
    assert said.startswith("KeyError: ")
    assert "\n" not in said


def test_a_missing_package_is_named_and_the_check_not_tried() -> None:
    lacking = step("one", fail, modules={"no_such_module": "no-such"}, programs={"no-such-program": "tool"})
    assert outcomes(lacking) == [(Status.LACKING, "missing: no-such, tool")]


def test_what_needs_a_check_that_lacks_a_package_lacks_it_too() -> None:
    lacking = step("one", modules={"no_such_module": "no-such"})
    assert outcomes(lacking, step("two", after=["one"]))[1] == (
        Status.LACKING,
        "needs one; missing: no-such",
    )


def test_what_needs_a_check_that_failed_is_skipped() -> None:
    assert outcomes(step("one", fail), step("two", after=["one"]))[1] == (
        Status.SKIPPED,
        "needs one, which has not passed",
    )


def test_a_check_gets_no_more_time_than_is_left_of_all() -> None:
    got: list[float] = []

    def note(work: CheckFolder) -> str:
        got.append(work.limit_s)
        return ""

    outcomes(step("one", note), limit_s=20.0)
    assert 19.0 < got[0] <= 20.0


def test_without_time_left_a_check_is_skipped() -> None:
    assert outcomes(step("one"), limit_s=1.0) == [(Status.SKIPPED, "no time is left")]
