"""Writes "Real elastic training" in docs/results.md: `python scripts/elastic_quality.py FOLDER`.

Trains the small net on scikit-learn's digits in real processes with three seeds: on one rank from start to
end, and growing from 1 rank to 2 and to 4 and shrinking to 2 while it trains: as an elastic job with both
rules for the batch, and with a checkpoint and a restart at each change. Logs stay in FOLDER: what is done
there is not done again.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from statistics import fmean, median
from typing import Any

import click

from dally.job import CHECKPOINTED
from dally.markdown import replace_section, table
from workloads.digits import write_digits
from workloads.group import free_port

DOCS = Path(__file__).parents[1] / "docs"
SEEDS = (1, 2, 3)
STEPS, BATCH, PACE_S, JUDGED = 900, 32, 0.05, 100
SOON = 60
"""Steps on each number of ranks before the next change is asked for."""

LINEAR = ("--batch-rule", "linear", "--max-batch", "128", "--max-lr", "0.2", "--lr-ramp", "45")
ALARM_S = 300.0

Line = Mapping[str, Any]
Processes = Sequence[subprocess.Popen[bytes]]


class Run:
    """One run of a job: its folder, and its command."""

    def __init__(self, folder: Path, kind: str, seed: int) -> None:
        self._folder, self.kind, self._data = folder / f"{kind}-{seed}", kind, folder / "digits.npz"
        self._options = ["--seed", str(seed), "--judge-every", str(JUDGED)]
        if kind != "fixed":  # whose time nobody measures
            self._options += ["--pace", str(PACE_S)]
        self._begun_s = time.monotonic()

    def lines(self) -> list[Line]:
        """Its log."""
        log = self._folder / "log"
        return [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []

    def steps(self) -> list[Line]:
        """The lines of its steps."""
        return [line for line in self.lines() if "step" in line]

    def scores(self) -> dict[int, tuple[float, float]]:
        """Accuracy and loss on samples held out, by steps done; after all of them: by `STEPS`."""
        lines = [line for line in self.lines() if "held_out" in line]
        return {line.get("after_step", STEPS): (line["accuracy"], line["loss"]) for line in lines}

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
        self._folder.mkdir(exist_ok=True)
        for file in self._folder.glob("*"):
            if file.is_file():
                file.unlink()
        {"fixed": self._fixed, "restart": self._restart}.get(self.kind, self._elastic)()
        (self._folder / "done").touch()
        click.echo(f"{self._folder.name}: {self.changes()}, {list(self.scores().values())[-1]}")

    def _fixed(self) -> None:
        with self._start(1) as ranks:
            _end(ranks)

    def _elastic(self) -> None:
        meet = ["--elastic", str(self._folder / "ranks"), *(LINEAR if self.kind == "linear" else ())]
        with self._start(1, *meet) as first:
            self._wait(lambda: self._has_done(1), first)
            with self._start(1, *meet, "--join") as second:
                self._wait(lambda: self._has_done(2), first)
                with self._start(2, *meet, "--join") as more:
                    self._wait(lambda: self._has_done(4), first)
                    for rank in more:
                        rank.send_signal(signal.SIGTERM)
                    _end([*first, *second, *more])

    def _restart(self) -> None:
        """The same changes, each with a checkpoint and a start."""
        for number, ranks in enumerate((1, 2, 4, 2)):
            begun = len(self.steps())
            with self._start(ranks, "--checkpoint", str(self._folder / "job.pt")) as processes:
                if number < 3:
                    self._wait(lambda begun=begun: len(self.steps()) >= begun + SOON, processes)  # type: ignore[misc]
                    processes[0].send_signal(signal.SIGUSR1)
                _end(processes, CHECKPOINTED if number < 3 else 0)

    def _has_done(self, ranks: int) -> bool:
        return len([line for line in self.steps() if line["ranks"] == ranks]) >= SOON

    def _wait(self, holds: Callable[[], bool], processes: Processes) -> None:
        while not holds():
            if any(process.poll() is not None for process in processes) or self._is_late():
                raise click.ClickException(f"{self._folder} ended too early, or takes too long")
            time.sleep(0.05)

    def _is_late(self) -> bool:
        return time.monotonic() - self._begun_s > ALARM_S

    @contextmanager
    def _start(self, ranks: int, *options: str) -> Iterator[Processes]:
        command = [sys.executable, "-m", "workloads.train", "digits", "--backend", "gloo", *self._options]
        command += ["--steps", str(STEPS), "--global-batch", str(BATCH), "--data", str(self._data)]
        command += ["--log-file", str(self._folder / "log"), *options]
        env = {**os.environ, "OMP_NUM_THREADS": "1", "WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1"}
        env["MASTER_PORT"] = str(free_port())
        places = [{**env, "RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(ranks)]
        processes = [subprocess.Popen(command, env=place) for place in places]
        try:
            yield processes
        finally:
            for process in processes:
                process.kill()
                process.wait()


def _end(processes: Processes, code: int = 0) -> None:
    codes = [process.wait(ALARM_S) for process in processes]
    if any(each != code for each in codes):
        raise click.ClickException(f"ranks ended with {codes}")


Runs = Mapping[str, Sequence[Run]]

NAMES = {
    "fixed": "one rank",
    "keep": "1, 2, 4, 2 ranks, elastic, `keep`",
    "restart": "1, 2, 4, 2 ranks, checkpoint and restart",
    "linear": "1, 2, 4, 2 ranks, elastic, `linear`",
}


def quality(runs: Runs) -> str:
    """Held-out accuracy and loss along the way."""
    ways = list(range(3 * JUDGED, STEPS + 1, 3 * JUDGED))
    rows = []
    for kind, of_kind in runs.items():
        cells = [_score_cell([run.scores().get(after) for run in of_kind]) for after in ways]
        if kind == "linear":
            cells = [*["-"] * (len(ways) - 1), cells[-1]]
        rows.append([NAMES[kind], str(median(len(run.steps()) for run in of_kind)), *cells])
    return table(["training", "steps", *(f"after {step * BATCH:,} samples" for step in ways)], rows)


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


def draw(runs: Runs, path: Path) -> None:
    """Held-out loss by steps, with the ranks of the first seed's elastic run."""
    from matplotlib.figure import Figure  # noqa: PLC0415 (only the figure needs it)

    figure = Figure(figsize=(7, 3.2), layout="constrained")
    axes = figure.subplots()
    for kind, colour in (("fixed", "tab:gray"), ("keep", "tab:blue")):
        for number, run in enumerate(runs.get(kind, ())):
            scores = sorted(run.scores().items())
            label = NAMES[kind].replace("`", "") if number == 0 else None
            steps, held_out = [step for step, _ in scores], [score[1] for _, score in scores]
            axes.plot(steps, held_out, color=colour, marker="o", markersize=3, label=label)
    for before, after in pairwise(runs["keep"][0].steps()):
        if before["ranks"] != after["ranks"]:
            axes.axvline(before["step"], color="tab:blue", linewidth=0.6, linestyle=":")
            text = f" {after['ranks']} ranks"
            axes.annotate(
                text, (before["step"], 0.97), xycoords=("data", "axes fraction"), va="top", fontsize=8
            )
    axes.set(xlabel="steps", ylabel="held-out loss", yscale="log")
    axes.legend(loc="lower left")
    figure.savefig(path, dpi=120)


@click.command()
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path))
@click.option("--kinds", default=",".join(NAMES), show_default=True, help="What to run, with commas between.")
def main(folder: Path, kinds: str) -> None:
    """Measure what is not measured yet, and rewrite the section of docs/results.md."""
    folder.mkdir(exist_ok=True)
    if not (folder / "digits.npz").exists():
        write_digits(folder / "digits.npz")
    runs = {kind: [Run(folder, kind, seed) for seed in SEEDS] for kind in kinds.split(",")}
    for seed in range(len(SEEDS)):
        for kind in runs:
            runs[kind][seed].do()
    document = DOCS / "results.md"
    body = f"{quality(runs)}\n\n{losses(runs)}"
    text = replace_section(document.read_text(encoding="utf-8"), "elastic-training", body)
    document.write_text(text, encoding="utf-8")
    draw(runs, DOCS / "elastic-training.png")


if __name__ == "__main__":
    main()
