from collections.abc import Sequence
from pathlib import Path

import pytest

from profiler.recorded.link_traffic import RankHosts, link_seconds
from profiler.recorded.record import read_run
from tests.profiler.recorded.jobs import entry, write

RACKS = {"a": "r1", "b": "r1", "c": "r2", "d": "r2"}
RATES = {"a": 8e6, "b": 8e6, "c": 8e6, "d": 8e6, "r1": 2e6, "r2": 2e6}
"""A host's link carries a megabyte in a second, a rack's a quarter."""

MB = 1_000_000


@pytest.mark.parametrize(
    ("hosts", "busy_s"),
    [
        ("aaaa", 0.0),
        ("aabb", 2.0),  # both data pairs over the links of both hosts
        ("abcd", 0.5 + 2 / 0.25),
    ],
)
def test_groups_that_send_at_once_share_links_and_axes_follow_one_another(
    tmp_path: Path, hosts: str, busy_s: float
) -> None:
    """Tensor pairs all-reduce half a megabyte, data pairs one; of two ranks each sends as much."""
    for rank in range(4):
        groups: dict[str, tuple[Sequence[int], str]] = {
            "1": ([rank - rank % 2, rank - rank % 2 + 1], "mesh_tp"),
            "2": ([rank % 2, rank % 2 + 2], "mesh_dp"),
        }
        step = [entry("1", "all_reduce", [MB // 2], "Byte"), entry("2", "all_reduce", [MB], "Byte")]
        write(tmp_path, rank, 4, groups, step)
    records = read_run(tmp_path).records
    assert link_seconds(records, RankHosts(hosts, RACKS, RATES)) == pytest.approx(busy_s)
