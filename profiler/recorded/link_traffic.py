"""How long the links of a network carry what a recorded job sends in a step, wherever its ranks lie."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from profiler.recorded.record import Collective, CollectiveKind, RankRecord, RecordedGroup


@dataclass(frozen=True, slots=True)
class RankHosts:
    """Where ranks lie, and the links between.

    Attributes:
        hosts: The host of each rank.
        racks: The rack of each host.
        link_bps: Bits per second, each way, of the link of each host to its rack, and of each rack to the
            core; one that is not named carries everything at once.
    """

    hosts: Sequence[str]
    racks: Mapping[str, str]
    link_bps: Mapping[str, float]

    def links(self, rank: int, other: int) -> tuple[tuple[str, str], ...]:
        """The links that a message crosses, each with its direction."""
        here, there = self.hosts[rank], self.hosts[other]
        if here == there:
            return ()
        crossed = ((here, "up"), (there, "down"))
        if self.racks[here] == self.racks[there]:
            return crossed
        return (*crossed, (self.racks[here], "up"), (self.racks[there], "down"))


def link_seconds(records: Sequence[RankRecord], placement: RankHosts) -> float:
    """Seconds in which the slowest link is busy with a step.

    Groups of one kind, such as the tensor groups of all replicas, send at the same time and share links;
    kinds follow one another. A collective goes round a ring of its group's ranks, an all-to-all straight
    from each to each (`Collective.sent_bytes`).

    Args:
        records: Of all ranks.
        placement: Where they lie.
    """
    sent: dict[str, dict[tuple[str, str], float]] = defaultdict(lambda: defaultdict(float))
    for record in records:
        for each in record.step:
            group = record.groups.get(each.group)
            for rank, size in _messages(record.rank, each, group):
                for link in placement.links(record.rank, rank):
                    sent[_kind(each, group)][link] += size
    return sum(_busy_s(links, placement) for links in sent.values())


def _busy_s(sent: Mapping[tuple[str, str], float], placement: RankHosts) -> float:
    """Seconds until the slowest link has carried its bytes."""
    rates = placement.link_bps
    return max((size * 8 / rates[link] for (link, _), size in sent.items() if link in rates), default=0.0)


def _kind(collective: Collective, group: RecordedGroup | None) -> str:
    """What the groups have in common that send at the same time."""
    if collective.kind is CollectiveKind.SEND or group is None:
        return CollectiveKind.SEND
    stride = group.ranks[1] - group.ranks[0] if len(group.ranks) > 1 else 0
    return f"{group.description.rstrip('0123456789')} {len(group.ranks)} {stride}"


def _messages(rank: int, collective: Collective, group: RecordedGroup | None) -> Iterator[tuple[int, float]]:
    """To which ranks a rank sends how many bytes."""
    if group is None or rank not in group.ranks or len(group.ranks) == 1:
        return
    ranks = group.ranks
    size = collective.sent_bytes(len(ranks))
    if collective.kind is CollectiveKind.SEND:
        yield ranks[collective.peer], size
    elif collective.kind is CollectiveKind.ALL_TO_ALL:
        yield from ((other, size / (len(ranks) - 1)) for other in ranks if other != rank)
    else:
        yield ranks[(ranks.index(rank) + 1) % len(ranks)], size
