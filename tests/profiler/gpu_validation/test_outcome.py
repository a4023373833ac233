import json
from pathlib import Path

import pytest

from profiler.gpu_validation.outcome import GpuCheckResult, Status, all_well, describe, write_summary

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
