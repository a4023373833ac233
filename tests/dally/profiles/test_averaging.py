"""What averaging copies costs, by hand."""

import pytest

from dally.profiles.averaging import Averaging


def test_a_slot_loses_the_fixed_time_and_the_transfers() -> None:
    """Five copies of 100 MB over 1 Gb/s: twice 2 * 4 / 5 * 0.8 s, beside 10 s."""
    averaging = Averaging(slot_s=100.0, fixed_s=10.0)
    assert averaging.takes_s(5, 100e6, 1e9) == pytest.approx(10 + 2.56)
    assert averaging.left(5, 100e6, 1e9) == pytest.approx(0.8744)
    assert averaging.takes_s(5, None, 1e9) == pytest.approx(10 + 4 * 2.56), "400 MB are assumed"


def test_a_slot_that_averaging_fills_still_trains_a_little() -> None:
    assert Averaging(10.0, 20.0).left(2, 1.0, 1e9) == 1e-3
