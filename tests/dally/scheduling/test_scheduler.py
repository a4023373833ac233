"""What run folders are told."""

import pytest

from dally.profiles.costs import Cost
from dally.scheduling.scheduler import told_slowdown


@pytest.mark.parametrize(
    ("slowdown", "told"), [(1.23456789, 1.2346), (0.33333333, 0.3333), (0.00123456, 0.001235)]
)
def test_a_slowdown_is_told_with_four_digits_at_least(slowdown: float, told: float) -> None:
    assert told_slowdown(Cost(slowdown, 0.0, False)) == told
