"""Checks fair sharing of links on pairs of jobs that DeepShare measured.

Two jobs share the machines' links. While both communicate, each has half the bandwidth; while only one does,
it has all. So what a job keeps of its throughput follows from two traffic shares: the parts of its own and of
the other's iteration, alone, in which the network keeps the GPUs waiting.
"""

import csv
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares

from dally.errors import InputError
from dally.markdown import table
from dally.profiles.allreduce import ring_factor

Table = NDArray[np.float64]
"""Kept shares of throughput: rows are the jobs that keep it, columns those they share with."""

Mask = NDArray[np.bool_]
"""Cells of such a table."""

Way = Callable[[Mask], Table]
"""A way to predict the table, from the cells that are known."""

_ROUNDS = 20
"""Repetitions that solve for what two jobs keep; each leaves at most half of the error."""


@dataclass(frozen=True, slots=True)
class MeasuredJob:
    """A job measured: its model, GPUs and nodes, and its throughput alone."""

    model: str
    gpus: int
    nodes: int
    throughput: float

    @property
    def name(self) -> str:
        """As the tables name it."""
        return f"{self.model},{self.gpus},{self.nodes}"


@dataclass(frozen=True, slots=True)
class Explanation:
    """How well a way to predict explains the table.

    Attributes:
        name: In words.
        constants: Numbers fitted to the table.
        error: Mean absolute error of the kept share, on what it was fitted to.
        held_out: The same on cells it was not fitted to.
        explained: Share of the variance explained (R squared); below 0 the mean is better.
    """

    name: str
    constants: int
    error: float
    held_out: float
    explained: float


def read_jobs(folder: Path) -> tuple[MeasuredJob, ...]:
    """The jobs of `isolated_thp.csv`.

    Raises:
        InputError: It cannot be read.
    """
    path = folder / "isolated_thp.csv"
    try:
        found = []
        for name, (throughput,) in _rows(path):
            model, gpus, nodes = name.split(",")
            found.append(MeasuredJob(model, int(gpus), int(nodes), throughput))
        return tuple(found)
    except (TypeError, ValueError) as error:
        raise InputError(f"table {path} must have rows of MODEL,GPUS,NODES and a throughput") from error


def read_kept(folder: Path, jobs: Sequence[MeasuredJob]) -> Table:
    """The table of kept shares, `shared_thp_ratio.csv`, in the order of the jobs.

    Raises:
        InputError: It cannot be read or has other jobs.
    """
    rows = _rows(folder / "shared_thp_ratio.csv")
    named = [name for name, _ in rows] == [job.name for job in jobs]
    if not named or any(len(values) != len(jobs) for _, values in rows):
        raise InputError(f"{folder}: shared_thp_ratio.csv and isolated_thp.csv name different jobs")
    return np.array([values for _, values in rows])


def share_fairly(traffic: Table) -> Table:
    """What each job keeps beside each other one.

    A job with traffic share d and kept share k computes (1 - d) k of the time, and communicates the rest. Its
    traffic, beside a job that communicates a part p of the time at random, lasts d / (1 - p / 2). Both hold
    for both jobs, so it is solved by repetition.

    Args:
        traffic: Part of each job's iteration, alone, in which the network keeps it waiting, 0 to 1.
    """
    computing = 1 - traffic
    kept = np.ones((len(traffic), len(traffic)))
    for _ in range(_ROUNDS):
        other_busy = 1 - computing[None, :] * kept.T
        kept = 1 / (computing[:, None] + traffic[:, None] / (1 - other_busy / 2))
    return kept


def share_as_met(traffic: Table) -> Table:
    """What each job keeps beside each other one, if it meets the other as often as that communicates alone.

    This is what `dally.profiles.contention` foretells of two jobs that want the whole link and hide nothing.

    Args:
        traffic: Part of each job's iteration, alone, in which the network keeps it waiting, 0 to 1.
    """
    return np.asarray(1 / (1 + np.outer(traffic, traffic)))


def isolated_traffic(jobs: Sequence[MeasuredJob]) -> Table:
    """Traffic shares from the jobs' throughputs alone.

    The iteration time of as many GPUs on n nodes is taken as constant + slope x 2(n-1)/n, the share as the
    second part of it, 0 to 1. Two GPUs were measured on two nodes only and take the slope of four.
    """
    shares = []
    for job in jobs:
        alike = [each for each in jobs if each.model == job.model and each.gpus == max(job.gpus, 4)]
        factors = np.array([ring_factor(each.nodes) for each in alike])
        times = np.array([each.gpus / each.throughput for each in alike])
        slope = float(np.polyfit(factors, times, 1)[0])
        shares.append(min(1.0, max(0.0, slope * ring_factor(job.nodes) / (job.gpus / job.throughput))))
    return np.array(shares)


def fit_traffic(kept: Table, known: Mask, sharing: Callable[[Table], Table] = share_fairly) -> Table:
    """The traffic shares with which a way of sharing comes nearest to the known cells, by least squares."""
    size = len(kept)

    def misses(logits: Table) -> Table:
        return (sharing(_logistic(logits)) - kept)[known]

    return _logistic(least_squares(misses, np.zeros(size)).x)


def explain(jobs: Sequence[MeasuredJob], kept: Table) -> tuple[Explanation, ...]:
    """Hold ways to predict the table against it: two without constants, then fitted ones.

    Errors are on all cells when fitted to all, and on each half of a chessboard when fitted to the other.
    """
    size, traffic, families = len(jobs), isolated_traffic(jobs), [job.model for job in jobs]
    ways: tuple[tuple[str, int, Way], ...] = (
        ("every job keeps everything", 0, lambda _: np.ones_like(kept)),
        ("fair sharing, traffic from the times alone", 0, lambda _: share_fairly(traffic)),
        ("every job keeps the mean", 1, lambda known: np.full_like(kept, kept[known].mean())),
        (
            "fair sharing, a fitted traffic share per job",
            size,
            lambda known: share_fairly(fit_traffic(kept, known)),
        ),
        (
            "as simulated, a fitted traffic share per job",
            size,
            lambda known: share_as_met(fit_traffic(kept, known, share_as_met)),
        ),
        (
            "the mean over the pairs of the two models",
            len(set(families)) ** 2,
            lambda known: _block_means(families, kept, known),
        ),
        ("an effect per row and one per column", 2 * size - 1, lambda known: _additive(kept, known)),
    )
    everything, white = np.ones_like(kept, dtype=bool), np.indices(kept.shape).sum(axis=0) % 2 == 0
    found = []
    for name, constants, way in ways:
        fitted, crossed = way(everything), np.where(white, way(~white), way(white))
        error, held_out = (float(np.abs(told - kept).mean()) for told in (fitted, crossed))
        explained = float(1 - ((fitted - kept) ** 2).mean() / kept.var())
        found.append(Explanation(name, constants, error, held_out, explained))
    return tuple(found)


def _block_means(families: Sequence[str], kept: Table, known: Mask) -> Table:
    """Each cell the mean over the known cells of the same two models."""
    means = np.empty_like(kept)
    for mine in set(families):
        for theirs in set(families):
            block = np.outer([name == mine for name in families], [name == theirs for name in families])
            means[block] = kept[block & known].mean()
    return means


def _additive(kept: Table, known: Mask) -> Table:
    """A row and a column effect, by least squares on the known cells."""
    rows, columns = np.nonzero(known)
    design = np.hstack([np.eye(len(kept))[rows], np.eye(len(kept))[columns]])
    effects = np.linalg.lstsq(design, kept[known], rcond=None)[0]
    return np.asarray(np.add.outer(effects[: len(kept)], effects[len(kept) :]))


def _logistic(values: Table) -> Table:
    return np.asarray(1 / (1 + np.exp(-np.clip(values, -50, 50))))


def _rows(path: Path) -> list[tuple[str, list[float]]]:
    """(first column, the numbers after it) of each row below the header."""
    try:
        with path.open(encoding="utf-8", newline="") as file:
            rows = list(csv.reader(file))[1:]
        return [(name, [float(value) for value in values]) for name, *values in rows]
    except (OSError, ValueError) as error:
        raise InputError(f"table {path} cannot be read: {error}") from error


def sharing_table(explanations: Iterable[Explanation]) -> str:
    """How well ways to predict explain what pairs of jobs keep."""
    header = ("way to predict", "fitted", "mean error", "on the other half", "variance explained")
    rows = [
        (
            item.name,
            str(item.constants),
            f"{item.error:.3f}",
            f"{item.held_out:.3f}" if item.constants else "",
            f"{item.explained:.0%}",
        )
        for item in explanations
    ]
    return table(header, rows)


def noise_lines(jobs: Sequence[MeasuredJob], kept: Table) -> str:
    """What is known of the table's own noise, of which no cell was measured twice.

    No job can keep more than all, and two that share fairly keep half or more.
    """
    everything = np.ones_like(kept, dtype=bool)
    distance = kept - _block_means([job.model for job in jobs], kept, everything)
    asymmetry = np.abs(kept - kept.T)[np.triu_indices(len(kept), 1)].mean()
    return (
        f"Cells that are exactly 1, the most there is: {(kept == 1).mean():.1%}. Below 0.5: "
        f"{(kept < 0.5).mean():.1%}. A job beside its copy keeps {np.diag(kept).mean():.2f}.\n"
        f"The two jobs of a pair differ by {asymmetry:.2f}; a cell is "
        f"{np.sqrt((distance**2).mean()):.2f} (root mean square) from the mean of its two models."
    )
