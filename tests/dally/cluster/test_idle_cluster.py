"""What a cluster lacks for a gang is told."""

import pytest

from dally.errors import CapacityError
from dally.jobs.job import Gang
from dally.profiles.costs import CostModel
from dally.testing.worlds import racks


@pytest.mark.parametrize(
    ("gpu_types", "gang", "message"),
    [
        (("",), Gang(1, "a100"), "has 0; it names no GPU types"),
        (("a", "b"), Gang(1, "c"), "has 0; its GPUs are of a, b"),
        (("a",), Gang(4, per_machine=4), "4 on each machine, does not fit: .* has 4, no machine more than 2"),
    ],
)
def test_what_a_gang_lacks_is_told(gpu_types: tuple[str, ...], gang: Gang, message: str) -> None:
    costs = CostModel(racks([[2, 2]], gpu_types))
    with pytest.raises(CapacityError, match=message):
        costs.best_level(gang)
