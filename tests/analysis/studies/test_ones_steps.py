"""The table of decision times has a cell for each number of jobs and GPUs."""

from analysis.studies.ones_steps import larger, steps_table
from dally.cluster.load import load_cluster

LIKE = load_cluster("pollux-64")


def test_a_larger_cluster_has_the_same_machines_on_one_switch() -> None:
    topology = larger(LIKE, 128)
    assert (topology.gpus, topology.levels, topology.gpu_types) == (128, LIKE.levels, LIKE.gpu_types)


def test_a_row_for_each_number_of_jobs() -> None:
    header, _, row = steps_table(LIKE, [3], [8]).splitlines()
    assert header == "| median / longest, ms | 8 GPUs |"
    assert row.startswith("| 3 jobs |")
