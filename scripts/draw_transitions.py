"""Writes the table of the controller's phases into its page: `python scripts/draw_transitions.py`."""

from pathlib import Path

from dally.markdown import replace_section
from slurm_plugin.controller.transition_table import as_markdown

PAGE = Path(__file__).parents[1] / "docs" / "controller.md"

if __name__ == "__main__":
    page = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(replace_section(page, "transitions", as_markdown()), encoding="utf-8")
