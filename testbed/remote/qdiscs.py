"""Queueing disciplines as `tc` tells them: which can be put back exactly, and by which words of tc."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from dally.errors import InputError

Qdisc = Mapping[str, Any]
"""An entry of `tc -raw -json qdisc show dev INTERFACE`."""

Words = tuple[str, ...]
"""What follows `tc qdisc replace dev INTERFACE root`; none to delete what is there instead."""

HANDLE = "da11:"
"""Of what Dally puts on an interface."""

_DEFAULT_HANDLE = "0:"
_NOT_SETTINGS = ("dev", "refcnt")
_INGRESS = ("ingress", "clsact")
_TICK_S = 64e-9
"""What the time of a burst is counted in, by the kernel."""

_CODEL = ("limit", "flows", "quantum", "memory_limit", "drop_batch")


def settings(qdiscs: Sequence[Qdisc]) -> list[dict[str, Any]]:
    """What of the entries are settings, in an order that does not matter."""
    kept = ({key: value for key, value in one.items() if key not in _NOT_SETTINGS} for one in qdiscs)
    return sorted(kept, key=lambda one: (str(one.get("parent", "")), str(one.get("handle", ""))))


def root(qdiscs: Sequence[Qdisc]) -> Qdisc | None:
    """The one through which all leaves."""
    return next((one for one in qdiscs if one.get("root")), None)


def is_ours(qdiscs: Sequence[Qdisc]) -> bool:
    """Whether Dally shapes the interface."""
    return (root(qdiscs) or {}).get("handle") == HANDLE


def in_words(qdiscs: Sequence[Qdisc]) -> str:
    """What leaves an interface goes through."""
    top = root(qdiscs)
    if not top:
        return "nothing"
    rate = top.get("options", {}).get("rate")
    return f"{top['kind']} at {rate * 8 / 1e6:g} Mb/s" if rate else str(top["kind"])


def ways_back(qdiscs: Sequence[Qdisc], default: str) -> tuple[Words, ...]:
    """Ways to put back what is there, to be tried elsewhere first unless it is a default.

    Args:
        qdiscs: What is there.
        default: What the kernel gives an interface of itself, net.core.default_qdisc.

    Raises:
        InputError: It cannot be put back exactly.
    """
    top = root(qdiscs)
    below = [one for one in qdiscs if not one.get("root") and one["kind"] not in _INGRESS]
    if not top:
        raise InputError("it has no queueing discipline; is it up?")
    if top["handle"] == _DEFAULT_HANDLE:
        for leaf in below if top["kind"] == "mq" else [top, *below]:
            if leaf["kind"] not in ("noqueue", default) or leaf["handle"] != _DEFAULT_HANDLE:
                raise InputError(
                    f"it has {leaf['kind']}, which cannot be restored exactly: the default here is {default}"
                )
        return ((),)
    if below or top["kind"] not in _WORDS:
        raise InputError(f"it has {top['kind']} with settings of its own, which cannot be restored exactly")
    options = top.get("options", {})
    found = _WORDS[top["kind"]](options)
    return tuple(("handle", str(top["handle"]), str(top["kind"]), *words) for words in found)


def _tbf_words(options: Mapping[str, Any]) -> Iterator[Words]:
    """With the burst by its time, as tc tells its bytes only roughly."""
    rate, limit = options.get("rate", 0), options.get("limit", 0)
    burst = int(str(options.get("burst_raw", "0")), 16) * _TICK_S * rate
    for more in (0, 1):
        yield ("rate", f"{rate * 8}bit", "burst", str(math.ceil(burst) + more), "limit", str(limit))


def _codel_words(options: Mapping[str, Any]) -> Iterator[Words]:
    """As the kernel sets it, or with times that tc may round to those that are there."""
    yield ()
    for more in (0, 1):
        times = [(key, f"{options[key] + more}us") for key in ("target", "interval") if key in options]
        counts = [(key, str(options[key])) for key in _CODEL if key in options]
        flag = "ecn" if options.get("ecn") else "noecn"
        yield (*(word for pair in (*counts, *times) for word in pair), flag)


_WORDS: Mapping[str, Callable[[Mapping[str, Any]], Iterable[Words]]] = {
    "tbf": _tbf_words,
    "fq_codel": _codel_words,
    "pfifo": lambda options: [("limit", str(options.get("limit", 0)))],
    "bfifo": lambda options: [("limit", str(options.get("limit", 0)))],
    "fq": lambda options: [()],
    "pfifo_fast": lambda options: [()],
}
"""Kinds that may have been put there by hand; without words they have the kernel's settings."""
