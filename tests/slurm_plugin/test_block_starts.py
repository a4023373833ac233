"""What `python -m tests.slurm_plugin.soak --blocks` takes for a start in the wrong place."""

import pytest

from slurm_plugin.client.block_topology import BlockTopology
from tests.slurm_plugin.soak.block_starts import BlockJob, misplaced

TORN = "its segments are of 2 nodes, and it has 2 in r0, 1 in r1, 1 in r2"
BLOCKS = BlockTopology({4: {f"n{number}": f"r{number // 4}" for number in range(12)}}, takes_segments=True)


@pytest.mark.parametrize(
    ("job", "nodes", "decided", "why"),
    [
        (BlockJob(4, 2, ()), ("n0", "n1", "n4", "n5"), {"n0", "n1", "n4", "n5"}, ""),
        (
            BlockJob(4, 2, ()),
            ("n0", "n1", "n4", "n8"),
            None,
            "its segments are of 2 nodes, and it has 2 in r0, 1 in r1, 1 in r2",
        ),
        (BlockJob(4, 1, ()), ("n0", "n1", "n4", "n8"), None, ""),
        (BlockJob(2, 0, ()), ("n0", "n1"), {"n0", "n2"}, "decided were n0,n2"),
        (BlockJob(3, 0, ()), ("n0", "n1"), None, "2 nodes"),
    ],
)
def test_a_start_is_wrong_on_other_nodes_or_in_torn_segments(
    job: BlockJob, nodes: tuple[str, ...], decided: set[str] | None, why: str
) -> None:
    assert misplaced(job, nodes, decided, BLOCKS) == why
