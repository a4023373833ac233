"""The one registry of policies: ours by name, others by entry point; knobs from `NAME:knob=value,...`."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from importlib.metadata import EntryPoint, entry_points
from math import inf
from typing import Any

from dally.bounds import LEAST, MOST
from dally.config_text import naming
from dally.errors import DallyError, InputError
from dally.extensions import broken_line
from dally.optional import import_optional
from dally.policies.base import Policy
from dally.spec import given_up, now_called, spec_knobs, spec_name
from dally.state import ClusterState

ENTRY_POINTS = "dally.policies"
"""Entry-point group in which other packages register `NAME = "package.module:PolicyClass"`."""

DEFAULT = "srsf-delay"

_OURS = {
    "a-srpt": "dally.policies.a_srpt.policy:AdaptiveSrpt",
    "dally": "dally.policies.dally.policy:Dally",
    "drl": "dally.policies.drl.policy:Drl",
    "elastic-scaling": "dally.policies.elastic_scaling:ElasticScaling",
    "fifo": "dally.policies.fifo:Fifo",
    "gandiva": "dally.policies.gandiva.policy:Gandiva",
    "gavel": "dally.policies.gavel.policy:Gavel",
    "hadar": "dally.policies.hadar.policy:Hadar",
    "hadar-e": "dally.policies.hadar_e.policy:HadarE",
    "jps": "dally.policies.jps.policy:JointPlacement",
    "monkeytree": "dally.policies.monkeytree.policy:MonkeyTree",
    "ones": "dally.policies.ones.policy:Evolution",
    "optimus": "dally.policies.optimus:Optimus",
    "pollux": "dally.policies.pollux.policy:Pollux",
    "sjf": "dally.policies.sjf:ShortestJobFirst",
    "slurm": "dally.policies.slurm.policy:SlurmBackfill",
    "srsf-delay": "dally.policies.srsf_delay.policy:SrsfDelay",
    "srtf": "dally.policies.srtf:ShortestRemainingTimeFirst",
    "tiresias": "dally.policies.tiresias.policy:Tiresias",
}


@dataclass(frozen=True, slots=True)
class Knob:
    """One setting of a policy: its name, default as text, valid values in words and meaning."""

    name: str
    default: str
    valid: str
    help: str


@dataclass(frozen=True, slots=True)
class PolicySpec:
    """A policy and its settings, as asked for by `NAME[:knob=value,...]`."""

    spec: str
    policy: type[Policy]
    knobs: Any

    def build(self, state: ClusterState) -> Policy:
        """A new policy over a state in which nothing has happened yet.

        Raises:
            InputError: The cluster has networks that no job may span, and the policy would not heed that.
            PolicyError: It is another package's and cannot be built.
        """
        if state.topology.islands and not self.policy.islands:
            raise InputError(
                f"policy {self.policy.name} cannot be used on {state.topology.name}: jobs may not span its "
                f"{len(state.topology.root.children)} separate networks, which this policy does not know"
            )
        with blaming(self.policy):
            return self.policy(self.knobs, state)


class PolicyError(DallyError):
    """A policy of another package is broken; the message names it and the place in its code."""


@contextmanager
def blaming(policy: type[Policy]) -> Iterator[None]:
    """Name the policy of another package in whatever its code raises; errors of ours keep their traceback.

    Raises:
        PolicyError: It raised something else than a DallyError.
    """
    try:
        yield
    except DallyError:
        raise
    except Exception as error:
        if policy.__module__.partition(".")[0] == __name__.partition(".")[0]:
            raise
        raise PolicyError(broken_line(f"policy {policy.name!r}", policy.__module__, error)) from error


def policy_names() -> list[str]:
    """All registered names, ours first."""
    return [*_OURS, *sorted(_others())]


def policy_type(name: str) -> type[Policy]:
    """The policy class of a name.

    Raises:
        InputError: No such policy; the message lists the valid names. Or a package that it needs is missing.
    """
    if name in _OURS:
        module, _, attribute = _OURS[name].partition(":")
        with naming(f"policy {name}"):
            found = getattr(import_optional(module), attribute)
    elif name in (others := _others()):
        try:
            found = others[name].load()
        except Exception as error:  # it runs another package's code, which may fail in any way
            raise PolicyError(broken_line(f"policy {name!r}", others[name].module, error)) from error
    else:
        raise InputError(f"unknown policy {name!r}{now_called(name)}; valid: {', '.join(policy_names())}")
    if not (isinstance(found, type) and issubclass(found, Policy)):
        raise InputError(
            f"policy {name!r} is registered as {found!r}, which is no dally.policies.base.Policy"
        )
    _check(name, found)
    return found


def parse_policy(spec: str) -> PolicySpec:
    """Read `NAME[:knob=value,...]`.

    Raises:
        InputError: Unknown policy or knob, or a wrong value; the message lists what is valid.
    """
    policy = policy_type(spec_name(spec))
    known = {knob.name: knob for knob in fields(policy.knobs_type)}
    values: dict[str, object] = {}
    for name, text in spec_knobs(spec).items():
        if name not in known:
            hint = given_up(name)
            # For users who still call the default policy `dally`, as it was once called.
            if policy.name == "dally" and name in {
                each.name for each in fields(policy_type(DEFAULT).knobs_type)
            }:
                hint = f"; {DEFAULT}, which was called dally before, has{hint}"
            valid = ", ".join(known) or "none"
            raise InputError(f"policy {policy.name} has no knob {name!r}{hint}; valid: {valid}")
        values[name] = _value(f"knob {name} of policy {policy.name}", known[name], text)
    with blaming(policy):
        return PolicySpec(spec, policy, policy.knobs_type(**values))


def knobs(policy: type[Policy]) -> list[Knob]:
    """The settings of a policy, in order."""
    return [
        Knob(knob.name, _shown(knob.default), _valid(knob), str(knob.metadata["help"]))
        for knob in fields(policy.knobs_type)
    ]


def _others() -> dict[str, EntryPoint]:
    return {point.name: point for point in entry_points(group=ENTRY_POINTS)}


def _check(name: str, policy: type[Policy]) -> None:
    """Raise PolicyError unless a policy says what the registry tells of it."""
    lacks = [each for each in ("name", "summary", "source", "knobs_type") if not hasattr(policy, each)]
    if not lacks and not is_dataclass(policy.knobs_type):
        lacks = ["dataclass as knobs_type"]
    for knob in fields(policy.knobs_type) if not lacks else ():
        lacks += [f"default of knob {knob.name}"] if knob.default is MISSING else []
        lacks += [f"help of knob {knob.name}"] if "help" not in knob.metadata else []
    if lacks:
        raise PolicyError(f"policy {name!r} ({policy.__module__}) is broken: it has no {', no '.join(lacks)}")


def _shown(value: object) -> str:
    """A knob's value as it is given on the command line."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.15g}" if isinstance(value, float) else str(value)


def _valid(knob: Field[Any]) -> str:
    """The values that a knob may have, in words."""
    known = knob.metadata
    if "choices" in known:
        return " | ".join(known["choices"])
    kind = {bool: "yes | no", int: "whole number", float: "number"}.get(type(knob.default), "text")
    words = {"least": "at least", "above": "more than", "most": "at most"}
    return ", ".join([kind, *(f"{words[each]} {known[each]:g}" for each in words if each in known)])


def _value(what: str, knob: Field[Any], text: str) -> object:
    kind: Any = type(knob.default)
    known = knob.metadata
    try:
        if kind is bool:
            return {"yes": True, "no": False}[text]
        value = kind(text)
        if value not in known.get("choices", (value,)):
            raise ValueError(text)
        if kind is not str and not (
            (value == 0 or LEAST <= abs(value) <= MOST)
            and known.get("least", value) <= value <= known.get("most", value)
            and value > known.get("above", -inf)
        ):
            raise ValueError(text)
    except (KeyError, ValueError) as error:
        raise InputError(f"{what} is {text!r}, must be: {_valid(knob)}") from error
    return value
