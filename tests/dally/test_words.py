"""Times and differences as people read them."""

import pytest

from dally.words import change, duration, moment, plural, share


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 s"), (42, "42 s"), (318, "5.3 min"), (25_560, "7.1 h"), (1_080_000, "12.5 d"), (1e9, "11,574 d")],
)
def test_durations(seconds: float, text: str) -> None:
    assert duration(seconds) == text


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
