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

    def holding(self, nodes: int, among: Collection[str]) -> Mapping[str, str]:
        """The block of each node, of the smallest size that holds so many; none: they may be anywhere.

        Args:
            nodes: So many.
            among: Nodes of the topology that is looked at, as several may have blocks of several sizes.
        """
        return next((self.block_of[size] for size in self._sizes(among) if size >= nodes), {})

    def _sizes(self, among: Collection[str]) -> list[int]:
        return sorted(size for size, of in self.block_of.items() if not of.keys().isdisjoint(among))

    def consolidated(
        self, nodes: int, segment: int, spread: bool, among: Collection[str]
    ) -> Mapping[str, str]:
        """The block of each node, of which a job that consolidates its segments must have one; see `holding`.

        Segments that are spread as well are taken to need whole blocks each, as many nodes times as blocks
        that one needs. Source: the use of CONSOLIDATE_SEGMENTS in topology/block/eval_nodes_block.c.
        """
        sizes = self._sizes(among)
        if spread and sizes:
            base = sizes[0]
            nodes = nodes // segment * base * -(-segment // base)
        return self.holding(nodes, among)

    def refusal(
        self, nodes: Collection[str], segment: int = 0, spread: bool = False, consolidated: bool = False
    ) -> str:
        """Why Slurm does not start a job with such a segment, 0 for none, on just these; empty if it does."""
        if segment:
            return self.torn(nodes, segment) or self._misplaced(nodes, segment, spread, consolidated)
        for size, block_of in self.block_of.items():
            blocks = {block_of[node] for node in nodes if node in block_of}
            most = -(-len(nodes) // size)
            if len(blocks) > most:
                return (
                    f"it has no segment, so Slurm starts its {len(nodes)} nodes in {most} "
                    f"block{'s' * (most > 1)} of {size}, not in {len(blocks)}"
                )
        return ""

    def _misplaced(self, nodes: Collection[str], segment: int, spread: bool, consolidated: bool) -> str:
        """What is wrong with the layout of segments over blocks, in words; empty if nothing is."""
        segment = min(segment, len(nodes))
        if spread:
            shares = Counter(self.holding(segment, nodes).get(node, node) for node in nodes)
            if crowded := [block for block, count in shares.items() if count > segment]:
                return f"several of its segments are in {crowded[0]}, and it spreads them"
        if consolidated:
            block_of = self.consolidated(len(nodes), segment, spread, nodes)
            blocks = sorted({block_of.get(node, node) for node in nodes} if block_of else ())
            if len(blocks) > 1:
                return f"its segments are in {', '.join(blocks)}, and it consolidates them"
        return ""
