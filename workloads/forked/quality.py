"""Writes docs/results/forked-training.md: `python -m workloads.forked.quality WHAT [NET...]`.

WHAT is `quality` or `time`, which train nets with three seeds, as one copy and as several, and judge them on
the samples held out: `quality` counts time in steps, so that only the seeds matter, `time` starts real
processes. Or it is `averaging`: what copies do between two slots, with models of several sizes.
"""

import os
import tempfile
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any

import click
import torch

from dally.markdown import replace_section, table
from dally.policies.hadar_e.job_tracker import consolidation_weights
from workloads.forked.average import average
from workloads.forked.averaging_time import averaging
from workloads.forked.nets import EQUAL, NETS, SEEDS, UNEQUAL, NetWithSamples
from workloads.forked.ranges import Ranges, gaps, numbers, size
from workloads.forked.slot import CopyResult, SlotStart, follow, plan
from workloads.forked.timing import timing
from workloads.group import Group, join, leave
from workloads.local_data import LocalData, find_held_out
from workloads.registry import find_workload
from workloads.samples import take
from workloads.settings import Backend, Settings
from workloads.task import make_task
from workloads.training import Score, Trainer

DOCUMENT = Path(__file__).parents[2] / "docs" / "results" / "forked-training.md"


@dataclass(frozen=True, slots=True)
class Variant:
    """A way to train.

    Attributes:
        name: For people.
        slot_s: Length of a slot, in steps of the fastest copy; None for one copy alone.
        weights: Of the copies in the average: by "steps", or "uniform".
        moments: What becomes of the optimizer's state after a slot: "average", "own" or "fresh".
        optimizer: "sgd" with momentum, or "adam"; None for the net's own.
        part: Of the steps that are done at all.
        rates: Speeds of the copies' nodes.
    """

    name: str
    slot_s: float | None = 20.0
    weights: str = "steps"
    moments: str = "average"
    optimizer: str | None = None
    part: float = 1.0
    rates: tuple[float, ...] = UNEQUAL


_ON_UNEQUAL = (
    Variant("one copy", slot_s=None),
    Variant("one copy, for as long as five take", slot_s=None, part=1 / sum(UNEQUAL)),
    Variant("five copies, slots of 8", slot_s=8.0),
    Variant("five copies, slots of 20"),
    Variant("five copies, slots of 80", slot_s=80.0),
    Variant("slots of 20, weights uniform", weights="uniform"),
    Variant("slots of 20, each copy keeps its momentum", moments="own"),
    Variant("slots of 20, momentum begins anew", moments="fresh"),
    Variant("Adam, one copy", slot_s=None, optimizer="adam"),
    Variant("Adam, five copies, slots of 20", optimizer="adam"),
    Variant("Adam, slots of 20, each copy keeps its moments", moments="own", optimizer="adam"),
    Variant("Adam, slots of 20, moments begin anew", moments="fresh", optimizer="adam"),
)
_ON_EQUAL = (
    Variant("one copy", slot_s=None),
    Variant("one copy, for as long as four take", slot_s=None, part=1 / sum(EQUAL)),
    Variant("two copies, slots of 20", rates=EQUAL[:2]),
    Variant("four copies, slots of 20", rates=EQUAL),
    Variant("four copies, slots of 80", slot_s=80.0, rates=EQUAL),
)
VARIANTS = {"digits": _ON_UNEQUAL, "resnet8": _ON_EQUAL, "chargpt": _ON_EQUAL}
"""Of each net."""

LEARNING_RATES = {"sgd": 0.05, "adam": 1e-3}


class Study:
    """Trains a net in this process, one copy after the other."""

    def __init__(self, net: NetWithSamples, data: Path, group: Group) -> None:
        self._workload, self._batch = find_workload(net.name), net.batch
        task = make_task(self._workload)
        self._source, self._held_out, self._group = LocalData(data, task), find_held_out(data, task), group

    def score(self, variant: Variant, steps: int, seed: int) -> Score:
        """How a model does that was trained so."""
        workload = self._workload
        if variant.optimizer:
            rate = LEARNING_RATES[variant.optimizer]
            workload = replace(workload, optimizer=variant.optimizer, learning_rate=rate)
        trainer = Trainer(workload, Settings(self._batch, seed=seed), self._group, source=self._source)
        if variant.slot_s is None:
            self._train(trainer, ((0, round(steps * variant.part)),), seed)
        else:
            trainer.restore(self._fork(trainer, variant, variant.slot_s, steps, seed))
        assert self._held_out
        return trainer.evaluate(self._held_out)

    def _train(self, trainer: Trainer, share: Ranges, seed: int) -> None:
        for number in numbers(share):
            trainer.train(number, take(number * self._batch, self._batch, self._source.count, seed))

    def _fork(
        self, trainer: Trainer, variant: Variant, slot_s: float, steps: int, seed: int
    ) -> Mapping[str, Any]:
        """The state after all slots."""
        state: Mapping[str, Any] = deepcopy(trainer.state())
        moments: dict[int, Mapping[str, Any]] = {}
        rates = variant.rates
        slot = plan(SlotStart(0, (), {}, dict(enumerate(rates))), range(len(rates)), steps, slot_s)
        while gaps(slot.trained, steps):
            results, states = [], []
            for copy, share in slot.shares.items():
                trainer.restore(_begin(variant, state, moments.get(copy)))
                self._train(trainer, share, seed)
                states.append(deepcopy(trainer.state()))
                moments[copy] = states[-1]["optimizer"]
                results.append(CopyResult(copy, share, size(share) / rates[copy], 0.0, False))
            state = _merge(variant, [result.steps for result in results], states, state)
            slot = follow(slot, results, steps, slot_s, 0.0)
        return state


def _begin(variant: Variant, state: Mapping[str, Any], own: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """The state with which a copy begins a slot."""
    if variant.moments == "own" and own:
        return {**state, "optimizer": own}
    if variant.moments == "fresh":
        return {**state, "optimizer": {**state["optimizer"], "state": {}}}
    return state


def _merge(
    variant: Variant, done: Sequence[int], states: Sequence[Mapping[str, Any]], before: Mapping[str, Any]
) -> Mapping[str, Any]:
    worked = [(steps, state) for steps, state in zip(done, states, strict=True) if steps]
    counted = [1 if variant.weights == "uniform" else steps for steps, _ in worked]
    merged = average([state for _, state in worked], consolidation_weights(counted), before)
    assert isinstance(merged, dict)
    return merged


def quality(net: NetWithSamples, data: Path) -> str:
    """Markdown: a row for each of the net's variants."""
    study = Study(net, data, _alone())
    rows = []
    for variant in VARIANTS[net.name]:
        cells = [_cell([study.score(variant, steps, seed) for seed in SEEDS]) for steps in net.lengths]
        rows.append([variant.name, *cells])
        click.echo("; ".join(rows[-1]))
    leave()
    return table(["training", *(f"{steps} steps" for steps in net.lengths)], rows)


def _alone() -> Group:
    """A group of this process, whatever started it."""
    os.environ.pop("RANK", None)
    return join(Backend.GLOO, 30.0)


def _cell(scores: Sequence[Score]) -> str:
    losses = [score.loss for score in scores]
    accuracies = [score.accuracy for score in scores if score.accuracy is not None]
    if not accuracies:
        return f"{fmean(losses):.3f} ({min(losses):.3f} to {max(losses):.3f})"
    low, high = min(accuracies), max(accuracies)
    return f"{fmean(accuracies):.1%} ({low:.1%} to {high:.1%}), {fmean(losses):.4f}"


@click.command()
@click.argument("what", type=click.Choice(["quality", "time", "averaging"]))
@click.argument("names", type=click.Choice(list(NETS)), metavar="[NET]...", nargs=-1)
def main(what: str, names: Sequence[str]) -> None:
    """Measure and rewrite its tables in docs/results/forked-training.md; all nets if none is named."""
    torch.set_num_threads(1)
    if what == "averaging":
        _write(what, averaging(_alone()))
        leave()
        return
    measure = quality if what == "quality" else timing
    for name in names or NETS:
        with tempfile.TemporaryDirectory() as folder:
            data = Path(folder) / "samples.npz"
            NETS[name].write(data)
            _write(f"{what}-{name}", measure(NETS[name], data))


def _write(section: str, body: str) -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    DOCUMENT.write_text(replace_section(text, f"forked-{section}", body), encoding="utf-8")


if __name__ == "__main__":
    main()
