"""The one registry of policies: ours by name, others by entry point; knobs from `NAME:knob=value,...`."""

import importlib
from dataclasses import MISSING, Field, dataclass, fields
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from dally.errors import InputError
from dally.policies.base import Policy
from dally.spec import spec_knobs, spec_name
from dally.state import ClusterState

ENTRY_POINTS = "dally.policies"
"""Entry-point group in which other packages register `NAME = "package.module:PolicyClass"`."""

_OURS = {
    "a-srpt": "dally.policies.a_srpt:AdaptiveSrpt",
    "dally": "dally.policies.dally:Dally",
    "dally-paper": "dally.policies.dally_paper:DallyPaper",
    "elastic-scaling": "dally.policies.elastic_scaling:ElasticScaling",
    "fifo": "dally.policies.fifo:Fifo",
    "gandiva": "dally.policies.gandiva:Gandiva",
    "gavel": "dally.policies.gavel:Gavel",
    "hadar": "dally.policies.hadar:Hadar",
    "hadar-e": "dally.policies.hadar_e:HadarE",
    "jps": "dally.policies.jps:JointPlacement",
    "monkeytree": "dally.policies.monkeytree:MonkeyTree",
    "ones": "dally.policies.ones:Evolution",
    "optimus": "dally.policies.optimus:Optimus",
    "pollux": "dally.policies.pollux:Pollux",
    "sjf": "dally.policies.sjf:ShortestJobFirst",
    "slurm": "dally.policies.slurm:Slurm",
    "srtf": "dally.policies.srtf:ShortestRemainingTimeFirst",
    "tiresias": "dally.policies.tiresias:Tiresias",
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
        """A new policy over a state in which nothing has happened yet."""
        return self.policy(self.knobs, state)


def policy_names() -> list[str]:
    """All registered names, ours first."""
    return [*_OURS, *sorted(_others())]


def policy_type(name: str) -> type[Policy]:
    """The policy class of a name.

    Raises:
        InputError: No such policy; the message lists the valid names.
    """
    if name in _OURS:
        module, _, attribute = _OURS[name].partition(":")
        found = getattr(importlib.import_module(module), attribute)
    elif name in (others := _others()):
        found = others[name].load()
    else:
        raise InputError(f"unknown policy {name!r}; valid: {', '.join(policy_names())}")
    if not (isinstance(found, type) and issubclass(found, Policy)):
        raise InputError(
            f"policy {name!r} is registered as {found!r}, which is no dally.policies.base.Policy"
        )
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
            raise InputError(
                f"policy {policy.name} has no knob {name!r}; valid: {', '.join(known) or 'none'}"
            )
        values[name] = _value(f"knob {name} of policy {policy.name}", known[name], text)
    return PolicySpec(spec, policy, policy.knobs_type(**values))


def knobs(policy: type[Policy]) -> list[Knob]:
    """The settings of a policy, in order."""
    return [
        Knob(knob.name, str(_default(knob)), _valid(knob), str(knob.metadata["help"]))
        for knob in fields(policy.knobs_type)
    ]


def _others() -> dict[str, EntryPoint]:
    return {point.name: point for point in entry_points(group=ENTRY_POINTS)}


def _default(knob: Field[Any]) -> Any:
    if knob.default is MISSING:
        raise AssertionError(f"knob {knob.name} has no default")
    return knob.default


def _valid(knob: Field[Any]) -> str:
    if "choices" in knob.metadata:
        return " | ".join(knob.metadata["choices"])
    return {bool: "yes | no", int: "whole number", float: "number"}.get(type(_default(knob)), "text")


def _value(what: str, knob: Field[Any], text: str) -> object:
    kind = type(_default(knob))
    try:
        if kind is bool:
            return {"yes": True, "no": False}[text]
        value = kind(text)
    except (KeyError, ValueError) as error:
        raise InputError(f"{what} is {text!r}, must be: {_valid(knob)}") from error
    if value not in knob.metadata.get("choices", (value,)) or value != value:
        raise InputError(f"{what} is {text!r}, must be: {_valid(knob)}")
    return value
