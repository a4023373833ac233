"""Tables of a document from the summary of a sweep."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from simulator.study import main

SUMMARY = """setting,policy,congestion,cluster,figure,runs,mean,ci95,ratio,ratio_ci95
batch,dally,1.0,small,jct_mean_s,2,90000,1234,1,0
batch,dally,1.0,small,jct_p99_s,2,552000,9,1,0
batch,dally,1.0,small,makespan_s,2,1200000,9,1,0
batch,fifo,1.0,small,jct_mean_s,2,180000,1000,2,0
batch,fifo,1.0,small,jct_p99_s,2,552000,9,1,0
batch,fifo,1.0,small,makespan_s,2,762000,9,1,0
batch,dally,0.1,small,jct_mean_s,1,91000,,1,
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "summary.csv").write_text(SUMMARY)
    return tmp_path


def test_a_table_for_each_value_of_an_option_in_thousands_of_seconds(folder: Path) -> None:
    shown = CliRunner().invoke(main, [str(folder)]).output
    assert shown.splitlines() == [
        "congestion 1.0:",
        "",
        "| policy | small |",
        "| --- | --- |",
        "| `dally` | 90 ±1.2 / 552 / 1,200 |",
        "| `fifo` | 180 ±1 / 552 / 762 |",
        "",
        "congestion 0.1:",
        "",
        "| policy | small |",
        "| --- | --- |",
        "| `dally` | 91 |",
    ]


def test_they_go_between_the_comments_of_a_section(folder: Path) -> None:
    document = folder / "results.md"
    document.write_text("before\n<!-- best -->\nold\n<!-- end best -->\nafter\n")
    CliRunner().invoke(main, [str(folder), "--write", str(document), "--section", "best"])
    text = document.read_text()
    assert "old" not in text
    assert "| `fifo` | 180" in text


def test_a_folder_without_results_is_named(tmp_path: Path) -> None:
    result = CliRunner().invoke(main, [str(tmp_path)])
    assert (result.exit_code, "summary.csv" in result.output) == (1, True)
