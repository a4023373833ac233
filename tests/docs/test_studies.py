"""Every study in the tree asks for runs that can be, and has a page that says how it is made."""

from pathlib import Path

import pytest

from analysis.studies.study import read_effects
from analysis.studies.study_tables import SECTIONS
from simulator.sweep.plan import read_plan

ROOT = Path(__file__).parents[2]
STUDIES = sorted((ROOT / "docs" / "studies").glob("*.toml"))
TRACES = ROOT.parent / "shared" / "traces"


def test_there_are_studies() -> None:
    assert {path.stem for path in STUDIES} >= {"tuning", "report", "effects", "ablation", "knowledge"}


@pytest.mark.parametrize("path", STUDIES, ids=lambda path: path.stem)
def test_its_page_has_its_command_at_the_head_and_room_for_tables(path: Path) -> None:
    text = (ROOT / "docs" / "results" / f"{path.stem}.md").read_text(encoding="utf-8")
    assert f"python -m analysis.studies.study docs/studies/{path.name}\n" in text.split("```")[1]
    sections = [name for name in SECTIONS if f"<!-- {name} -->\n" in text]
    assert sections
    assert all(f"<!-- end {name} -->\n" in text for name in sections)


@pytest.mark.parametrize("path", STUDIES, ids=lambda path: path.stem)
def test_what_it_asks_for_can_be_run(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if "../shared/traces" in path.read_text(encoding="utf-8") and not TRACES.exists():
        pytest.skip("the real traces are not beside the repository")
    monkeypatch.chdir(ROOT)
    plan = read_plan(path)
    policies = {task.policy for task in plan.tasks}
    assert all(set(pair) <= policies for pair in read_effects(plan.study).values())


def test_every_page_of_results_begins_with_a_command() -> None:
    for page in sorted((ROOT / "docs" / "results").glob("*.md")):
        lines = page.read_text(encoding="utf-8").splitlines()
        assert lines[2] == "```", page.name
