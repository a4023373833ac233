"""The table of transitions is whole, is what the page shows, and has one writer."""

import ast
from dataclasses import fields
from itertools import product
from pathlib import Path

import pytest

from dally.markdown import replace_section
from slurm_plugin.controller.managed_job import JobPhase, ManagedJob
from slurm_plugin.controller.transition_table import TRANSITIONS, JobEvent, as_markdown, next_phase
from slurm_plugin.controller.transitions import JobTransitions

ROOT = Path(__file__).parents[3]


def test_every_event_is_a_method_of_the_writer_and_has_a_place_in_the_table() -> None:
    assert {event for _, event in TRANSITIONS} == {*JobEvent}
    assert all(callable(getattr(JobTransitions, event)) for event in JobEvent)


def test_every_phase_can_be_entered_left_and_ended() -> None:
    for phase in JobPhase:
        others = [(before, after) for (before, _), (after, _) in TRANSITIONS.items() if before is not after]
        assert any(after is phase for _, after in others)
        assert any(before is phase for before, _ in others)
        assert next_phase(phase, JobEvent.END) is None


@pytest.mark.parametrize(
    ("phase", "event"), [each for each in product((None, *JobPhase), JobEvent) if each not in TRANSITIONS]
)
def test_what_the_table_does_not_have_is_an_error(phase: JobPhase | None, event: JobEvent) -> None:
    with pytest.raises(RuntimeError, match=f"{event} cannot happen to a job that is"):
        next_phase(phase, event)


def test_nobody_else_writes_to_a_managed_job() -> None:
    names = {each.name for each in fields(ManagedJob)}
    found = []
    for path in (ROOT / "slurm_plugin").rglob("*.py"):
        if path.name == "transitions.py":
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
            for target in (each for whole in targets if whole for each in ast.walk(whole)):
                if isinstance(target, ast.Attribute) and isinstance(target.ctx, ast.Store):
                    owner = target.value.id if isinstance(target.value, ast.Name) else ""
                    if target.attr in names and owner != "self":
                        found.append(f"{path.name}:{target.lineno} {ast.unparse(target)}")
    assert not found


def test_the_page_shows_the_table_as_it_is() -> None:
    page = (ROOT / "docs" / "controller.md").read_text(encoding="utf-8")
    assert replace_section(page, "transitions", as_markdown()) == page, "python scripts/draw_transitions.py"
