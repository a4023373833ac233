import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from profiler.commands import values


def test_a_sweep_goes_up_by_factors_of_four_to_just_the_last_size() -> None:
    assert values.sweep("4K:256K") == (4096, 16384, 65536, 262144)
    assert values.sweep("1M:6MiB") == (2**20, 2**22, 6 * 2**20)
    assert values.sweep("1K:1K") == (1024,)


@given(st.integers(1, 2**28), st.integers(1, 2**28))
def test_a_sweep_ascends_from_its_first_size_to_its_last(one: int, other: int) -> None:
    low, high = sorted((4 * one, 4 * other))
    sizes = values.sweep(f"{low}:{high}")

    assert list(sizes) == sorted(set(sizes))
    assert (sizes[0], sizes[-1]) == (low, high)
    assert all(size % 4 == 0 for size in sizes)


@pytest.mark.parametrize(
    "text", ["", "4K", "4K:", ":4K", "8K:4K", "0:4K", "4K:1T", "4.1:8", "-4:4", "a:b", "6:10"]
)
def test_what_is_no_sweep_is_refused(text: str) -> None:
    with pytest.raises(click.BadParameter, match="such as 4K:256M"):
        values.sweep(text)


@pytest.mark.parametrize(
    ("text", "rate_bps"),
    [("1Gb", 1e9), ("200Mb/s", 200e6), ("2.5Gbit", 2.5e9), ("1e9", 1e9), ("10Gbps", 10e9), ("500k", 5e5)],
)
def test_rates_are_read(text: str, rate_bps: float) -> None:
    assert values.rate(text) == rate_bps


@pytest.mark.parametrize("text", ["", "0", "1GB", "fast", "-1Gb", "1e400"])
def test_what_is_no_rate_is_refused(text: str) -> None:
    with pytest.raises(click.BadParameter, match="such as 1Gb or 200Mb"):
        values.rate(text)


def test_counts_are_read() -> None:
    assert values.counts("2,2, 3") == (2, 2, 3)


@pytest.mark.parametrize("text", ["", "0", "2,", "a", "-1", "1.5"])
def test_what_are_no_counts_is_refused(text: str) -> None:
    with pytest.raises(click.BadParameter, match="such as 2,2"):
        values.counts(text)


def test_names_are_read() -> None:
    assert values.names("v100, k80") == ("v100", "k80")
    with pytest.raises(click.BadParameter, match="such as v100,k80"):
        values.names("v100,,k80")


def test_speeds_are_one_for_all_or_one_for_each_name() -> None:
    assert values.speeds("1.5") == 1.5
    assert values.speeds("v100=2, k80=0.5") == {"v100": 2.0, "k80": 0.5}


@pytest.mark.parametrize("text", ["", "v100=", "v100=2,k80", "=2", "v100=-1", "v100,k80"])
def test_what_are_no_speeds_is_refused(text: str) -> None:
    with pytest.raises(click.BadParameter, match="must be"):
        values.speeds(text)


def test_plain_numbers_are_read() -> None:
    assert [values.positive(text) for text in ("9", "2.5", "1e3")] == [9.0, 2.5, 1000.0]


@pytest.mark.parametrize("text", ["", "0", "-1", "nan", "inf", "1e10", "ten"])
def test_what_is_no_plain_number_above_0_is_refused(text: str) -> None:
    with pytest.raises(click.BadParameter, match="must be a number above 0, at most 1e"):
        values.positive(text)
