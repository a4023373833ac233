"""The figure holds a bar for each measured slowdown and a line for each swept place."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from dally.errors import InputError
from dally.profiles.files import load_profiles
from dally.profiles.schema import Profile
from profiler.report.assemble import assemble
from profiler.report.figure import draw_profiles, list_bandwidths, list_bars
from tests.profiler.report.machine import FAR, RACK, SLOW, SOLO, iteration_s, measure

PLACES = (SOLO, RACK, SLOW, replace(SLOW, flows=2), FAR)
PROFILES = assemble([measure(place) for place in PLACES], "2026-01-01T00:00:00Z")
ALONE = assemble([measure(SOLO)], "2026-01-01T00:00:00Z")


def test_bars_are_slowdowns_of_several_gpus_by_place() -> None:
    bars = list_bars(PROFILES[0])
    assert list(bars) == [
        "rack 2x1, 2 Gb/s",
        "rack 2x1, 500 Mb/s",
        "rack 2x1 +2 flows, 500 Mb/s",
        "network 4x1, 1 Gb/s",
    ]
    slowdown = iteration_s(RACK, "resnet") / iteration_s(SOLO, "resnet")
    assert bars["rack 2x1, 2 Gb/s"].measured == pytest.approx(slowdown)
    assert bars["rack 2x1, 2 Gb/s"].predicted == pytest.approx(slowdown)


def test_the_bus_bandwidth_of_large_all_reduces_is_that_of_the_link() -> None:
    curves = list_bandwidths(PROFILES)
    for place, rate in (("rack 2x1, 2 Gb/s", 2e9), ("network 4x1, 1 Gb/s", 1e9)):
        assert curves[place][-1][1] == pytest.approx(rate, rel=0.01)


@pytest.mark.filterwarnings("error", "ignore::ResourceWarning")  # of files that other tests left open
@pytest.mark.parametrize("profiles", [PROFILES, ALONE, load_profiles("gavel").profiles], ids=len)
def test_a_figure_is_drawn_of_whatever_was_measured(profiles: Sequence[Profile], tmp_path: Path) -> None:
    draw_profiles(profiles, tmp_path / "a.png")
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("name", ["gone/a.png", "a.poem"])
def test_a_figure_that_cannot_be_written_is_one_line(name: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"figure .* cannot be written") as caught:
        draw_profiles(ALONE, tmp_path / name)
    assert "\n" not in str(caught.value)
