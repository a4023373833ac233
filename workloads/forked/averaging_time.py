"""What copies do between two slots, timed by itself with models of several sizes."""

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import click

from dally.markdown import table
from workloads.forked.exchange import Exchange, prepare
from workloads.forked.slot import CopyResult, SlotStart
from workloads.forked.tracker import consolidate
from workloads.group import Group
from workloads.registry import find_workload
from workloads.settings import Settings
from workloads.training import Trainer

Made = TypeVar("Made")

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
    for name, size in SIZES.items():
        trainer = Trainer(find_workload(name), Settings(_BATCH, size=size), group)
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
            exchange.hand_in(0, result, trainer.state())
        handed_in_s, _ = _timed(lambda: first.hand_in(0, results[0], trainer.state()))
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
