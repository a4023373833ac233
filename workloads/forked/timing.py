"""How long forked jobs take as real processes, whose speed is emulated by a pace that their steps keep."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

import click

from dally.markdown import table
from workloads.forked.nets import SEEDS, NetWithSamples
from workloads.group import free_port


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
        command = [sys.executable, "-m", "workloads.train", net.name, "--backend", "gloo"]
        command += ["--data", str(data), "--steps", str(net.steps), "--global-batch", str(net.batch)]
        command += ["--seed", str(seed), "--pace", ",".join(f"{net.pace_s / rate:g}" for rate in rates)]
        command += ["--checkpoint", str(folder / "job.pt"), "--log-file", str(folder / "log")]
        if slot_s is not None:
            command += ["--forked", "--slot", f"{slot_s:g}"]
        processes = [subprocess.Popen(command, env=env) for env in _places(len(rates))]
        codes = [process.wait() for process in processes]
        if any(codes):
            raise click.ClickException(f"a copy failed: {' '.join(command)}")
        *steps, score = [json.loads(line) for line in (folder / "log").read_text().splitlines()]
    seconds = steps[-1]["time"] - steps[0]["time"] + steps[0]["seconds"]
    trained_s = sum(step.get("trained", step["seconds"]) for step in steps)
    return Timed(seconds, (seconds - trained_s) / len(steps), score["loss"], score["accuracy"])


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
