"""The cluster over time: for each row of GPUs and bin, how much was held, at which level, by whom."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from analysis.report.bins import Bins, Floats, Numbers
from analysis.report.history import Held, RunHistory
from analysis.report.rows import Rows, lay_rows
from dally.cluster.topology import Topology

IDLE_CELL, DOWN_CELL = 255, 254
NOBODY = -1


@dataclass(frozen=True, slots=True)
class Heatmap:
    """A picture of a cluster; arrays are rows x bins.

    Attributes:
        rows: What the rows are.
        level: Place of the level at which most of the cell's GPU time was held; IDLE_CELL, DOWN_CELL.
        job: Number of the job that held most of it in one stretch; NOBODY.
        percent: Of the cell's GPU time, what jobs held, percent.
    """

    rows: Rows
    level: Numbers
    job: Numbers
    percent: Numbers


@dataclass(frozen=True, slots=True)
class _Pieces:
    """Who held how much of each cell: cell, GPU-seconds, place of the level, number of the job."""

    cell: Numbers
    gpu_s: Floats
    level: Numbers
    job: Numbers


def draw_heatmap(history: RunHistory, topology: Topology | None, bins: Bins) -> Heatmap:
    """Lay a run's history over rows and bins."""
    rows = lay_rows(history.machines(), topology)
    pieces = _pieces(history.held, rows, bins)
    shape = len(rows.names), bins.count
    whole = np.repeat(np.array(rows.gpus, dtype=float) * bins.width_s, bins.count)
    levels = len(history.levels)
    by_level = _by_level(pieces, levels, len(whole))
    used = by_level[:levels].sum(axis=0)
    idle = np.maximum(whole - used - by_level[levels], 0.0)
    most = np.vstack([by_level, idle]).argmax(axis=0)
    level = np.select([most == levels, most > levels], [DOWN_CELL, IDLE_CELL], most)
    percent = np.minimum(np.rint(100 * used / whole), 100).astype(np.int64)
    job = _most(pieces, len(whole))
    return Heatmap(rows, level.reshape(shape), job.reshape(shape), percent.reshape(shape))


def _pieces(held: Sequence[Held], rows: Rows, bins: Bins) -> _Pieces:
    spans = [
        (row, each.begin_s, each.end_s, gpus, each.level, each.job)
        for each in held
        for row, gpus in _by_row(each, rows).items()
    ]
    row, begin_s, end_s, gpus, level, job = np.array(spans, dtype=float).reshape(-1, 6).T
    span, place, length_s = bins.spread(begin_s, end_s)
    cell = row.astype(np.int64)[span] * bins.count + place
    return _Pieces(cell, length_s * gpus[span], level.astype(np.int64)[span], job.astype(np.int64)[span])


def _by_row(held: Held, rows: Rows) -> Counter[int]:
    """GPUs in each row; without those beyond the machine's, as a live run may see a start before an end."""
    places = rows.places.get(held.machine, ())
    return Counter(places[slot] for slot in held.slots if slot < len(places))


def _by_level(pieces: _Pieces, levels: int, cells: int) -> Floats:
    """GPU-seconds, (levels + 1) x cells: held at each level; in the last row, of machines that were down."""
    level = np.where(pieces.level < 0, levels, pieces.level)
    gpu_s = np.bincount(level * cells + pieces.cell, pieces.gpu_s, (levels + 1) * cells)
    return gpu_s.astype(np.float64).reshape(-1, cells)


def _most(pieces: _Pieces, cells: int) -> Numbers:
    """In each cell the job of the largest piece."""
    found = np.full(cells, NOBODY)
    order = np.argsort(pieces.gpu_s, kind="stable")
    found[pieces.cell[order]] = pieces.job[order]
    return found
