"""The figure is drawn, in the format that its name asks for, with the same bytes for the same data."""

from pathlib import Path

import pytest

from analysis.figures import draw_jct

TIMES = {"one": [10.0, 500.0, 9000.0], "two": [70.0, 80.0, 400_000.0]}


@pytest.mark.parametrize(("name", "magic"), [("jct.png", b"\x89PNG"), ("jct.svg", b"<?xml")])
def test_the_distributions_are_drawn_the_same_each_time(tmp_path: Path, name: str, magic: bytes) -> None:
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        draw_jct(TIMES, TIMES, tmp_path / folder / name)
    first = (tmp_path / "a" / name).read_bytes()
    assert first.startswith(magic)
    assert name.endswith("svg") or first == (tmp_path / "b" / name).read_bytes()


def test_every_policy_and_readable_times_stand_in_the_figure(tmp_path: Path) -> None:
    draw_jct(TIMES, TIMES, tmp_path / "jct.svg")
    text = (tmp_path / "jct.svg").read_text()
    for label in ("one", "two", "10 min", "4 d", "share of jobs within"):
        assert f"<!-- {label} -->" in text
    assert "<!-- 40 d -->" not in text


def test_times_of_zero_can_be_drawn(tmp_path: Path) -> None:
    draw_jct({"a": [0.0]}, {"a": [0.0]}, tmp_path / "jct.png")
    assert (tmp_path / "jct.png").stat().st_size > 1000
