"""What an object of ours holds, as plain data: two descriptions are equal if nothing has changed."""

from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence, Set
from enum import Enum
from functools import cache, cached_property
from types import FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np

from dally.cluster.free import FreeGpus
from dally.cluster.topology import Topology
from dally.policies.base import Cache
from dally.profiles.costs import CostModel
from dally.state import ClusterState, JobState

_OPAQUE = (ClusterState, CostModel, FreeGpus, Topology, Cache, FunctionType, MethodType, ModuleType, type)
"""What is no part of a policy: the cluster, which is compared by itself, caches, and code."""

_PLAIN = (int, float, complex, str, bytes, bool, type(None), Enum, np.generic)
_MOSTLY = frozenset({int, float, str, bool, type(None)})
"""The types of nearly all values; to tell them by this is quicker than to ask for each type once more."""

_UNSET = object()


def described(thing: object) -> object:
    """All that a policy holds and knows, attribute by attribute, in plain data that can be compared."""
    return _describe(thing, set())


def _describe(thing: Any, above: set[int]) -> object:
    kind = type(thing)
    form = _form(kind)
    if form is _PLAIN:
        return kind, thing  # as 1, 1.0 and True are equal, and not the same
    if form is _OPAQUE or id(thing) in above:
        return kind.__name__
    if form is JobState:
        return "job", thing.job_id
    if form is np.ndarray:
        return str(thing.dtype), thing.shape, thing.tobytes()
    above.add(id(thing))
    if form is Mapping:
        found: object = (_each(thing, above), _each(thing.values(), above))
    elif form is Set:
        found = sorted(repr(_describe(each, above)) for each in thing)
    elif form is Sequence:
        found = _each(thing, above)
    else:
        found = kind.__name__, _attributes(thing, above)
    above.remove(id(thing))
    return found


def _each(things: Collection[Any], above: set[int]) -> object:
    kinds = [*map(type, things)]
    if _MOSTLY.issuperset(kinds):  # all at once what `_describe` does one by one
        return kinds, [*things]
    return [_describe(each, above) for each in things]


def _form_of(kind: type) -> object:
    """As what things of a type are described; their own type, if attribute by attribute."""
    if issubclass(kind, _PLAIN):
        return _PLAIN
    if issubclass(kind, _OPAQUE):
        return _OPAQUE
    if issubclass(kind, deque):
        return Sequence
    forms = (JobState, np.ndarray, Mapping, Set, Sequence)
    return next((form for form in forms if issubclass(kind, form)), kind)


def _attributes(thing: object, above: set[int]) -> tuple[object, ...]:
    """The names in its dictionary, the values there, and the values in slots."""
    derived, slots = _kept_by(type(thing))
    held = getattr(thing, "__dict__", {})
    names = [name for name in held if name not in derived]
    values = [held[name] for name in names]
    in_slots = [getattr(thing, slot, _UNSET) for slot in slots]
    return names, _each(values, above), _each(in_slots, above)


def _kept_of(kind: type) -> tuple[frozenset[str], tuple[str, ...]]:
    """The cached properties of a type, which are no part of its things, and all its slots."""
    derived: set[str] = set()
    found: list[str] = []
    for each in kind.__mro__:
        derived |= {name for name, value in vars(each).items() if isinstance(value, cached_property)}
        slots = vars(each).get("__slots__", ())
        found += [slots] if isinstance(slots, str) else slots
    return frozenset(derived), tuple(found)


_form: Callable[[type], object] = cache(_form_of)
_kept_by: Callable[[type], tuple[frozenset[str], tuple[str, ...]]] = cache(_kept_of)
