"""Writes docs/results/forked-training.md: `python -m workloads.forked.quality quality|time`.

Both train the small net on scikit-learn's digits with three seeds, as one copy and as five on nodes of speeds
1, 1, 0.5, 0.5 and 0.25, and judge it on the samples held out. `quality` counts time in steps, so that only
the seeds matter; `time` starts real processes, whose speed is emulated by a pace that their steps keep.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any

import click
import torch

from dally.markdown import replace_section, table
from dally.mechanisms.job_tracker import consolidation_weights
from workloads.digits import write_digits
from workloads.forked.average import average
from workloads.forked.ranges import Ranges, gaps, numbers, size
from workloads.forked.slot import CopyResult, SlotStart, follow, plan
from workloads.group import Group, free_port, join
from workloads.local_data import LocalData, find_held_out
from workloads.registry import find_workload
from workloads.samples import take
from workloads.settings import Backend, Settings
from workloads.task import make_task
from workloads.training import Score, Trainer

DOCUMENT = Path(__file__).parents[2] / "docs" / "results" / "forked-training.md"
SEEDS = (1, 2, 3)
RATES = (1.0, 1.0, 0.5, 0.5, 0.25)
BATCH = 32


@dataclass(frozen=True, slots=True)
class Variant:
    """A way to train.

    Attributes:
        name: For people.
        slot_s: Length of a slot, in steps of the fastest copy; None for one copy alone.
        weights: Of the copies in the average: by "steps", or "uniform".
        moments: What becomes of the optimizer's state after a slot: "average", "own" or "fresh".
        optimizer: "sgd" with momentum, or "adam".
        part: Of the steps that are done at all.
    """

    name: str
    slot_s: float | None = 20.0
    weights: str = "steps"
    moments: str = "average"
    optimizer: str = "sgd"
    part: float = 1.0


VARIANTS = (
    Variant("one copy", slot_s=None),
    Variant("one copy, for as long as five take", slot_s=None, part=1 / sum(RATES)),
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
LENGTHS = (150, 300, 900)
"""Steps of a job, all copies together: 45 are an epoch."""

LEARNING_RATES = {"sgd": 0.05, "adam": 1e-3}


class Study:
    """Trains in this process, one copy after the other."""

    def __init__(self, data: Path, group: Group) -> None:
        task = make_task(find_workload("digits"))
        self._source, self._held_out, self._group = LocalData(data, task), find_held_out(data, task), group

    def score(self, variant: Variant, steps: int, seed: int) -> Score:
        """How a model does that was trained so."""
        workload = replace(
            find_workload("digits"),
            optimizer=variant.optimizer,
            learning_rate=LEARNING_RATES[variant.optimizer],
        )
        trainer = Trainer(workload, Settings(BATCH, seed=seed), self._group, source=self._source)
        if variant.slot_s is None:
            self._train(trainer, ((0, round(steps * variant.part)),), seed)
        else:
            trainer.restore(self._fork(trainer, variant, variant.slot_s, steps, seed))
        assert self._held_out
        return trainer.evaluate(self._held_out)

    def _train(self, trainer: Trainer, share: Ranges, seed: int) -> None:
        for number in numbers(share):
            trainer.train(number, take(number * BATCH, BATCH, self._source.count, seed))

    def _fork(
        self, trainer: Trainer, variant: Variant, slot_s: float, steps: int, seed: int
    ) -> Mapping[str, Any]:
        """The state after all slots."""
        state: Mapping[str, Any] = deepcopy(trainer.state())
        moments: dict[int, Mapping[str, Any]] = {}
        slot = plan(SlotStart(0, (), {}, dict(enumerate(RATES))), range(len(RATES)), steps, slot_s)
        while gaps(slot.trained, steps):
            results, states = [], []
            for copy, share in slot.shares.items():
                trainer.restore(_begin(variant, state, moments.get(copy)))
                self._train(trainer, share, seed)
                states.append(deepcopy(trainer.state()))
                moments[copy] = states[-1]["optimizer"]
                results.append(CopyResult(copy, share, size(share) / RATES[copy], 0.0, False))
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


def quality(data: Path) -> str:
    """The table of all variants."""
    os.environ.pop("RANK", None)
    study = Study(data, join(Backend.GLOO, 30.0))
    rows = []
    for variant in VARIANTS:
        cells = [_cell([study.score(variant, steps, seed) for seed in SEEDS]) for steps in LENGTHS]
        rows.append([variant.name, *cells])
        click.echo("; ".join(rows[-1]))
    return table(["training", *(f"{steps} steps" for steps in LENGTHS)], rows)


def _cell(scores: Sequence[Score]) -> str:
    accuracies = [score.accuracy or 0.0 for score in scores]
    low, high = min(accuracies), max(accuracies)
    return f"{fmean(accuracies):.1%} ({low:.1%} to {high:.1%}), {fmean(score.loss for score in scores):.4f}"


STEPS, PACE_S, SLOTS_S = 900, 0.05, (1.0, 2.0, 8.0)


def timing(data: Path) -> str:
    """The table of real runs."""
    one = [_run(data, seed, [1.0], None) for seed in SEEDS]
    rows = [_row("one copy", one, one)]
    for slot_s in SLOTS_S:
        runs = [_run(data, seed, RATES, slot_s) for seed in SEEDS]
        rows.append(_row(f"five copies, slots of {slot_s:g} s", runs, one))
    return table(["training", "seconds, by seed", "faster than one copy", "accuracy, by seed"], rows)


def _row(name: str, runs: Sequence[tuple[float, float]], one: Sequence[tuple[float, float]]) -> list[str]:
    seconds = ", ".join(f"{lasted_s:.1f}" for lasted_s, _ in runs)
    factor = fmean(base for base, _ in one) / fmean(lasted_s for lasted_s, _ in runs)
    accuracies = ", ".join(f"{accuracy:.1%}" for _, accuracy in runs)
    return [name, seconds, f"{factor:.2f}", accuracies]


def _run(data: Path, seed: int, rates: Sequence[float], slot_s: float | None) -> tuple[float, float]:
    """Seconds from the first step's begin to the last average, and the accuracy."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        command = [
            sys.executable,
            "-m",
            "workloads.train",
            "digits",
            "--backend",
            "gloo",
            "--data",
            str(data),
        ]
        command += ["--steps", str(STEPS), "--global-batch", str(BATCH), "--seed", str(seed)]
        command += ["--pace", ",".join(f"{PACE_S / rate:g}" for rate in rates)]
        command += ["--checkpoint", str(folder / "job.pt"), "--log-file", str(folder / "log")]
        if slot_s is not None:
            command += ["--forked", "--slot", f"{slot_s:g}"]
        processes = [subprocess.Popen(command, env=env) for env in _places(len(rates))]
        codes = [process.wait() for process in processes]
        if any(codes):
            raise click.ClickException(f"a copy failed: {' '.join(command)}")
        *steps, score = [json.loads(line) for line in (folder / "log").read_text().splitlines()]
    return steps[-1]["time"] - steps[0]["time"] + steps[0]["seconds"], score["accuracy"]


def _places(ranks: int) -> Iterator[dict[str, str]]:
    place = {"WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    for rank in range(ranks):
        yield {
            **os.environ,
            **place,
            "OMP_NUM_THREADS": "1",
            "RANK": str(rank),
            "LOCAL_RANK": str(rank),
        }


@click.command()
@click.argument("what", type=click.Choice(["quality", "time"]))
def main(what: str) -> None:
    """Measure and rewrite its table in docs/results/forked-training.md."""
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "digits.npz"
        write_digits(data)
        body = quality(data) if what == "quality" else timing(data)
    text = DOCUMENT.read_text(encoding="utf-8")
    DOCUMENT.write_text(replace_section(text, f"forked-{what}", body), encoding="utf-8")


if __name__ == "__main__":
    main()
