"""The blocks of topology/block, and on which nodes Slurm starts a job there."""

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

BLOCKS_SINCE = (23, 11)
"""From this version on there is topology/block."""

SEGMENTS_SINCE = (25, 11)
"""From this version on Slurm takes a node list and a segment together (its CHANGELOG/slurm-25.11.md)."""


@dataclass(frozen=True, slots=True)
class BlockTopology:
    """The blocks of some partitions; none under another topology.

    Without a segment Slurm starts a job in no more blocks, of each size, than a perfect packing needs. With
    `--segment=N` it starts on any nodes that are whole segments of N nodes, each in one block, if each node
    gives as many GPUs.

    Attributes:
        block_of: The block of each node, by size: that of the blocks themselves, then those of the larger
            ones that Slurm makes of neighbours (`BlockSizes`).
        takes_segments: This Slurm starts a job with a segment on a node list.
    """

    block_of: Mapping[int, Mapping[str, str]] = field(default_factory=dict)
    takes_segments: bool = False

    @property
    def wants_segments(self) -> bool:
        """Whether jobs are to be submitted with a segment, so that they can start farther apart."""
        return self.takes_segments and bool(self.block_of)

    @property
    def hides_segments(self) -> bool:
        """Whether a job may have a segment with which this Slurm refuses each node list; 24.11 shows none."""
        return bool(self.block_of) and not self.takes_segments

    def torn(self, nodes: Collection[str], segment: int) -> str:
        """Which segment of a job on these nodes does not lie in one block, in words; empty if all do.

        One that is larger than the size of blocks cannot, and Slurm does not ask that of it.
        """
        segment = min(segment, len(nodes))
        if segment < 2:
            return ""
        by_size = sorted(self.block_of.items())  # several topologies may have blocks of several sizes
        smallest = (next(((size, of[node]) for size, of in by_size if node in of), None) for node in nodes)
        counts = Counter(found for found in smallest if found is not None)
        whole = sum(count // segment for count in counts.values())
        if whole >= counts.total() // segment or any(size < segment for size, _ in counts):
            return ""
        shares = ", ".join(f"{count} in {block}" for (_, block), count in sorted(counts.items()))
        return f"its segments are of {segment} nodes, and it has {shares}"

    def refusal(self, nodes: Collection[str], segment: int = 0) -> str:
        """Why Slurm does not start a job with such a segment, 0 for none, on just these; empty if it does."""
        if segment:
            return self.torn(nodes, segment)
        for size, block_of in self.block_of.items():
            blocks = {block_of[node] for node in nodes if node in block_of}
            most = -(-len(nodes) // size)
            if len(blocks) > most:
                return (
                    f"it has no segment, so Slurm starts its {len(nodes)} nodes in {most} "
                    f"block{'s' * (most > 1)} of {size}, not in {len(blocks)}"
                )
        return ""
