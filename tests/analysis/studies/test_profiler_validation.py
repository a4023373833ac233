"""The tables of docs/profiler-validation.md say what the profiles do."""

from dataclasses import replace

from analysis.studies.profiler_validation import errors_table, iterations_table, list_cells, rings_table
from profiler.report.assemble import assemble
from tests.profiler.report.machine import FAR, RACK, SLOW, SOLO, measure

APART = replace(RACK, tier="network")
RAWS = (measure(SOLO), measure(RACK), measure(SLOW, error=0.25), measure(APART), measure(FAR, error=-0.5))
PROFILES = assemble(RAWS, "2026-01-01T00:00:00Z")


def lines(table: str) -> list[list[str]]:
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()]


def test_errors_are_absolute_and_counted_by_ranks() -> None:
    _, _, two, four, all_ = lines(errors_table(list_cells(PROFILES)))
    assert two == ["2", "6", "6.7%", "20.0%"]
    assert four == ["4", "2", "100.0%", "100.0%"]
    assert all_ == ["all", "8", "30.0%", "100.0%"]


def test_iterations_stand_under_their_rate_with_measured_before_predicted() -> None:
    header, _, *rows = lines(iterations_table(list_cells(PROFILES)))
    cells = {(row[0], row[1]): dict(zip(header[2:], row[2:], strict=True)) for row in rows}
    assert header == ["model", "place", "500 Mb/s", "1 Gb/s", "2 Gb/s"]
    assert cells["vgg", "rack 2x1"]["500 Mb/s"].endswith("(-20.0%)")
    assert cells["vgg", "network 4x1"]["1 Gb/s"].endswith("(+100.0%)")
    assert cells["vgg", "network 4x1"]["2 Gb/s"] == ""
    measured, _, predicted, _ = cells["vgg", "rack 2x1"]["500 Mb/s"].split()
    assert float(measured) > float(predicted)


def test_all_reduces_are_held_against_the_ring_in_a_rack_alone() -> None:
    slow = measure(APART)
    slow = replace(slow, reduced=tuple(replace(item, median_s=9.0) for item in slow.reduced))
    profiles = assemble((measure(SOLO), measure(RACK), slow), "2026-01-01T00:00:00Z")
    header, _, *rows = lines(rings_table(profiles))
    factors = {row[0]: float(row[1]) for row in rows}
    assert header == ["bytes", "2 Gb/s"]
    assert factors["64 MiB"] == 1.0
    assert factors["64 KiB"] == 1.381  # 100 us of latency beside 262 us of sending
