"""`dally report` as a user meets it."""

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from dally.commands import main
from dally.runs.records import EVENTS
from tests.analysis.report.folders import cut, simple_run


@pytest.fixture
def comparison(tmp_path: Path) -> Path:
    simple_run(tmp_path / "runs/slurm", "slurm", [100, 300])
    simple_run(tmp_path / "runs/srsf-delay", "srsf-delay", [0, 200])
    return tmp_path / "runs"


def test_a_report_is_one_file_that_fetches_nothing(comparison: Path) -> None:
    result = CliRunner().invoke(main, ["report", str(comparison)])
    assert result.exit_code == 0
    assert "slurm was best" not in result.output
    assert "report: " in result.output
    page = (comparison / "report.html").read_text("utf-8")
    assert not re.search(r'(src|href)="(?!#|data:)', page)
    assert "@import" not in page
    assert [path.name for path in comparison.glob("*.html")] == ["report.html"]


def test_the_same_runs_give_the_same_bytes(comparison: Path) -> None:
    for name in ("one.html", "two.html"):
        CliRunner().invoke(main, ["report", str(comparison), "-o", str(comparison / name)])
    assert (comparison / "one.html").read_bytes() == (comparison / "two.html").read_bytes()


def test_programs_get_the_summaries(comparison: Path) -> None:
    said = json.loads(CliRunner().invoke(main, ["report", str(comparison), "--json"]).output)
    assert said["runs"]["slurm"]["jct_s"]["mean"] == 300
    assert "33 %" in said["verdict"]


def test_names_from_a_trace_are_no_html(tmp_path: Path) -> None:
    folder = simple_run(tmp_path / "a", "<script>alert(1)</script>", [0])
    assert CliRunner().invoke(main, ["report", str(folder)]).exit_code == 0
    assert "<script>alert" not in (folder / "report.html").read_text("utf-8")


def test_wrong_input_is_one_line_and_leaves_no_report(comparison: Path) -> None:
    cut(comparison / "slurm" / EVENTS, 9)
    result = CliRunner().invoke(main, ["report", str(comparison)])
    assert result.exit_code == 1
    assert re.fullmatch(
        r"dally: .*events\.jsonl: the last line is cut off, the file is truncated\n", result.output
    )
    assert not (comparison / "report.html").exists()


def test_a_file_that_cannot_be_written_is_one_line(comparison: Path) -> None:
    result = CliRunner().invoke(
        main, ["report", str(comparison), "-o", str(comparison / "no" / "report.html")]
    )
    assert result.exit_code == 1
    assert result.output.count("\n") == 1
