"""Times and differences as people read them."""

import re
from pathlib import Path

import pytest

import dally
from dally.words import are, change, duration, gpu_time, moment, plural, share, span

_GLUED = re.compile(r":[+]?\.[0-9]%[}\"]")
"""A percentage that is formatted without the blank before its sign, as in `61%`."""


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 s"), (42, "42 s"), (318, "5.3 min"), (25_560, "7.1 h"), (1_080_000, "12.5 d"), (1e9, "11,574 d")],
)
def test_durations(seconds: float, text: str) -> None:
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-0.3, "0 s"),
        (0.44, "0.4 s"),
        (59.4, "59 s"),
        (59.6, "1 min"),
        (100, "1 min 40 s"),
        (7_800, "2 h 10 min"),
        (86_399, "24 h"),
        (273_600, "3 d 4 h"),
        (86_400_000, "1,000 d"),
        (float("inf"), "an unlimited time"),
    ],
)
def test_spans_in_sentences(seconds: float, text: str) -> None:
    assert span(seconds) == text


def test_counts_with_their_verb_or_unit() -> None:
    assert (are(1), are(0), are(2)) == ("1 is", "0 are", "2 are")
    assert (gpu_time(1), gpu_time(30), gpu_time(9_000)) == ("1 GPU-second", "30 GPU-seconds", "2.5 GPU-hours")


@pytest.mark.parametrize(
    ("t", "text"), [(0, "00:00:00"), (12_311.9, "03:25:11"), (185_111, "2 d 03:25:11"), (-2.5, "-00:00:02")]
)
def test_moments(t: float, text: str) -> None:
    assert moment(t) == text


@pytest.mark.parametrize(
    ("value", "base", "text"),
    [
        (112, 100, "+12 %"),
        (97, 100, "-3 %"),
        (100.1, 100, "±0 %"),
        (1500, 100, "15 x"),
        (0, 0, ""),
        (1, 0, "new"),
    ],
)
def test_changes(value: float, base: float, text: str) -> None:
    assert change(value, base) == text


def test_counts_and_shares() -> None:
    assert (plural(1, "job"), plural(1200, "job"), share(0.614)) == ("1 job", "1,200 jobs", "61 %")


def test_a_percentage_is_written_in_one_way_in_all_that_users_read() -> None:
    assert (share(0.474), share(0.4741, digits=1)) == ("47 %", "47.4 %")
    root = Path(dally.__file__).parents[1]
    programs = ("dally", "simulator", "slurm_plugin", "testbed", "analysis", "profiler", "workloads")
    files = [file for program in programs for file in (root / program).rglob("*.py")]
    glued = [file for file in files if "studies" not in file.parts and _GLUED.search(file.read_text())]
    assert glued == []
