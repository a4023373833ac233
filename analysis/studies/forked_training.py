"""Writes docs/results/forked-training.md: `python -m analysis.studies.forked_training WHAT [NET...]`.

WHAT is `quality` or `time`, which train nets with three seeds, as one copy and as several, and judge them on
the samples held out: `quality` counts time in steps, so that only the seeds matter, `time` starts real
processes. Or it is `averaging`: what copies do between two slots, with models of several sizes.
"""

import json
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any, TypeVar

import click
import torch

from analysis.studies.common import StudyCommand, publish
from analysis.studies.elastic_training import end_ranks, start_ranks
from dally.markdown import table
from dally.policies.hadar_e.job_tracker import consolidation_weights
from workloads.digits import write_digits
from workloads.forked.exchange import Exchange, prepare
from workloads.forked.ranges import Ranges, gaps, numbers, size
from workloads.forked.slot import CopyResult, SlotStart, follow, plan
from workloads.forked.tracker import average, consolidate
from workloads.group import Group, join, leave
from workloads.local_data import LocalData, find_held_out
from workloads.reference_text import write_reference
from workloads.registry import find_workload
from workloads.samples import take
from workloads.settings import Backend, Settings
from workloads.task import make_task
from workloads.training import Score, Trainer

DOCUMENT = Path(__file__).parents[2] / "docs" / "results" / "forked-training.md"
Made = TypeVar("Made")


@dataclass(frozen=True, slots=True)
class NetWithSamples:
    """A net and its samples, which come with a package that training needs anyway.

    Attributes:
        name: Of the workload.
        write: Writes its samples to a file.
        batch: Samples of a step.
        lengths: Steps of a job, all copies together, at which its quality is compared.
        rates: Speeds of the nodes on which copies are timed.
        steps: Of a job that is timed.
        pace_s: Seconds of a step on the fastest node; its compute, of all copies at once, takes less.
        slots_s: Lengths of slots that are timed.
    """

    name: str
    write: Callable[[Path], None]
    batch: int
    lengths: tuple[int, ...]
    rates: tuple[float, ...]
    steps: int
    pace_s: float
    slots_s: tuple[float, ...]


UNEQUAL = (1.0, 1.0, 0.5, 0.5, 0.25)
EQUAL = (1.0, 1.0, 1.0, 1.0)

_ALL = (
    NetWithSamples("digits", write_digits, 32, (150, 300, 900), UNEQUAL, 900, 0.05, (1.0, 2.0, 8.0)),
    NetWithSamples("resnet8", partial(write_digits, moved=True), 32, (300, 900), EQUAL, 200, 0.3, (6.0,)),
    NetWithSamples("chargpt", write_reference, 16, (200, 600), EQUAL, 200, 0.3, (6.0,)),
)
NETS: Mapping[str, NetWithSamples] = {net.name: net for net in _ALL}

SEEDS = (1, 2, 3)


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


@dataclass(frozen=True, slots=True)
class Timed:
    """A job that ran.

    Attributes:
        seconds: From the first step's begin to the last average.
        averaging_s: Seconds of a slot, in the mean, in which no copy trains.
        loss: On the samples held out.
        accuracy: On those; None if the net tells no classes.
    """

    seconds: float
    averaging_s: float
    loss: float
    accuracy: float | None

    @property
    def quality(self) -> str:
        """The accuracy, or else the loss."""
        return f"{self.loss:.3f}" if self.accuracy is None else f"{self.accuracy:.1%}"


def timing(net: NetWithSamples, data: Path) -> str:
    """Markdown: a row for one copy, and for each length of a slot."""
    one = [_run(net, data, seed, [1.0], None) for seed in SEEDS]
    rows = [_row("one copy", one, one, None)]
    for slot_s in net.slots_s:
        runs = [_run(net, data, seed, net.rates, slot_s) for seed in SEEDS]
        rows.append(_row(f"{len(net.rates)} copies, slots of {slot_s:g} s", runs, one, slot_s))
        click.echo("; ".join(rows[-1]))
    held_out = "loss" if one[0].accuracy is None else "accuracy"
    header = ["training", "seconds, by seed", "faster than one copy", "averaging, s a slot"]
    return table([*header, f"{held_out}, by seed"], rows)


def _row(name: str, runs: Sequence[Timed], one: Sequence[Timed], slot_s: float | None) -> list[str]:
    seconds = ", ".join(f"{run.seconds:.1f}" for run in runs)
    factor = fmean(run.seconds for run in one) / fmean(run.seconds for run in runs)
    averaging_s = fmean(run.averaging_s for run in runs)
    averaging = "" if slot_s is None else f"{averaging_s:.2f} ({averaging_s / slot_s:.0%})"
    return [name, seconds, f"{factor:.2f}", averaging, ", ".join(run.quality for run in runs)]


def _run(net: NetWithSamples, data: Path, seed: int, rates: Sequence[float], slot_s: float | None) -> Timed:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        options = [net.name, "--data", str(data), "--steps", str(net.steps), "--global-batch", str(net.batch)]
        options += ["--seed", str(seed), "--pace", ",".join(f"{net.pace_s / rate:g}" for rate in rates)]
        options += ["--checkpoint", str(folder / "job.pt"), "--log-file", str(folder / "log")]
        if slot_s is not None:
            options += ["--forked", "--slot", f"{slot_s:g}"]
        with start_ranks(len(rates), options) as processes:
            end_ranks(processes)
        *steps, score = [json.loads(line) for line in (folder / "log").read_text().splitlines()]
    seconds = steps[-1]["time"] - steps[0]["time"] + steps[0]["seconds"]
    trained_s = sum(step.get("trained", step["seconds"]) for step in steps)
    return Timed(seconds, (seconds - trained_s) / len(steps), score["loss"], score["accuracy"])


SIZES = {"resnet8": None, "chargpt": None, "mobilenetv3": 64, "resnet18": 64, "resnet50": 64}
"""Models whose averaging is timed, and of which samples a step makes the optimizer's state."""

COPIES, TRIES = 4, 3
_BATCH = 2


def averaging(group: Group) -> str:
    """Markdown: what the copies do between two slots, by the size of the model; each the least of some tries.

    On one machine, by its file system: what many nodes do at once happens one after another here, so that
    only one copy's part is counted.
    """
    rows = []
    for name, pixels in SIZES.items():
        trainer = Trainer(find_workload(name), Settings(_BATCH, size=pixels), group)
        trainer.train(0, range(_BATCH))
        tries = [_average_once(trainer) for _ in range(TRIES)]
        parts_s = [min(each) for each in zip(*tries, strict=True)]
        megabytes = find_workload(name).grad_bytes / 1e6
        rows.append(
            [f"`{name}`", f"{megabytes:.1f}", *(f"{part_s:.2f}" for part_s in (*parts_s, sum(parts_s)))]
        )
        click.echo("; ".join(rows[-1]))
    parts = ("hand in, s", f"read {COPIES} and average, s", "publish, s", "take over, s", "together, s")
    return table(["model", "parameters, MB", *parts], rows)


def _average_once(trainer: Trainer) -> tuple[float, ...]:
    """Seconds that one copy hands in, reads and averages all, publishes and takes the average over."""
    with tempfile.TemporaryDirectory() as name:
        file = Path(name) / "job.pt"
        prepare(file, 0)
        copies = [Exchange(file, 0, copy, {}, _BATCH) for copy in range(COPIES)]
        first, *_ = copies
        first.publish(SlotStart(0, (), {}, {}), trainer.state())
        results = [CopyResult(copy, ((copy, copy + 1),), 1.0, 0.0, False) for copy in range(COPIES)]
        for result, exchange in zip(results[1:], copies[1:], strict=True):
            exchange.submit(0, result, trainer.state())
        handed_in_s, _ = _timed(lambda: first.submit(0, results[0], trainer.state()))
        averaged_s, state = _timed(
            lambda: consolidate([first.result(0, copy) for copy in range(COPIES)], first.slot(0)[1])
        )
        published_s, _ = _timed(lambda: first.publish(SlotStart(1, ((0, COPIES),), {}, {}), state))
        taken_s, _ = _timed(lambda: trainer.restore(first.slot(1)[1]))
    return handed_in_s, averaged_s, published_s, taken_s


def _timed(act: Callable[[], Made]) -> tuple[float, Made]:
    begun_s = time.perf_counter()
    made = act()
    return time.perf_counter() - begun_s, made


@click.command(cls=StudyCommand)
@click.argument("what", type=click.Choice(["quality", "time", "averaging"]))
@click.argument("names", type=click.Choice(list(NETS)), metavar="[NET]...", nargs=-1)
def main(what: str, names: Sequence[str]) -> None:
    """Measure and rewrite its tables in docs/results/forked-training.md; all nets if none is named."""
    torch.set_num_threads(1)
    publish(tables(what, names or [*NETS]), DOCUMENT)


def tables(what: str, names: Sequence[str]) -> Iterator[tuple[str, str]]:
    """The sections of the document, each as soon as it is measured."""
    if what == "averaging":
        yield "forked-averaging", averaging(_alone())
        leave()
        return
    measure = quality if what == "quality" else timing
    for name in names:
        with tempfile.TemporaryDirectory() as folder:
            data = Path(folder) / "samples.npz"
            NETS[name].write(data)
            yield f"forked-{what}-{name}", measure(NETS[name], data)


if __name__ == "__main__":
    main()
