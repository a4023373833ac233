"""A study: a sweep file in, the tables of a page out."""

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from analysis.studies.study import main

STUDY = """policies = ["fifo:backfill=easy", "fifo", "srtf"]
knowledge = ["exact", "none"]
cluster = "demo"
trace = "venus-like:jobs=80,gpus=1:50/4:30/16:20,max_s=20000"
load = [0.5, 2.0]

[study.effects]
backfill = ["fifo", "fifo:backfill=easy"]
"""
SECTIONS = ("overview", "effects", "classes", "behind", "details")


@pytest.fixture
def page(tmp_path: Path) -> Path:
    (tmp_path / "small.toml").write_text(STUDY)
    page = tmp_path / "small.md"
    page.write_text("\n".join(f"## {name}\n<!-- {name} -->\nold\n<!-- end {name} -->" for name in SECTIONS))
    return page


def run(folder: Path) -> Result:
    arguments = [str(folder / "small.toml"), "--workers", "1", "--out", str(folder / "runs")]
    return CliRunner().invoke(main, [*arguments, "--page", str(folder / "small.md")])


def sections(page: Path) -> dict[str, list[str]]:
    text = page.read_text()
    return {
        name: text.split(f"<!-- {name} -->\n")[1].split(f"\n<!-- end {name} -->")[0].splitlines()
        for name in SECTIONS
    }


@pytest.mark.slow
def test_one_command_runs_a_study_and_fills_its_page_class_by_class(page: Path) -> None:
    result = run(page.parent)
    assert (result.exit_code, "12 runs, 12 to do" in result.output) == (0, True), result.output
    written = sections(page)
    classes = [line.split("**")[1] for line in written["details"] if line.startswith("**")]
    assert classes == ["exact", "none"]
    assert sum(line.startswith("| load") for line in written["details"]) == 2 * 2 * 3
    assert written["overview"][2] == "| setting | `fifo:backfill=easy` | `fifo` | `srtf` |"
    assert written["overview"][4].startswith("| load 0.5 | ")
    assert "±" in written["overview"][5], "eight blocks of one run give an interval"
    assert written["overview"][6].startswith("| all settings |")
    assert written["classes"][0].startswith("| setting | exact: mean JCT (over exact) / p99 wait | none: ")
    assert "±" in written["classes"][3]
    assert "`srtf`" in written["behind"][5], "first come, first served is behind at twice the load"
    again = run(page.parent)
    assert "12 runs, 0 to do" in again.output
    assert sections(page) == written


@pytest.mark.slow
def test_an_effect_is_the_opposite_way_of_a_difference(page: Path) -> None:
    run(page.parent)
    written = sections(page)
    heads = "| setting | backfill: `fifo` to `fifo:backfill=easy` |"
    assert written["effects"][2] == heads
    taken = float(written["effects"][5].split("| ")[2].split(" ")[0])
    given = float(written["overview"][5].split("| ")[3].split(" ")[0])
    assert taken < 0 < given
    assert (1 + taken / 100) * (1 + given / 100) == pytest.approx(1, abs=2e-3)


@pytest.mark.parametrize(
    ("study", "message"),
    [
        ("[study]\neffect = 1", "study.effect is not a known key; valid: effects"),
        ('[study.effects]\na = ["fifo"]', "study.effects.a is ['fifo'], must be a list of two policies"),
        ("[study]\neffects = 1", "study.effects is 1, must be a table"),
    ],
)
def test_wrong_effects_are_refused_before_anything_runs(page: Path, study: str, message: str) -> None:
    (page.parent / "small.toml").write_text(STUDY.split("[study")[0] + study)
    result = run(page.parent)
    assert (result.exit_code, message in result.output) == (1, True), result.output
    assert not (page.parent / "runs").exists()


def test_a_page_without_a_section_is_named_before_anything_runs(page: Path) -> None:
    page.write_text("nothing here")
    result = run(page.parent)
    assert (result.exit_code, "has no section for a table, like <!-- overview -->" in result.output) == (
        1,
        True,
    )
    assert not (page.parent / "runs").exists()


def test_a_page_may_do_without_some_tables(page: Path) -> None:
    page.write_text("<!-- classes -->\n<!-- end classes -->\n")
    assert run(page.parent).exit_code == 0
    assert page.read_text().count("\n| load") == 2
