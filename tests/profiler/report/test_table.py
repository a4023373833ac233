"""The table shows each measured iteration beside what was predicted without it."""

import io
import json
from collections.abc import Sequence
from dataclasses import replace

import pytest
from rich.console import Console

from dally.profiles.files import load_profiles
from dally.profiles.schema import Profile
from profiler.report.assemble import assemble
from profiler.report.raw import RawRun
from profiler.report.table import describe_profiles, list_rows, print_profiles
from tests.profiler.report.machine import FAR, RACK, SLOW, SOLO, iteration_s, measure

RAWS = (
    measure(SOLO),
    measure(RACK),
    measure(SLOW, error=0.25),
    measure(replace(SLOW, flows=3)),
    measure(replace(FAR, spec="interleaved")),
)


def vgg(raws: Sequence[RawRun] = RAWS) -> Profile:
    return next(each for each in assemble(raws, "2026-01-01T00:00:00Z") if each.model.name == "vgg")


def printed(profiles: Sequence[Profile], width: int = 80) -> str:
    text = io.StringIO()
    print_profiles(profiles, Console(file=text, width=width))
    return text.getvalue()


def test_rows_hold_what_was_measured_and_predicted_with_and_without_knowing_the_place() -> None:
    alone, fast, slow, jammed, crossed = list_rows(vgg())
    assert (alone.shape, alone.slowdown, alone.predicted_s, alone.error) == ("1x1", 1.0, None, None)
    assert fast.error == pytest.approx(0.0)
    assert slow.measured_s == pytest.approx(iteration_s(SLOW, "vgg") * 1.25)
    assert slow.predicted_s == pytest.approx(iteration_s(SLOW, "vgg"))
    assert slow.error == pytest.approx(-0.2)
    assert (jammed.shape, jammed.background_flows) == ("2x1 +3 flows", 3)
    assert jammed.predicted_s == pytest.approx(iteration_s(replace(SLOW, flows=3), "vgg"))
    assert crossed.shape == "4x1 interleaved"
    assert crossed.error == pytest.approx(0.0)
    assert crossed.held_out_error == pytest.approx(0.0, abs=1e-3)
    assert [row.held_out_error for row in (alone, fast, slow, jammed)] == [None] * 4


def test_the_table_is_plain_and_fits_80_columns() -> None:
    text = printed([vgg([*RAWS, measure(replace(FAR, bandwidth_bps=5e8), error=0.25)])])
    assert "\x1b" not in text
    assert max(map(len, text.splitlines())) <= 80
    assert "compute 95.0 ms, hides up to 55.0 ms, contention x1.00, 116.0 MB in 2 buckets" in text
    assert "held out: 10.0 % off on average, 20.0 % at most" in text
    assert "beside n foreign flows a job keeps 1 / (1 + 1.00 n) of a link" in text
    assert "! held-out iterations are mispredicted by up to 20.0 %" in text


def test_a_flag_with_brackets_is_shown_as_it_is() -> None:
    raw = measure(SOLO)
    flagged = [replace(each, quality=replace(each.quality, flags=("[busy]",))) for each in raw.trained]
    assert "! machine-1x1-blocked-bg0: [busy]" in printed([vgg([replace(raw, trained=tuple(flagged))])])


def test_the_data_are_json_and_hold_the_rows() -> None:
    (data,) = describe_profiles([vgg()])
    assert json.loads(json.dumps(data))["rows"][1]["tier"] == "rack"
    assert data["model"] == "vgg"


@pytest.mark.parametrize("name", ["dally", "gavel", "pollux", "realistic"])
def test_imported_profiles_have_tables_too(name: str) -> None:
    profiles = load_profiles(name).profiles
    text = printed(profiles)
    assert all(profile.model.name in text for profile in profiles)
