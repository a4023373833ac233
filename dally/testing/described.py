"""What an object of ours holds, as plain data: two descriptions are equal if nothing has changed."""

from collections import deque
from collections.abc import Iterator, Mapping, Sequence, Set
from enum import Enum
from functools import cached_property
from types import FunctionType, MethodType, ModuleType

import numpy as np

from dally.cluster.free import FreeGpus
from dally.cluster.topology import Topology
from dally.policies.base import Cache
from dally.profiles.costs import CostModel
from dally.state import ClusterState, JobState

_OPAQUE = (ClusterState, CostModel, FreeGpus, Topology, Cache, FunctionType, MethodType, ModuleType, type)
"""What is no part of a policy: the cluster, which is compared by itself, caches, and code."""

_PLAIN = (int, float, complex, str, bytes, bool, type(None), Enum, np.generic)


def described(thing: object) -> object:
    """All that a policy holds and knows, attribute by attribute, in plain data that can be compared."""
    return _describe(thing, set())


def _describe(thing: object, above: set[int]) -> object:
    if isinstance(thing, _PLAIN):
        return repr(thing)
    if isinstance(thing, _OPAQUE) or id(thing) in above:
        return type(thing).__name__
    if isinstance(thing, JobState):
        return f"job {thing.job_id}"
    if isinstance(thing, np.ndarray):
        return (str(thing.dtype), thing.shape, thing.tobytes())
    above = above | {id(thing)}
    if isinstance(thing, Mapping):
        return [(_describe(key, above), _describe(value, above)) for key, value in thing.items()]
    if isinstance(thing, Set):
        return sorted(repr(_describe(each, above)) for each in thing)
    if isinstance(thing, Sequence | deque):
        return [_describe(each, above) for each in thing]
    return type(thing).__name__, {name: _describe(value, above) for name, value in _attributes(thing)}


def _attributes(thing: object) -> Iterator[tuple[str, object]]:
    for name, value in getattr(thing, "__dict__", {}).items():
        if not isinstance(getattr(type(thing), name, None), cached_property):
            yield name, value
    for kind in type(thing).__mro__:
        slots = kind.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if hasattr(thing, name):
                yield name, getattr(thing, name)
