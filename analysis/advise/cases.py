"""How sensitive to the network the jobs may be: cases of which models they train, low, middle and high."""

from collections.abc import Mapping, Sequence
from itertools import pairwise

from analysis.advise.site import ModelAssumption, Site
from dally.errors import InputError
from dally.jobs.job import Job
from dally.profiles.costs import CostModel
from dally.traces import parse_mix

LOW, MIDDLE, HIGH, TOLD = "low", "middle", "high", "as told"
ALL = "all"
"""The mix of all models that have a profile, alike."""


def cases(site: Site, mix: str | None, seeds: int) -> list[ModelAssumption]:
    """The cases to simulate, the middle one with the first seed first.

    Low has the half of the mix that distance costs least, high the half that it costs most. There is only one
    case if nothing is to be drawn: all models are told, no mix is given, or there are no profiles.

    Args:
        site: The site.
        mix: Models and weights of the jobs whose models nobody tells; `ALL`: all that have a profile, alike;
            None: they stay unknown, and distance costs them nothing.
        seeds: How many draws of each case.

    Raises:
        InputError: The mix is wrong, or has a model without a profile.
    """
    if mix is None or site.profiles is None or site.named() == len(site.history.jobs):
        return [ModelAssumption(TOLD)]
    weights = _weights(",".join(f"{model}=1" for model in site.models) if mix == ALL else mix, site.models)
    slowdowns = sensitivities(site, list(weights))
    order = sorted(weights, key=lambda model: (slowdowns[model], model))
    mixes = {MIDDLE: weights}
    if len(set(slowdowns.values())) > 1:
        mixes |= {LOW: _half(weights, order), HIGH: _half(weights, order[::-1])}
    return [
        ModelAssumption(name, ",".join(f"{model}={weight:.6g}" for model, weight in parts.items()), seed)
        for name, parts in mixes.items()
        for seed in range(1, seeds + 1)
    ]


def sensitivities(site: Site, models: Sequence[str]) -> dict[str, float]:
    """What distance costs each model: the slowdown of a gang of one machine's size halved over two of them.

    These are the first machine and the last in its network, so the farthest as clusters are usually listed.
    """
    topology = site.topology
    costs, machines = CostModel(topology, site.profiles), topology.machines
    near = (
        place
        for place in range(1, len(machines))
        if topology.level_of(((0, 1), (place, 1))) <= topology.widest
    )
    last = max(near, default=0)
    if last == 0:
        return dict.fromkeys(models, 1.0)
    each = max(1, min(machines[0].gpus, machines[last].gpus) // 2)
    apart = ((0, each), (last, each))
    return {model: costs.cost(Job(model, 0, 2 * each, 1, model=model), apart).slowdown for model in models}


def _weights(mix: str, known: Sequence[str]) -> dict[str, float]:
    parsed = parse_mix(mix)
    if unknown := [model for model in parsed.names if model not in known]:
        raise InputError(f"model mix: no profile of {', '.join(unknown)}; there are {', '.join(known)}")
    bounds = (0.0, *parsed.bounds)
    return {name: high - low for name, (low, high) in zip(parsed.names, pairwise(bounds), strict=True)}


def _half(weights: Mapping[str, float], order: Sequence[str]) -> dict[str, float]:
    """The first models in an order that together have half of the weight, the last of them cut to fit."""
    half, left = {}, 0.5
    for model in order:
        if left > 1e-9:
            half[model] = min(weights[model], left)
            left -= half[model]
    return half
