"""The figure of a comparison holds every model and both worlds, also where there is little to draw."""

from pathlib import Path

import pytest

from analysis.fidelity import draw_fidelity

JCT_S = {"resnet50": [(100.0, 95.0), (200.0, 210.0)], "vgg11": [(50.0, 70.0)]}
USAGE = {"real": [(0.0, 0), (10.0, 4), (300.0, 0)], "simulated": [(0.0, 4), (280.0, 0)]}


@pytest.mark.parametrize(("name", "magic"), [("compare.png", b"\x89PNG"), ("compare.svg", b"<?xml")])
def test_the_figure_is_drawn_in_the_format_of_its_name(tmp_path: Path, name: str, magic: bytes) -> None:
    draw_fidelity(JCT_S, USAGE, 8, tmp_path / name)
    assert (tmp_path / name).read_bytes().startswith(magic)


def test_models_worlds_and_units_stand_in_the_figure(tmp_path: Path) -> None:
    draw_fidelity(JCT_S, USAGE, 8, tmp_path / "compare.svg")
    text = (tmp_path / "compare.svg").read_text()
    for label in ("resnet50", "vgg11", "real", "simulated", "all 8 GPUs", "real, seconds", "within 10 %"):
        assert f"<!-- {label} -->" in text
    assert "seconds since the first submission" in text


def test_long_runs_have_minutes_on_the_axis(tmp_path: Path) -> None:
    draw_fidelity(JCT_S, {"real": [(0.0, 1), (900.0, 0)]}, 8, tmp_path / "compare.svg")
    assert "minutes since the first submission" in (tmp_path / "compare.svg").read_text()
