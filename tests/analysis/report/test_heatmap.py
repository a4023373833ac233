"""A cluster over time, on small clusters worked out by hand."""

import numpy as np

from analysis.report.figures import TimeBins
from analysis.report.heatmap import DOWN_CELL, IDLE_CELL, NOBODY, choose_rows, draw_heatmap
from analysis.report.history import RunHistory
from dally.testing.worlds import racks
from tests.analysis.report.folders import started

BINS = TimeBins(0, 10, 4)


def test_spans_are_cut_at_the_edges_of_bins() -> None:
    span, place, length_s = BINS.cut(np.array([5.0, 20.0, -9.0]), np.array([25.0, 30.0, 99.0]))
    assert span.tolist() == [0, 0, 0, 1, 2, 2, 2, 2]
    assert place.tolist() == [0, 1, 2, 2, 0, 1, 2, 3]
    assert length_s.tolist() == [5, 10, 5, 10, 10, 10, 10, 10]


def test_spans_outside_the_bins_have_no_length() -> None:
    _, _, length_s = BINS.cut(np.array([50.0, -20.0]), np.array([60.0, -10.0]))
    assert length_s.sum() == 0


def test_the_mean_counts_each_span_by_its_weight() -> None:
    assert BINS.mean_count([(0, 15), (0, 40)], [2, 1]).tolist() == [3, 2, 1, 1]


def test_a_run_of_one_moment_has_bins() -> None:
    assert TimeBins.between(3, 3, 10).width_s > 0


def test_small_clusters_have_a_row_for_each_gpu_rack_by_rack() -> None:
    rows = choose_rows({}, racks([[2, 1], [1]]))
    assert rows.unit == "GPU"
    assert rows.names == ["r0m0, GPU 0", "r0m0, GPU 1", "r0m1, GPU 0", "r1m0, GPU 0"]
    assert rows.racks == ["r0", "r0", "r0", "r1"]
    assert rows.places["r0m1"] == (2,)


def test_larger_clusters_have_a_row_for_each_machine() -> None:
    rows = choose_rows({}, racks([[4] * 50, [4] * 50]))
    assert (rows.unit, len(rows.names), set(rows.gpus)) == ("machine", 100, {4})
    assert rows.places["r1m0"] == (50,) * 4


def test_the_largest_clusters_have_a_row_for_each_rack() -> None:
    rows = choose_rows({}, racks([[1] * 100] * 3))
    assert (rows.unit, rows.names, rows.gpus) == ("rack", ["r0", "r1", "r2"], [100, 100, 100])
    assert rows.places["r1m0"] == (1,)


def test_without_racks_machines_stand_in_the_order_of_their_numbers() -> None:
    assert choose_rows({"n10": 1, "n9": 1}, None).names == ["n9, GPU 0", "n10, GPU 0"]
    blocks = choose_rows({f"n{number}": 1 for number in range(600)}, None)
    assert (blocks.unit, len(blocks.names), blocks.names[0]) == ("3 machines", 200, "n0 to n2")


def test_a_cell_shows_what_held_most_of_it() -> None:
    topology = racks([[1, 1]])
    history = RunHistory(topology.levels, {"a": 0, "b": 1}, {"r0m0": 1, "r0m1": 1})
    history.add(started(0, "a", {"r0m0": 1, "r0m1": 1}, "rack"))
    history.add({"t": 26, "event": "end", "job": "a"})
    history.add(started(26, "b", {"r0m0": 1}))
    history.add({"t": 30, "event": "machine_down", "machine": "r0m1"})
    history.close(40)
    heatmap = draw_heatmap(history, topology, BINS)
    assert heatmap.level.tolist() == [[1, 1, 1, 0], [1, 1, 1, DOWN_CELL]]
    assert heatmap.job.tolist() == [[0, 0, 0, 1], [0, 0, 0, NOBODY]]
    assert heatmap.percent.tolist() == [[100, 100, 100, 100], [100, 100, 60, 0]]


def test_a_cell_that_nobody_held_is_idle() -> None:
    topology = racks([[1]])
    heatmap = draw_heatmap(RunHistory(topology.levels, {}, {"r0m0": 1}), topology, BINS)
    assert (heatmap.level == IDLE_CELL).all()
    assert (heatmap.job == NOBODY).all()


def test_more_gpus_than_a_machine_has_as_a_live_run_may_see_for_a_moment_are_left_out() -> None:
    topology = racks([[1]])
    history = RunHistory(topology.levels, {"a": 0, "b": 1}, {"r0m0": 1})
    history.add(started(0, "a", {"r0m0": 1}))
    history.add(started(19, "b", {"r0m0": 1}))
    history.add({"t": 20, "event": "end", "job": "a"})
    history.close(40)
    assert draw_heatmap(history, topology, BINS).percent.max() == 100
