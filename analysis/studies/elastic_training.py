"""Writes the tables and the figure of docs/elastic-training.md.

`python -m analysis.studies.elastic_training FOLDER` trains the small net on scikit-learn's digits in real
processes with three seeds. It trains on one rank from start to end, and growing from 1 rank to 2 and to 4 and
shrinking to 2: as an elastic job with both rules for the batch, and with a checkpoint and a restart at each
change. Ranks start from a process that has loaded torch, except those of `restart`. Logs stay in FOLDER, so
a second call continues where the first stopped.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from itertools import chain, pairwise
from pathlib import Path
from statistics import fmean, median
from typing import Any

import click
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from analysis.studies.common import StudyCommand, publish
from dally.jobs.job import CHECKPOINTED
from dally.markdown import table
from workloads.digits import write_digits
from workloads.group import free_port
from workloads.preload_client import PRELOADED

DOCS = Path(__file__).parents[2] / "docs"
SEEDS = (1, 2, 3)
STEPS, BATCH, PACE_S, JUDGED = 900, 32, 0.05, 100
SOON = 60
"""Steps on each number of ranks before the next change is asked for."""

NODE = "here"
LINEAR = ("--batch-rule", "linear", "--max-batch", "128", "--max-lr", "0.2", "--lr-ramp", "45")
ALARM_S = 300.0

Line = Mapping[str, Any]
Processes = Sequence[subprocess.Popen[bytes]]


class QualityRun:
    """One run of a job: its folder, and its command."""

    def __init__(self, folder: Path, kind: str, seed: int) -> None:
        self._folder, self.kind, self._data = folder / f"{kind}-{seed}", kind, folder / "digits.npz"
        self._options = ["--seed", str(seed), "--judge-every", str(JUDGED)]
        if kind != "fixed":  # whose time nobody measures
            self._options += ["--pace", str(PACE_S)]
        self._until_s = 0.0

    def lines(self) -> list[Line]:
        """Its log."""
        log = self._folder / "log"
        return [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []

    def steps(self) -> list[Line]:
        """The lines of its steps."""
        return [line for line in self.lines() if "step" in line]

    def scores(self) -> dict[int, tuple[float, float]]:
        """Accuracy and loss on samples held out, by samples trained on."""
        trained = {line["step"]: line["samples"] for line in self.steps()}
        lines = [line for line in self.lines() if "held_out" in line]
        return {
            trained[line.get("after_step", max(trained))]: (line["accuracy"], line["loss"]) for line in lines
        }

    def changes(self) -> dict[tuple[int, int], float]:
        """Seconds lost by each change of the ranks, (before, after): its gap without a usual step."""
        steps, lost = self.steps(), dict[tuple[int, int], float]()
        for before, after in pairwise(steps):
            if before["ranks"] != after["ranks"]:
                usual = median(line["seconds"] for line in steps if line["ranks"] == after["ranks"])
                lost[before["ranks"], after["ranks"]] = after["time"] - before["time"] - usual
        return lost

    def do(self) -> None:
        """Train, unless it has been done."""
        if (self._folder / "done").exists():
            return
        self._until_s = time.monotonic() + ALARM_S
        shutil.rmtree(self._folder, ignore_errors=True)
        self._folder.mkdir()
        match self.kind:
            case "fixed":
                with self._start(1) as ranks:
                    end_ranks(ranks)
            case "restart" | "warm":
                self._restart()
            case _:
                self._elastic()
        (self._folder / "done").touch()
        click.echo(f"{self._folder.name}: {self.changes()}, {list(self.scores().values())[-1]}")

    def _elastic(self) -> None:
        meet = ["--elastic", str(self._folder / "ranks"), *(LINEAR if self.kind == "linear" else ())]
        with self._start(1, *meet) as first:
            self._wait(first, SOON, ranks=1)
            with self._start(1, *meet, "--join") as second:
                self._wait(first, SOON, ranks=2)
                with self._start(2, *meet, "--join") as more:
                    self._wait(first, SOON, ranks=4)
                    for rank in more:
                        rank.send_signal(signal.SIGTERM)
                    end_ranks([*first, *second, *more])

    def _restart(self) -> None:
        """The same changes, each with a checkpoint and a start."""
        for number, ranks in enumerate((1, 2, 4, 2)):
            due = len(self.steps()) + SOON
            with self._start(ranks, "--checkpoint", str(self._folder / "job.pt")) as processes:
                if number < 3:
                    self._wait(processes, due)
                    processes[0].send_signal(signal.SIGUSR1)
                end_ranks(processes, CHECKPOINTED if number < 3 else 0)

    def _wait(self, processes: Processes, due: int, ranks: int | None = None) -> None:
        """Wait for so many steps, of those with so many ranks if that is told."""
        while sum(ranks in (None, line["ranks"]) for line in self.steps()) < due:
            late = time.monotonic() > self._until_s
            if late or any(process.poll() is not None for process in processes):
                raise click.ClickException(f"{self._folder} ended too early, or takes too long")
            time.sleep(0.05)

    def _start(self, ranks: int, *options: str) -> AbstractContextManager[Processes]:
        command = ["digits", *self._options, "--steps", str(STEPS), "--global-batch", str(BATCH)]
        command += ["--data", str(self._data), "--log-file", str(self._folder / "log"), *options]
        return start_ranks(ranks, command, preloaded=self.kind != "restart")


@contextmanager
def start_ranks(ranks: int, options: Sequence[str], preloaded: bool = False) -> Iterator[Processes]:
    """Ranks of one training on this machine; they end with the context."""
    command = [sys.executable, "-m", "workloads.train", *options, "--backend", "gloo"]
    env = {**os.environ, "OMP_NUM_THREADS": "1", "WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1"}
    env["MASTER_PORT"] = str(free_port())
    if not preloaded:
        env.pop(PRELOADED, None)
    places = [{**env, "RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(ranks)]
    processes = [subprocess.Popen(command, env=place) for place in places]
    try:
        yield processes
    finally:
        for process in processes:
            process.kill()
            process.wait()


@contextmanager
def _preloaded() -> Iterator[None]:
    """A process that has loaded torch, from which ranks start."""
    with tempfile.TemporaryDirectory() as folder:
        os.environ |= {PRELOADED: folder, "SLURMD_NODENAME": NODE, "OMP_NUM_THREADS": "1"}
        socket = Path(folder) / NODE
        server = subprocess.Popen([sys.executable, "-m", "workloads.preload", str(socket)])
        try:
            while not socket.exists() and server.poll() is None:
                time.sleep(0.1)
            yield
        finally:
            server.kill()
            server.wait()


def end_ranks(processes: Processes, code: int = 0) -> None:
    """Wait until ranks end, all with the same code."""
    codes = [process.wait(ALARM_S) for process in processes]
    if any(each != code for each in codes):
        raise click.ClickException(f"ranks ended with {codes}")


Runs = Mapping[str, Sequence[QualityRun]]

NAMES = {
    "fixed": "one rank",
    "keep": "1, 2, 4, 2 ranks, elastic, `keep`",
    "restart": "1, 2, 4, 2 ranks, checkpoint and restart",
    "warm": "1, 2, 4, 2 ranks, restart with torch loaded",
    "linear": "1, 2, 4, 2 ranks, elastic, `linear`",
}


def quality(runs: Runs) -> str:
    """Held-out accuracy and loss along the way."""
    ways = range(STEPS * BATCH // 3, STEPS * BATCH + 1, STEPS * BATCH // 3)
    rows = [
        [
            NAMES[kind],
            str(median(len(run.steps()) for run in of_kind)),
            *(_score_cell([run.scores().get(samples) for run in of_kind]) for samples in ways),
        ]
        for kind, of_kind in runs.items()
    ]
    return table(["training", "steps", *(f"after {samples:,} samples" for samples in ways)], rows)


def _score_cell(scores: Sequence[tuple[float, float] | None]) -> str:
    there = [score for score in scores if score]
    accuracies = [accuracy for accuracy, _ in there]
    if not there:
        return "-"
    low, high, loss = min(accuracies), max(accuracies), fmean(loss for _, loss in there)
    return f"{fmean(accuracies):.1%} ({low:.1%} to {high:.1%}), {loss:.4f}"


def losses(runs: Runs) -> str:
    """Seconds lost by each change."""
    kinds = [kind for kind in runs if kind != "fixed"]
    changes = [(1, 2), (2, 4), (4, 2)]
    rows = []
    for kind in kinds:
        lost = [run.changes() for run in runs[kind]]
        cells = [", ".join(f"{each[change]:.2f}" for each in lost if change in each) for change in changes]
        rows.append([NAMES[kind], *cells])
    return table(
        ["seconds lost, by seed", *(f"{before} to {after} ranks" for before, after in changes)], rows
    )


COLOURS = dict(zip(NAMES, ("tab:gray", "tab:blue", "tab:red", "tab:pink", "tab:orange"), strict=True))


def draw(runs: Runs, path: Path) -> None:
    """Held-out loss by samples, and how the first seed's runs get on by seconds."""
    figure = Figure(figsize=(9, 3.4), layout="constrained")
    left, right = figure.subplots(1, 2)
    for kind in ("fixed", "keep", "linear"):
        for number, run in enumerate(runs[kind]):
            samples, scores = zip(*sorted(run.scores().items()), strict=True)
            label = _plain(kind) if number == 0 else None
            held_out = [loss for _, loss in scores]
            left.plot(samples, held_out, color=COLOURS[kind], marker=".", linewidth=0.8, label=label)
    for kind in ("keep", "restart", "warm"):
        _draw_progress(right, runs[kind][0])
    left.set(xlabel="samples", ylabel="held-out loss", yscale="log")
    right.set(xlabel="seconds since the first step", ylabel="steps")
    left.legend(fontsize=8)
    right.legend(fontsize=8, loc="upper left")
    right.set_ylim(top=STEPS * 1.4)
    figure.savefig(path, dpi=120)


def _draw_progress(axes: Axes, run: QualityRun) -> None:
    """Steps by seconds, and a dot where the number of ranks changes."""
    steps = run.steps()
    first_s = steps[0]["time"]
    axes.plot(
        [line["time"] - first_s for line in steps],
        [line["step"] for line in steps],
        color=COLOURS[run.kind],
        label=_plain(run.kind),
    )
    for before, after in pairwise(steps):
        if before["ranks"] != after["ranks"]:
            place = before["time"] - first_s, before["step"]
            axes.plot(*place, color=COLOURS[run.kind], marker="o", markersize=4)
            if run.kind == "restart":  # those of the others lie too close together
                axes.annotate(f"to {after['ranks']} ranks", place, fontsize=8, va="bottom")


def _plain(kind: str) -> str:
    return NAMES[kind].replace("`", "")


@click.command(cls=StudyCommand)
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path))
def main(folder: Path) -> None:
    """Measure what is not measured yet, and write the tables and the figure."""
    folder.mkdir(exist_ok=True)
    if not (folder / "digits.npz").exists():
        write_digits(folder / "digits.npz")
    runs = {kind: [QualityRun(folder, kind, seed) for seed in SEEDS] for kind in NAMES}
    with _preloaded():
        for run in chain(*zip(*runs.values(), strict=True)):
            run.do()
    publish([("changes", f"{quality(runs)}\n\n{losses(runs)}")], DOCS / "elastic-training.md")
    draw(runs, DOCS / "elastic-training.png")


if __name__ == "__main__":
    main()
