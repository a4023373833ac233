import pytest

from dally.profiles.allreduce import bus_bandwidth_bps
from dally.profiles.schema import Reduced


@pytest.mark.parametrize(("members", "bandwidth_bps"), [(2, 1e9), (4, 1.5e9)])
def test_bus_bandwidth_is_that_of_nccl_tests(members: int, bandwidth_bps: float) -> None:
    reduced = Reduced(bytes=1_000_000, median_s=0.008, p10_s=None, p90_s=None, n=5)
    assert bus_bandwidth_bps(reduced, members) == pytest.approx(bandwidth_bps)
