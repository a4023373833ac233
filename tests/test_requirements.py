"""The locked requirements are those of pyproject.toml, each with hashes and from nowhere in particular."""

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

FOLDER = Path(__file__).parents[1]
PROJECT = tomllib.loads((FOLDER / "pyproject.toml").read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    ("file", "wanted"),
    [("controller", PROJECT["project"]["dependencies"]), ("build", PROJECT["build-system"]["requires"])],
)
def test_what_a_site_installs_is_pinned_with_hashes_as_the_project_allows(
    file: str, wanted: list[str]
) -> None:
    """Run scripts/lock.sh where this fails."""
    text = (FOLDER / "requirements" / f"{file}.txt").read_text(encoding="utf-8")
    pinned = dict(re.findall(r"(?m)^([\w-]+)==([\w.]+) \\\n    --hash=sha256:", text))
    assert len(pinned) == len(re.findall(r"(?m)^\S", text))
    assert "://" not in text
    for line in wanted:
        asked = Requirement(line)
        assert asked.specifier.contains(pinned[asked.name.lower()]), line
