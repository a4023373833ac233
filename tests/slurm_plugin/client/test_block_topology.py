"""Blocks as Slurm shows them, and the starts that it refuses there."""

import pytest

from slurm_plugin.client.block_topology import BlockTopology
from slurm_plugin.client.node_text import read_blocks

SHOWN = """\
BlockName=rack0 BlockIndex=0 Nodes=n[1-4] BlockSize=4
BlockName=rack1 BlockIndex=1 Nodes=n[5-8] BlockSize=4
BlockName=rack2 BlockIndex=2 Nodes=n[9-12] BlockSize=4
BlockName=rack3 BlockIndex=3 Nodes=n[13-16] BlockSize=4
AggregatedBlock=rack[0-1] BlockIndex=4 Nodes=n[1-8] BlockSize=8
AggregatedBlock=rack[2-3] BlockIndex=5 Nodes=n[9-16] BlockSize=8
"""
"""Of Slurm 26.05.5, with BlockSizes=4,8."""


@pytest.mark.parametrize(
    ("numbers", "starts"),
    [
        ([1, 5], False),
        ([1, 2, 3, 4, 5], True),
        ([1, 2, 3, 5, 6], True),
        ([1, 2, 3, 4, 9], False),
        ([1, 2, 3, 4, 5, 6, 7, 8], True),
        ([1, 2, 3, 4, 9, 10, 11, 12], False),
        ([1, 2, 3, 4, 5, 9, 10, 11, 12], True),
        ([1, 2, 3, 5, 6, 7, 9, 10, 11], True),
    ],
)
def test_a_job_without_a_segment_starts_where_slurm_26_05_started_it(
    numbers: list[int], starts: bool
) -> None:
    blocks = read_blocks([SHOWN], (24, 11))
    refusal = blocks.refusal([f"n{number}" for number in numbers])
    assert (refusal == "") is starts


def test_a_refusal_says_how_many_blocks_there_may_be() -> None:
    refusal = read_blocks([SHOWN], (26, 5)).refusal(["n1", "n5"])
    assert refusal == "it has no segment, so Slurm starts its 2 nodes in 1 block of 4, not in 2"


def test_switches_are_no_blocks_and_several_topologies_are_put_together() -> None:
    tree = "SwitchName=rack0 Level=0 LinkSpeed=1 Nodes=n[1-4]\n"
    assert read_blocks([tree], (26, 5)).block_of == {}
    both = read_blocks([tree, "BlockName=b Nodes=m[1-2] BlockSize=2\n", SHOWN], (26, 5))
    assert (sorted(both.block_of), both.block_of[2]) == ([2, 4, 8], {"m1": "b", "m2": "b"})


@pytest.mark.parametrize(("version", "wants"), [((24, 11), False), ((25, 5), False), ((25, 11), True)])
def test_segments_are_wanted_where_there_are_blocks_and_slurm_takes_them(
    version: tuple[int, int], wants: bool
) -> None:
    assert read_blocks([SHOWN], version).wants_segments is wants
    assert not BlockTopology(takes_segments=True).wants_segments


@pytest.mark.parametrize(
    ("numbers", "segment", "torn"),
    [
        ([1, 2, 5, 6], 2, ""),
        ([1, 2, 3, 4], 2, ""),
        ([1, 2, 3, 5], 2, "its segments are of 2 nodes, and it has 3 in rack0, 1 in rack1"),
        ([1, 5], 2, "its segments are of 2 nodes, and it has 1 in rack0, 1 in rack1"),
        ([1, 5], 4, "its segments are of 2 nodes, and it has 1 in rack0, 1 in rack1"),
        ([1, 5, 9], 1, ""),
        ([1, 5, 9], 0, ""),
        ([1, 2, 3, 5, 6, 7], 3, ""),
        ([1, 2, 3, 4, 5, 6], 3, "its segments are of 3 nodes, and it has 4 in rack0, 2 in rack1"),
        ([1, 2, 3, 4, 5, 6, 7, 8], 4, ""),
        ([1, 2, 3, 4, 9, 10, 11, 12], 8, ""),
        ([9, 10, 11, 12, 13, 14], 4, ""),
    ],
)
def test_a_segment_is_torn_where_slurm_26_05_refuses_the_nodes(
    numbers: list[int], segment: int, torn: str
) -> None:
    """The last two: one larger than a block, and what is left after two nodes of eight were given back."""
    blocks = read_blocks([SHOWN], (26, 5))
    assert blocks.torn([f"n{number}" for number in numbers], segment) == torn


def test_a_segment_is_judged_by_the_blocks_of_its_own_topology() -> None:
    both = read_blocks(
        ["BlockName=b Nodes=m[1-2] BlockSize=2\nBlockName=c Nodes=m[3-4] BlockSize=2\n", SHOWN], (26, 5)
    )
    assert (
        both.torn(["n1", "n2", "n3", "n5"], 2)
        == "its segments are of 2 nodes, and it has 3 in rack0, 1 in rack1"
    )
    assert both.torn(["m1", "m3"], 2) == "its segments are of 2 nodes, and it has 1 in b, 1 in c"
    assert both.torn(["n1", "n2", "n3", "n4"], 4) == ""


SPREAD, CLOSE = (True, False), (False, True)


@pytest.mark.parametrize(
    ("numbers", "segment", "layout", "starts"),
    [
        ([1, 2, 5, 6], 2, SPREAD, True),
        ([1, 2, 3, 4], 2, SPREAD, False),
        ([1, 2, 3, 4, 5, 6], 2, SPREAD, False),
        ([1, 5, 9], 1, SPREAD, True),
        ([1, 2, 9], 1, SPREAD, False),
        ([1, 2, 3, 4], 2, CLOSE, True),
        ([1, 2, 5, 6], 2, CLOSE, False),
        ([1, 2, 5, 6, 7, 8], 2, CLOSE, True),
        ([1, 2, 9, 10, 11, 12], 2, CLOSE, False),
        ([1, 2, 3, 4, 5, 6, 7, 8, 9, 10], 2, CLOSE, True),
        ([1, 2, 5, 6], 2, (True, True), True),
        ([1, 2, 9, 10], 2, (True, True), False),
        ([1, 2, 5, 6, 9, 10], 2, (True, True), True),
        ([1, 2, 3, 4], 2, (True, True), False),
    ],
)
def test_segments_are_laid_out_where_slurm_26_05_starts_them(
    numbers: list[int], segment: int, layout: tuple[bool, bool], starts: bool
) -> None:
    """More nodes than the largest size holds may be anywhere: so are ten of ten, and three whole blocks."""
    blocks = read_blocks([SHOWN], (26, 5))
    assert (blocks.refusal([f"n{number}" for number in numbers], segment, *layout) == "") is starts
