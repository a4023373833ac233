"""Messages on their way: connections on which one follows another, and links that they share."""

from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf

from dally.profiles.event_replay import Transfer

Moment = tuple[int, bool]
"""A transfer by its number, and whether all of it is done, or else only its sender need not wait any more."""

_Lane = tuple[int, int, bool]
"""Links of a stage, or of a domain below 0, by its number; and whether they carry what it sends or gets."""

_Connection = tuple[int, int]
"""What two stages send each other, each way; of a stage's collectives, its number and links less than 0."""

_NOTHING = 1e-12
"""What is left after so small a part of the time until then is nothing."""


@dataclass(slots=True)
class _Sent:
    """A transfer on its way: the links that carry it, and what is left of the seconds that it takes alone.

    Alone it takes this share of its stage's, as a link farther on may be slower, and of each lane so many
    times as much. The sender need not wait for the last seconds, which its kernel holds.
    """

    number: int
    lanes: Mapping[_Lane, float]
    share: float
    left_s: float
    held_s: float

    @property
    def until_next_s(self) -> float:
        """Seconds alone until the sender need not wait any more, then until it is done."""
        return self.left_s - self.held_s if self.left_s > self.held_s else self.left_s


class Connections:
    """What is sent between stages, or ranks: see `replay_stages_s`.

    Attributes:
        at_s: When moments came, seconds.
    """

    def __init__(self, transfers: Sequence[Transfer], by_gloo: bool) -> None:
        """Nothing is handed over yet.

        Args:
            transfers: All that will be.
            by_gloo: Whether what asks for a message goes the way of messages and waits for those sent before
                it, as gloo's do (NOTIFY_RECV_READY in gloo/transport/tcp/pair.cc). NCCL does not wait until
                what its buffer holds is asked for.
        """
        self.at_s: dict[Moment, float] = {}
        self._transfers = transfers
        self._by_gloo = by_gloo
        self._now_s = 0.0
        self._queues: dict[_Connection, deque[tuple[int, bool]]] = defaultdict(deque)
        self._sending: dict[_Connection, _Sent] = {}
        self._rates: dict[_Connection, float] = {}  # empty until they are worked out anew
        self._handed: set[int] = set()
        self._asked: set[int] = set()

    def send(self, number: int) -> None:
        """A transfer is handed over; a message begins once it is asked for, if NCCL's buffer holds less."""
        if number in self._handed:
            return  # it was forced
        self._handed.add(number)
        each = self._transfers[number]
        if each.to >= 0 and each.held >= 1.0 and not self._by_gloo:
            self._asked.add(number)
        if each.to < 0 or number in self._asked:
            self._put(number, asks=False)

    def ask(self, number: int) -> None:
        """The stage that a message goes to is ready for it, and tells its sender."""
        if self._by_gloo:
            self._put(number, asks=True)
        else:
            self._hear(number)

    def force(self, number: int) -> None:
        """Begin a message whatever it waits for."""
        self.send(number)
        self._hear(number)

    def next_s(self) -> float:
        """When the next transfer is done, or its sender need not wait for it any more."""
        rates = self._shared()
        left = (sent.until_next_s / rates[where] for where, sent in self._sending.items())
        return self._now_s + min(left, default=inf)

    def advance(self, now_s: float) -> None:
        """Carry on until then."""
        rates = self._shared()
        for where, sent in self._sending.items():
            sent.left_s -= (now_s - self._now_s) * rates[where]
        self._now_s = now_s
        for where, sent in list(self._sending.items()):
            if sent.left_s <= sent.held_s + _NOTHING * now_s:
                self.at_s.setdefault((sent.number, False), now_s)
                sent.held_s = sent.left_s
            if sent.left_s <= _NOTHING * now_s:
                self.at_s[sent.number, True] = now_s
                del self._sending[where]
                self._rates = {}
                self._proceed(where)

    def _hear(self, number: int) -> None:
        if number in self._asked:
            return  # it was forced
        self._asked.add(number)
        if number in self._handed:
            self._put(number, asks=False)

    def _put(self, number: int, asks: bool) -> None:
        each = self._transfers[number]
        if each.to < 0:
            where = each.stage, -1 - each.links
        else:
            where = (each.to, each.stage) if asks else (each.stage, each.to)
        self._queues[where].append((number, asks))
        self._proceed(where)

    def _proceed(self, where: _Connection) -> None:
        """Begin what is first on a connection that carries nothing."""
        queue = self._queues[where]
        while queue and where not in self._sending:
            number, asks = queue.popleft()
            if asks:
                self._hear(number)
                continue
            each = self._transfers[number]
            held_s = each.held * each.seconds
            self._rates = {}
            self._sending[where] = _Sent(number, _lanes(each), each.share, each.seconds, held_s)
            if each.held >= 1.0:
                self.at_s[number, False] = self._now_s

    def _shared(self) -> dict[_Connection, float]:
        """How fast each transfer is, over alone.

        Lanes are shared in equal parts; what one connection cannot use of its part is for the others.
        """
        if self._rates:
            return self._rates
        left = dict.fromkeys((lane for sent in self._sending.values() for lane in sent.lanes), 1.0)
        waiting = dict(self._sending)
        while waiting:
            sharing = dict.fromkeys(left, 0.0)
            for sent in waiting.values():
                for lane, use in sent.lanes.items():
                    sharing[lane] += use
            equal = {lane: left[lane] / uses for lane, uses in sharing.items() if uses}
            parts = {
                where: min(sent.share, *(equal[lane] for lane in sent.lanes))
                for where, sent in waiting.items()
            }
            least = min(parts.values())
            for where in [where for where, part in parts.items() if part == least]:
                sent = waiting.pop(where)
                self._rates[where] = least / sent.share
                for lane, use in sent.lanes.items():
                    left[lane] -= least * use
        return self._rates


def _lanes(each: Transfer) -> Mapping[_Lane, float]:
    """The links that a transfer takes, and how much of each over what it takes of its stage's."""
    lanes = {(each.stage, each.links, True): 1.0}
    if each.to >= 0:
        lanes[each.to, each.links, False] = 1.0
    for crossed in each.crossed_links:
        lanes[-1 - crossed.left, crossed.level, True] = crossed.use
        lanes[-1 - crossed.entered, crossed.level, False] = crossed.use
    return lanes
